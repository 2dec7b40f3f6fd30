"""What a supervisor asks of its workers, without the processes: places that answer when let."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.admin.readiness import Readiness
from gateway.manage.policies import Loaded
from gateway.observe.metrics import Metrics
from gateway.policies.load import load
from gateway.runtime.channel import Report, TookUp
from gateway.runtime.settings import CannotStart, Settings
from gateway.runtime.supervisor import Supervisor
from tests.kit.eventually import eventually
from tests.kit.policies import write_policies


class FakePlace:
    """A place whose worker answers when it is let."""

    def __init__(self) -> None:
        self.index, self.pid, self.restarts = 0, None, 0
        self.is_serving, self.is_silent = True, False
        self.report = Report(Metrics("1").snapshot(), Readiness(True, {"store": "ok"}), 0.0)
        self.asked: list[asyncio.Future[None]] = []

    def ask(self) -> asyncio.Future[None]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


@pytest.fixture
def place() -> FakePlace:
    return FakePlace()


@pytest.fixture
async def supervisor(place: FakePlace, tmp_path: Path) -> Supervisor:
    supervisor = Supervisor(Settings(tmp_path), workers=1, command=())
    supervisor._places = [place]  # type: ignore[list-item]
    supervisor._listening = True
    return supervisor


async def turns() -> None:
    """Let everything that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_many_scrapes_ask_a_worker_few_times(
    supervisor: Supervisor, place: FakePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer for the first, and one for all who came while it was awaited."""
    monkeypatch.setattr("gateway.runtime.supervisor.ANSWER_S", 60.0)
    scrapes = [asyncio.gather(supervisor.readiness())]
    await turns()
    scrapes += [asyncio.gather(supervisor.readiness()) for _ in range(50)]
    await turns()
    assert len(place.asked) == 1
    place.asked[0].set_result(None)
    await turns()
    assert [scrape.done() for scrape in scrapes] == [True] + [False] * 50
    assert len(place.asked) == 2
    place.asked[1].set_result(None)
    assert all(found[0].ready for found in await asyncio.gather(*scrapes))
    assert len(place.asked) == 2


async def test_who_stops_waiting_stops_nobody_else(
    supervisor: Supervisor, place: FakePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prober that hangs up leaves the question to the others."""
    monkeypatch.setattr("gateway.runtime.supervisor.ANSWER_S", 60.0)
    one, other = (asyncio.gather(supervisor.readiness()) for _ in range(2))
    await turns()
    one.cancel()
    await turns()
    place.asked[0].set_result(None)
    assert (await other)[0].ready


async def test_what_is_shown_of_a_worker_that_does_not_answer(
    supervisor: Supervisor, place: FakePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it last said, for a moment; silent for long, it does not count."""
    monkeypatch.setattr("gateway.runtime.supervisor.ANSWER_S", 0.0)
    found = await supervisor.readiness()
    assert (found.ready, found.checks["workers"]) == (True, "1 of 1")
    place.is_silent = True
    found = await supervisor.readiness()
    assert (found.ready, found.checks["workers"]) == (False, "0 of 1")
    text, _ = await supervisor.scrape("")
    assert b'gateway_workers{state="live"} 0.0' in text


async def test_the_time_of_a_policy_is_of_the_first_that_took_it_up(
    supervisor: Supervisor, place: FakePlace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other workers, and those that start later, take up what is loaded already."""
    first = load(write_policies(tmp_path / "policies", "http://127.0.0.1:9"))
    supervisor._loaded = Loaded(first, 1, tmp_path)
    for now_us, policy in ((2, first), (3, replace(first, hash="other")), (4, first), (5, first)):
        monkeypatch.setattr("gateway.runtime.supervisor._now_us", lambda now_us=now_us: now_us)
        supervisor._hear(place, TookUp(policy))  # type: ignore[arg-type]
        seen = supervisor._loaded
        assert seen.policy.hash == policy.hash
        assert seen.at_us == {2: 1, 3: 3, 4: 4, 5: 4}[now_us]


async def test_probes_that_are_still_connected_after_a_take_over(
    supervisor: Supervisor, place: FakePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe is about the address, where another process serves: ready, and by whom."""
    monkeypatch.setattr("gateway.runtime.supervisor.ANSWER_S", 0.0)
    supervisor._draining = True
    assert not (await supervisor.readiness()).ready
    supervisor._taken_over_by = 4711
    found = await supervisor.readiness()
    assert (found.ready, found.checks) == (True, {"listener": "taken over by pid 4711"})


async def test_a_successor_that_cannot_be_started(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names what was to be run, and this gateway goes on."""
    supervisor._successor = ("/nowhere/gateway", "serve")
    supervisor._start_successor()
    await eventually(lambda: "cannot start a successor" in caplog.text, "it is said")
    assert "/nowhere/gateway: No such file or directory" in caplog.text


@pytest.mark.parametrize(
    ("port", "draining", "words"), [(0, False, "with port 0"), (8080, True, "is ending")]
)
async def test_no_successor_is_started(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture, port: int, draining: bool, words: str
) -> None:
    """One that would not find this gateway, or that nobody wants any more."""
    supervisor._settings = replace(supervisor._settings, listen=("127.0.0.1", port))
    supervisor._successor = ("/nowhere/gateway", "serve")
    supervisor._draining = draining
    supervisor._start_successor()
    assert words in caplog.text
    await turns()
    assert "/nowhere/gateway" not in caplog.text


async def test_authorities_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an upstream is verified by those of the environment, they have to be there."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    policies = write_policies(tmp_path / "policies", "https://localhost:9")
    supervisor = Supervisor(Settings(policies, data=tmp_path), workers=1, command=())
    with pytest.raises(CannotStart, match=r"SSL_CERT_FILE: /nowhere/ca.pem cannot be used"):
        await supervisor.start()
