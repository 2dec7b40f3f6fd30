"""The supervisor's reports, and how it starts a successor, without processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.manage.policies import Loaded
from gateway.policies.load import load
from gateway.runtime.lifecycle import State
from gateway.runtime.settings import CannotStart, Settings
from gateway.runtime.supervisor import Supervisor
from tests.kit.eventually import eventually
from tests.kit.loops import run_ready
from tests.kit.policies import write_policies


@pytest.fixture
async def supervisor(tmp_path: Path) -> Supervisor:
    """A serving supervisor without a worker."""
    supervisor = Supervisor(Settings(tmp_path), workers=1, command=())
    supervisor._state = State.SERVING
    return supervisor


async def test_the_load_time_of_a_policy_is_the_first_workers(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other workers, and those that start later, use the policy that was loaded."""
    first = load(write_policies(tmp_path / "policies", "http://127.0.0.1:9"))
    supervisor._loaded = Loaded(first, 1, tmp_path)
    for now_us, policy in ((2, first), (3, replace(first, hash="other")), (4, first), (5, first)):
        monkeypatch.setattr("gateway.runtime.supervisor._now_us", lambda now_us=now_us: now_us)
        supervisor._use(policy, False)
        seen = supervisor._loaded
        assert seen.policy.hash == policy.hash
        assert seen.at_us == {2: 1, 3: 3, 4: 4, 5: 4}[now_us]


async def test_probes_that_are_still_connected_after_a_take_over(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe is for the address, where another process serves: ready, with its pid."""
    supervisor._state = State.DRAINING
    assert not (await supervisor.readiness()).ready
    supervisor._taken_over_by = 4711
    found = await supervisor.readiness()
    assert (found.ready, found.checks) == (True, {"listener": "taken over by pid 4711"})


async def test_a_successor_that_cannot_be_started(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the program, and this gateway continues to serve."""
    supervisor._successor = ("/nowhere/gateway", "serve")
    supervisor._start_successor()
    await eventually(lambda: "cannot start a new process" in caplog.text, "it is said")
    assert "/nowhere/gateway: No such file or directory" in caplog.text


@pytest.mark.parametrize(
    ("port", "draining", "words"), [(0, False, "with port 0"), (8080, True, "is stopping")]
)
async def test_no_successor_is_started(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture, port: int, draining: bool, words: str
) -> None:
    """It would not find this gateway, or is no longer wanted."""
    supervisor._settings = replace(supervisor._settings, listen=("127.0.0.1", port))
    supervisor._successor = ("/nowhere/gateway", "serve")
    supervisor._state = State.DRAINING if draining else State.SERVING
    supervisor._start_successor()
    assert words in caplog.text
    await run_ready()
    assert "/nowhere/gateway" not in caplog.text


async def test_missing_authorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an upstream is verified by those of the environment, the files must exist."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    policies = write_policies(tmp_path / "policies", "https://localhost:9")
    supervisor = Supervisor(Settings(policies, data=tmp_path), workers=1, command=())
    with pytest.raises(CannotStart, match=r"SSL_CERT_FILE: /nowhere/ca.pem cannot be used"):
        await supervisor.start()
