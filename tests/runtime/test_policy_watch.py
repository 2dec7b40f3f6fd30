"""Changed policy files are loaded, faulty ones refused, incomplete ones awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.policy import Policy
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.runtime import policy_watch as watch_module
from gateway.runtime.file_watch import Signature
from gateway.runtime.policy_watch import MOST_LOGGED, PolicyWatch, log_warnings, look_at
from tests.kit.eventually import eventually
from tests.policies.folder import PLANS, ROUTES, write

FASTER = PLANS.replace("60/minute", "70/minute")
BROKEN = "plans: {free: {rate: 1/min}}"


class Heard:
    """The reports of a watch, in order; a PolicyWatch runs during the test."""

    def __init__(self, folder: Path, interval_s: float = 0.005) -> None:
        self.events: list[Policy | PolicyFaults] = []
        self.waited = 0
        self.watch = PolicyWatch(
            folder,
            load(folder),
            on_change=self.events.append,
            on_fault=self.events.append,
            on_wait=self._wait,
            interval_s=interval_s,
        )

    def _wait(self) -> None:
        self.waited += 1

    async def until(self, count: int) -> None:
        await eventually(lambda: len(self.events) >= count, f"{count} reports")

    async def turns(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        """Wait until the folder was checked this many times more."""
        looked = 0

        def counted(folder: Path, used: Iterable[str]) -> Signature:
            nonlocal looked
            looked += 1
            return look_at(folder, used)

        with monkeypatch.context() as patch:
            patch.setattr(watch_module, "look_at", counted)
            await eventually(lambda: looked >= count, f"{count} looks")

    @property
    def amount(self) -> int:
        return self.watch.policy.plans["free"].limit.amount


@pytest.fixture
async def heard(tmp_path: Path) -> AsyncIterator[Heard]:
    (tmp_path / "policies").mkdir()
    async with watching(write(tmp_path / "policies")) as heard:
        yield heard


@contextlib.asynccontextmanager
async def watching(folder: Path) -> AsyncIterator[Heard]:
    heard = Heard(folder)
    task = asyncio.create_task(heard.watch.run())
    yield heard
    assert not task.done(), "the watch ended by itself"
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_change_is_loaded(heard: Heard, tmp_path: Path) -> None:
    """A file with another content makes a new policy, reported once."""
    (tmp_path / "policies/plans.yaml").write_text(FASTER)
    await heard.until(1)
    assert heard.events == [heard.watch.policy]
    assert heard.amount == 70


@pytest.mark.parametrize("change", ["added", "removed", "renamed over"])
async def test_files_come_and_go(heard: Heard, tmp_path: Path, change: str) -> None:
    """An added, a removed and a replaced file are changes."""
    folder = tmp_path / "policies"
    if change == "added":
        (folder / "x.yaml").write_text("environment: staging")
    elif change == "removed":
        (folder / "upstreams.yaml").unlink()
    else:
        (folder / "new").write_text(FASTER)
        (folder / "new").rename(folder / "plans.yaml")
    await heard.until(1)
    assert len(heard.events) == 1
    assert isinstance(heard.events[0], PolicyFaults) is (change == "removed")


async def test_a_faulty_change_keeps_the_last_good_policy(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported once, however often the folder is checked; so is the next fault."""
    good = heard.watch.policy
    plans = tmp_path / "policies/plans.yaml"
    plans.write_text(BROKEN)
    await heard.until(1)
    await heard.turns(monkeypatch, 6)
    assert len(heard.events) == 1
    assert heard.watch.policy is good
    plans.write_text(BROKEN + " ")
    await heard.until(2)
    assert all(isinstance(event, PolicyFaults) for event in heard.events)
    plans.write_text(FASTER)
    await heard.until(3)
    assert heard.events[2] is heard.watch.policy


