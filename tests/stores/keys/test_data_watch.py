"""Other data in the store, and keys that were lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hiredis import ReplyError

from gateway.domain.ports import StoreDown
from gateway.stores.keys.data_watch import READ_INDEX, READ_MARK, DataWatch
from gateway.stores.names import DATA_MARK


class Rig:
    """A watch, what it has sent, and how often it found other data and told of lost keys."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Callable[[object], None]]] = []
        self.replaced = self.told = 0
        self.watch = DataWatch(lambda *sent: self.sent.append(sent), self._replace, "cache")
        self.watch.on_lost.append(self._tell)

    def _replace(self) -> None:
        self.replaced += 1

    def _tell(self) -> None:
        self.told += 1

    def beat(self, mark: object, index: object = b"zset") -> list[bytes]:
        """One heartbeat with these replies; returns what was sent for them."""
        self.sent.clear()
        self.watch.beat()
        asked, self.sent = self.sent, []
        for encoded, done in asked:
            done({READ_MARK: mark, READ_INDEX: index}[encoded])
        return [encoded for encoded, _ in self.sent]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_same_data(rig: Rig) -> None:
    """A mark that stays the same, or cannot be read for a time, changes nothing."""
    for reply in (b"one", b"one", StoreDown("late"), ReplyError("LOADING"), b"one", None, b"one"):
        assert rig.beat(reply) == []
    assert rig.replaced == 0


def test_other_data(rig: Rig) -> None:
    """Another mark, or none, is other data."""
    for number, mark in enumerate((b"one", b"two", b"", b"two", b"one")):
        rig.beat(mark)
        assert rig.replaced == number


def test_a_mark_is_written(rig: Rig) -> None:
    """Data without a mark get one, which does not replace that of another worker."""
    first, second = rig.beat(b""), rig.beat(b"")
    for written, read in (first, second):
        assert DATA_MARK.encode() in written
        assert written.endswith(b"$2\r\nNX\r\n")
        assert read == READ_MARK
    assert first != second
    # The last reply is the mark that was written, by this worker or by another one.
    rig.sent[-1][1](b"one")
    rig.beat(b"one")
    assert rig.replaced == 0
    rig.beat(b"two")
    assert rig.replaced == 1


def test_keys_that_were_lost(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """An index that was there and is missing is told once, until it is there again."""
    caplog.set_level("INFO")
    rig.beat(b"one")
    assert (rig.watch.lost, rig.watch.detail) == (False, "")
    for _ in range(2):
        rig.beat(b"one", b"none")
    assert rig.watch.lost
    assert rig.watch.detail.startswith("has lost its keys")
    assert rig.told == 1
    for reply in (StoreDown("late"), ReplyError("NOPERM"), b"string"):
        rig.beat(b"one", reply)
    assert rig.watch.lost
    rig.beat(b"one")
    assert (rig.watch.lost, rig.told) == (False, 2)
    lost, restored = caplog.records
    assert lost.levelname == "ERROR"
    assert "store has lost its keys: cache" in lost.message
    assert restored.message == "store has keys again: cache"


def test_a_store_without_keys(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A store that has no keys yet has lost none."""
    rig.beat(b"one", b"none")
    assert not rig.watch.lost
    assert not caplog.records
