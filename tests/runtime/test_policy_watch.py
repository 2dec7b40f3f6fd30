"""Changed policy files are loaded, faulty ones refused, incomplete ones awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.domain.policy import Policy
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.runtime import policy_watch as watch_module
from gateway.runtime.file_watch import Signature
from gateway.runtime.policy_watch import PolicyWatch, look_at
from tests.kit.eventually import eventually
from tests.policies.folder import PLANS, write

FASTER = PLANS.replace("60/minute", "70/minute")
BROKEN = "plans: {free: {rate: 1/min}}"


class Heard:
    """The reports of a watch, in order; a PolicyWatch runs during the test."""

    def __init__(self, folder: Path, interval_s: float = 0.005) -> None:
        self.events: list[Policy | PolicyFaults] = []
        self.watch = PolicyWatch(
            folder,
            load(folder),
            on_change=self.events.append,
            on_fault=self.events.append,
            interval_s=interval_s,
        )

    async def until(self, count: int) -> None:
        await eventually(lambda: len(self.events) >= count, f"{count} reports")

    async def turns(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        """Wait until the folder was checked this many times more."""
        looked = 0

        def counted(folder: Path) -> Signature:
            nonlocal looked
            looked += 1
            return look_at(folder)

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