@pytest.mark.timeout(60)
async def test_a_pipe_among_the_files_does_not_hold_up_the_watch(
    heard: Heard, tmp_path: Path
) -> None:
    """It is a fault like any other, and the watch continues to the next change."""
    pipe = tmp_path / "policies/x.yaml"
    os.mkfifo(pipe)
    await heard.until(1)
    assert "it is a named pipe" in str(heard.events[0])
    pipe.unlink()
    await heard.until(2)
    assert heard.events[1] is heard.watch.policy


SCOPED = ROUTES + '  keys: {match: "GET /keys", upstream: api, scopes: [keys]}\n'


async def test_a_file_that_is_not_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half of a file that lacks a route waits, with a line in the log; so the whole is loaded."""
    folder = write(tmp_path, routes=SCOPED)
    async with watching(folder) as heard:
        routes = folder / "routes.yaml"
        await heard.turns(monkeypatch, 6)
        routes.write_text(ROUTES)
        await eventually(lambda: heard.waited == 1, "it waits")
        assert caplog.messages == [
            "policy reload waiting: the files lack route keys, and may not be complete; they are "
            "loaded if they stay as they are for 10 s, or by SIGHUP"
        ]
        assert heard.events == []
        routes.write_text(SCOPED.replace("GET /keys", "GET /v1/keys"))
        await heard.until(1)
        assert heard.watch.policy.routes["keys"].path == ("v1", "keys")
        assert heard.waited == 1


async def test_rules_that_are_removed(heard: Heard, tmp_path: Path) -> None:
    """Files that lack a route are loaded once they have not changed for longer, when they are
    renamed into place, and at a request.
    """
    routes = tmp_path / "policies/routes.yaml"

    async def removed(count: int, remove: Callable[[], object]) -> None:
        routes.write_text(SCOPED)
        await heard.until(count - 1)
        remove()
        await heard.until(count)
        assert isinstance(heard.events[-1], Policy)
        assert "keys" not in heard.events[-1].routes

    await removed(2, lambda: routes.write_text(ROUTES))
    assert heard.waited == 1

    def rename() -> None:
        draft = tmp_path / "draft"
        draft.write_text(ROUTES)
        written_ns = draft.stat().st_ctime_ns
        while draft.stat().st_ctime_ns == written_ns:
            draft.chmod(0o600)
        draft.rename(routes)

    await removed(4, rename)
    assert heard.waited == 1

    def request() -> None:
        routes.write_text(ROUTES)
        heard.watch.reload_now()

    await removed(6, request)
    assert heard.waited == 1


async def test_a_fault_taken_back_is_reported(heard: Heard, tmp_path: Path) -> None:
    """After a fault, a return to the same policy is reported as a success."""
    plans = tmp_path / "policies/plans.yaml"
    plans.write_text(BROKEN)
    await heard.until(1)
    plans.write_text(PLANS)
    await heard.until(2)
    assert heard.events[1] is heard.watch.policy


async def test_a_touched_file_is_no_change(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same content with a new date is read but not reported."""
    before = heard.watch.policy
    os.utime(tmp_path / "policies/plans.yaml", (1, 1))
    await heard.turns(monkeypatch, 6)
    assert heard.events == []
    assert heard.watch.policy is before


async def test_a_change_between_the_start_and_the_first_look(tmp_path: Path) -> None:
    """A change after the reading at the start is loaded as well."""
    folder = write(tmp_path)
    heard = Heard(folder)
    (folder / "plans.yaml").write_text(FASTER)
    task = asyncio.create_task(heard.watch.run())
    await heard.until(1)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert heard.amount == 70


async def test_reload_now_reports_an_unchanged_policy(heard: Heard) -> None:
    """A requested reload reports a success, even if nothing changed."""
    heard.watch.reload_now()
    await heard.until(1)
    assert heard.events == [heard.watch.policy]


