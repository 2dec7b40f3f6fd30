"""Events in a local file while the store is unavailable."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway import tasks
from gateway.domain.ports import StoreDown
from gateway.domain.webhooks.events import Event
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.webhooks.queue import BudgetSpent
from gateway.webhooks.spool import Spool, SpoolFull
from tests.kit.eventually import eventually


def event(number: int, body: bytes = b'{"a":"\\u00e9"}') -> Event:
    return Event(f"evt_{number}", "a.b", body)


class Store:
    """Accepts, or fails as it is told. full: integrations without room"""

    def __init__(self) -> None:
        self.accepted: list[tuple[str, Event]] = []
        self.tried = 0
        self.failure: Exception | None = None
        self.full: set[str] = set()

    async def accept(self, integration: str, its: Event) -> None:
        self.tried += 1
        if self.failure is not None:
            raise self.failure
        if integration in self.full:
            raise BudgetSpent
        self.accepted.append((integration, its))


def spool_in(folder: Path, most: int = 1_000_000, index: int = 0) -> Spool:
    return Spool(folder / "spool", index, lambda: most, pause_s=0.001)


@asynccontextmanager
async def running(spool: Spool, store: Store) -> AsyncIterator[None]:
    task = tasks.spawn(spool.run(store.accept), "spool")
    try:
        yield
    finally:
        await tasks.end(task)


async def test_events_are_accepted_later(tmp_path: Path) -> None:
    """In their order, with the same bytes; then the file is empty, and is used again."""
    spool, store = spool_in(tmp_path), Store()
    path = tmp_path / "spool" / "webhooks-0.spool"
    store.failure = StoreDown("the store is unavailable")
    async with running(spool, store):
        for number in range(5):
            await spool.add("int", event(number))
        assert (spool.count, spool.bytes) == (5, path.stat().st_size)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        await eventually(lambda: store.tried > 2, "it is tried again and again")
        assert store.accepted == []
        store.failure = BudgetSpent()
        tried = store.tried
        await eventually(lambda: store.tried > tried + 2, "it waits for room")
        store.failure = None
        await eventually(lambda: spool.bytes == 0, "the file is empty")
        assert store.accepted == [("int", event(number)) for number in range(5)]
        assert path.stat().st_size == 0
        await spool.add("other", event(9))
        await eventually(lambda: spool.bytes == 0, "the file is empty again")
    assert store.accepted[5:] == [("other", event(9))]
    assert (spool.count, spool.spooled, spool.replayed, spool.skipped) == (0, 6, 6, 0)
    await spool.close()


async def test_an_integration_without_room(tmp_path: Path) -> None:
    """It does not hold up the others; its events are accepted once there is room."""
    spool, store = spool_in(tmp_path), Store()
    store.full = {"full", "later"}
    for number, name in enumerate(("full", "other", "full", "later", "other")):
        await spool.add(name, event(number))
    async with running(spool, store):
        await eventually(lambda: len(store.accepted) == 2, "those of the other are accepted")
        assert [each.id for _, each in store.accepted] == ["evt_1", "evt_4"]
        assert spool.count == 3
        tried = store.tried
        await eventually(lambda: store.tried > tried + 4, "they are tried again")
        store.full = {"later"}
        await eventually(lambda: len(store.accepted) == 4, "there is room for one of them")
        await spool.add("other", event(5))
        await eventually(lambda: len(store.accepted) == 5, "what comes now is accepted, too")
        assert spool.bytes, "one is left in the file"
        store.full = set()
        await eventually(lambda: spool.bytes == 0, "the file is empty")
    assert [each.id for _, each in store.accepted[2:]] == ["evt_0", "evt_2", "evt_5", "evt_3"]
    assert (spool.count, spool.replayed) == (0, 6)
    await spool.close()


async def test_what_was_left_by_an_earlier_process(tmp_path: Path) -> None:
    """All of its file is accepted anew: the store knows the events that it has."""
    before, store = spool_in(tmp_path), Store()
    store.full = {"full"}
    for number, name in enumerate(("full", "other")):
        await before.add(name, event(number))
    async with running(before, store):
        await eventually(lambda: len(store.accepted) == 1, "one is accepted")
    await before.close()
    spool, store = spool_in(tmp_path), Store()
    async with running(spool, store):
        await eventually(lambda: len(store.accepted) == 2 and spool.bytes == 0, "both are")
    await spool.close()


async def test_one_fsync_for_all_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is answered before it is on the disk."""
    spool = spool_in(tmp_path)
    await spool.add("int", event(0))
    synced: list[int] = []
    fsync = os.fsync
    first: list[asyncio.Task[None]] = []

    def counted(number: int) -> None:
        assert not any(task.done() for task in first if not synced)
        fsync(number)
        synced.append(number)

    monkeypatch.setattr(os, "fsync", counted)
    first += [tasks.spawn(spool.add("int", event(number)), "add") for number in range(1, 101)]
    await asyncio.gather(*first)
    assert 1 <= len(synced) <= 2
    assert spool.count == 101
    await spool.close()