async def test_reload_now_reports_a_fault_again(heard: Heard, tmp_path: Path) -> None:
    """A requested reload reports the fault, even if it was reported before."""
    (tmp_path / "policies/plans.yaml").write_text(BROKEN)
    await heard.until(1)
    heard.watch.reload_now()
    await heard.until(2)
    assert isinstance(heard.events[1], PolicyFaults)


async def test_reload_now_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    """A requested reload happens at once, though the next check is an hour later."""
    heard = Heard(write(tmp_path), interval_s=3600)
    task = asyncio.create_task(heard.watch.run())
    (tmp_path / "plans.yaml").write_text(FASTER)
    heard.watch.reload_now()
    await heard.until(1)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert heard.amount == 70


@pytest.mark.parametrize("kind", ["folder", "..data", "file"])
async def test_a_swapped_link(tmp_path: Path, kind: str) -> None:
    """Links are followed: of the folder, of Kubernetes's ..data, of a file."""
    old, new, folder = tmp_path / "old", tmp_path / "new", tmp_path / "policies"
    old.mkdir()
    new.mkdir()
    write(old)
    write(new, plans=FASTER)
    for path in (old / "plans.yaml", new / "plans.yaml"):
        os.utime(path, (1, 1))  # so that the date does not show the change
    if kind == "folder":
        link, target = folder, new
        folder.symlink_to(old)
    elif kind == "..data":
        link, target = folder / "..data", new
        folder.mkdir()
        link.symlink_to(old)
        for path in old.iterdir():
            (folder / path.name).symlink_to(f"..data/{path.name}")
    else:
        link, target = folder / "plans.yaml", new / "plans.yaml"
        folder.mkdir()
        write(folder)
        link.unlink()
        link.symlink_to(old / "plans.yaml")
    async with watching(folder) as heard:
        swap = tmp_path / "swap"
        swap.symlink_to(target)
        swap.rename(link)
        await heard.until(1)
        assert heard.amount == 70
        assert len(heard.events) == 1


async def test_a_folder_that_is_removed_and_restored(heard: Heard, tmp_path: Path) -> None:
    """While it is missing there is a fault; once it is back it is loaded."""
    (tmp_path / "policies").rename(tmp_path / "away")
    await heard.until(1)
    assert isinstance(heard.events[0], PolicyFaults)
    (tmp_path / "away/plans.yaml").write_text(FASTER)
    (tmp_path / "away").rename(tmp_path / "policies")
    await heard.until(2)
    assert heard.amount == 70


def test_a_signature_of_nothing(tmp_path: Path) -> None:
    """A missing folder and a dangling link have the signature of an empty folder."""
    assert look_at(tmp_path / "none") == ()
    (tmp_path / "x.yaml").symlink_to("nowhere")
    assert look_at(tmp_path) == ()


async def test_a_plan_that_is_gone(tmp_path: Path) -> None:
    """Keys keep a plan that the files no longer have, until the files have it again."""
    heard = Heard(write(tmp_path, plans=f"{PLANS}  gold: {{rate: 9/day}}\n"))
    watching = asyncio.create_task(heard.watch.run())
    gold = heard.watch.policy.plans["gold"]
    write(tmp_path, plans=PLANS)
    heard.watch.reload_now()
    await heard.until(1)
    assert (heard.watch.policy.plan("gold"), "gold" in heard.watch.policy.plans) == (gold, False)
    write(tmp_path, plans=FASTER)
    heard.watch.reload_now()
    await heard.until(2)
    assert heard.watch.policy.plan("gold") == gold
    write(tmp_path, plans=f"{PLANS}  basic: {{rate: 8/day, was: gold}}\n")
    heard.watch.reload_now()
    await heard.until(3)
    assert not heard.watch.policy.kept_plans
    assert heard.watch.policy.plan("gold") == heard.watch.policy.plans["basic"]
    watching.cancel()
    await asyncio.wait([watching])


def test_warnings_are_logged_up_to_a_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is a line; of very many, one line says how many more there are."""
    policy = load(write(tmp_path))
    log_warnings(policy)
    assert caplog.messages == []
    log_warnings(replace(policy, warnings=("routes.yaml:3: routes.a: found x, expected y",)))
    assert caplog.messages == ["policy warning: routes.yaml:3: routes.a: found x, expected y"]
    caplog.clear()
    log_warnings(replace(policy, warnings=("w",) * (MOST_LOGGED + 5)))
    assert len(caplog.messages) == MOST_LOGGED + 1
    assert caplog.messages[-1] == "policy warning: 5 more, see gateway validate"


async def test_lists_of_addresses_are_reloaded(tmp_path: Path) -> None:
    """A changed file of addresses is loaded although the policy files are the same; a faulty one is
    refused, and loaded once it is mended, or exists.
    """
    blocked = tmp_path / "blocked.txt"
    blocked.write_text("192.0.2.1\n")
    folder = tmp_path / "policies"
    folder.mkdir()
    access = "access: {deny_file: ../blocked.txt}\n"
    async with watching(write(folder, gateway=access)) as heard:

        def denied() -> int:
            (access,) = heard.watch.policy.access_lists
            return len(access.deny or ())

        await heard.until(0)
        first = heard.watch.policy.hash
        blocked.write_text("192.0.2.1\n198.51.100.0/24\n")
        await heard.until(1)
        assert (denied(), heard.watch.policy.hash) == (2, first)
        for fault in ("192.0.2.300\n", None):
            seen = len(heard.events)
            if fault is None:
                blocked.unlink()
            else:
                blocked.write_text(fault)
            await heard.until(seen + 1)
            assert isinstance(heard.events[-1], PolicyFaults)
            assert denied() == 2
            blocked.write_text("192.0.2.1\n198.51.100.0/24\n")
            await heard.until(seen + 2)
            assert heard.events[-1] is heard.watch.policy


async def test_pages_are_reloaded(tmp_path: Path) -> None:
    """So are files that are sent to clients: of error pages and static answers."""
    folder = tmp_path / "policies"
    (folder / "pages").mkdir(parents=True)
    for name in ("error.html", "robots.txt"):
        (folder / "pages" / name).write_text("one")
    pages = "error_pages: {html: pages/error.html}\n"
    routes = (
        'routes:\n  robots: {match: "GET /robots.txt", auth: none, '
        "respond: {status: 200, file: pages/robots.txt}}\n"
    )
    async with watching(write(folder, gateway=pages, routes=routes)) as heard:
        for number, name in enumerate(("error.html", "robots.txt"), 1):
            (folder / "pages" / name).write_text("another")
            await heard.until(number)
        policy = heard.watch.policy
        answer = policy.routes["robots"].respond
        assert answer is not None
        assert answer.body == b"another"
        assert policy.error_pages is not None
        assert policy.error_pages.html == b"another"


async def test_secrets_are_reloaded(tmp_path: Path) -> None:
    """Of senders of webhooks, and of MCP sessions: one that was removed is of no use."""
    folder = tmp_path / "policies"
    folder.mkdir()
    files = {name: tmp_path / f"{name}.txt" for name in ("partner", "sessions")}
    for file in files.values():
        file.write_text(f"{'o' * 40}\n")
    gateway = (
        "signatures: {partner: {secrets: ../partner.txt}}\n"
        "mcp_sessions: {secrets: ../sessions.txt}\n"
    )
    routes = (
        'routes:\n  in: {match: "POST /in", upstream: api, auth: none, verify_signature: partner}\n'
    )
    async with watching(write(folder, gateway=gateway, routes=routes)) as heard:
        for number, file in enumerate(files.values(), 1):
            file.write_text(f"{'n' * 40}\n")
            await heard.until(number)
        policy = heard.watch.policy
        verification = policy.routes["in"].verification
        assert verification is not None
        assert verification.secrets == ("n" * 40,)
        assert policy.mcp_secrets == (b"n" * 40,)