async def test_the_file_of_an_earlier_process(tmp_path: Path) -> None:
    """It is accepted; a last line that was not written as a whole is left out, and counted."""
    before = spool_in(tmp_path)
    for number in range(3):
        await before.add("int", event(number))
    await before.close()
    path = tmp_path / "spool" / "webhooks-0.spool"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 5)
    spool, store = spool_in(tmp_path), Store()
    await spool.add("int", event(7))
    assert (spool.count, spool.skipped) == (3, 1)
    async with running(spool, store):
        await eventually(lambda: spool.bytes == 0, "the file is empty")
    assert [each.id for _, each in store.accepted] == ["evt_0", "evt_1", "evt_7"]
    await spool.close()


async def test_a_line_that_cannot_be_read(tmp_path: Path) -> None:
    """It is skipped: it does not hold up the others."""
    before = spool_in(tmp_path)
    for number in range(3):
        await before.add("int", event(number, b'{"n":%d}' % number))
    await before.close()
    path = tmp_path / "spool" / "webhooks-0.spool"
    path.write_bytes(path.read_bytes().replace(b"evt_1", b"evt_\r"))
    spool, store = spool_in(tmp_path), Store()
    async with running(spool, store):
        await eventually(lambda: len(store.accepted) == 2 and spool.bytes == 0, "both are there")
    assert [each.id for _, each in store.accepted] == ["evt_0", "evt_2"]
    assert (spool.skipped, spool.count) == (1, 0)
    await spool.close()


async def test_its_bound(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, most=500)
    await spool.add("int", event(0, b"x" * 300))
    with pytest.raises(SpoolFull, match="bytes, which is the most"):
        await spool.add("int", event(1, b"x" * 300))
    await spool.add("int", event(2, b"x"))
    assert spool.count == 2
    await spool.close()


async def test_large_events(tmp_path: Path) -> None:
    """Also lines that are longer than what is read at a time."""
    spool, store = spool_in(tmp_path, most=50_000_000), Store()
    bodies = [b'"' * size for size in (1_000_000, 3, 700_000, 1_000_000, 0)]
    for number, body in enumerate(bodies):
        await spool.add("int", event(number, body))
    async with running(spool, store):
        await eventually(lambda: spool.bytes == 0, "the file is empty")
    assert [each.body for _, each in store.accepted] == bodies
    await spool.close()


async def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is refused; what is written later can be read."""
    spool, store = spool_in(tmp_path), Store()
    await spool.add("int", event(0))
    size = spool.bytes
    pwrite = os.pwrite

    def half(number: int, content: bytes, at: int) -> int:
        if at > size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(number, content[:9], at)

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(SpoolFull, match="No space left on device"):
        await spool.add("int", event(1))
    monkeypatch.setattr(os, "pwrite", pwrite)
    assert (spool.count, spool.bytes) == (1, size)
    await spool.add("int", event(2))
    async with running(spool, store):
        await eventually(lambda: spool.bytes == 0, "the file is empty")
    assert [each.id for _, each in store.accepted] == ["evt_0", "evt_2"]
    await spool.close()


async def test_a_file_of_others(tmp_path: Path) -> None:
    """A link is not followed, and what others can read or change is not used: both are refused."""
    folder = tmp_path / "spool"
    folder.mkdir()
    path, victim = folder / "webhooks-0.spool", tmp_path / "victim"
    victim.write_bytes(b"not a whole line")
    path.symlink_to(victim)
    spool = spool_in(tmp_path)
    with pytest.raises(SpoolFull, match="is a link, which is not followed"):
        await spool.add("int", event(0))
    assert victim.read_bytes() == b"not a whole line"
    path.unlink()
    path.touch(mode=0o600)
    path.chmod(0o644)
    with pytest.raises(SpoolFull, match="restrict it: chmod 600"):
        await spool.add("int", event(0))
    path.chmod(0o600)
    await spool.add("int", event(0))
    assert spool.count == 1
    await spool.close()


async def test_lines_that_cannot_be_read_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is damaged may have thousands of them."""
    folder = tmp_path / "spool"
    folder.mkdir()
    path = folder / "webhooks-0.spool"
    path.touch(mode=0o600)
    path.write_bytes(b"damaged\n" * 500)
    spool, store = spool_in(tmp_path), Store()
    spool._throttle = LogThrottle(3_600.0)
    async with running(spool, store):
        await eventually(lambda: spool.skipped == 500, "all are skipped")
    assert caplog.text.count("one cannot be read") == 1
    await spool.close()


async def test_another_process_has_the_file(tmp_path: Path) -> None:
    """Its events are accepted by this one once it has ended."""
    old, new, store = spool_in(tmp_path), spool_in(tmp_path), Store()
    other = spool_in(tmp_path, index=1)
    await old.add("int", event(0))
    async with running(new, store):
        with pytest.raises(SpoolFull, match="another process"):
            await new.add("int", event(1))
        await other.add("int", event(2))
        assert store.accepted == []
        await old.close()
        await eventually(lambda: len(store.accepted) == 1, "its event is accepted")
        await new.add("int", event(3))
        await eventually(lambda: len(store.accepted) == 2, "and those that follow")
    await new.close()
    await other.close()
