"""Files that change are read when they rest, and once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.runtime.file_watch import FileWatch, Signature, signature
from tests.kit.eventually import eventually


class Scripted:
    """Stands for the files: each look finds the next of a script, and the last for ever."""

    def __init__(self, looks: list[str], known: str | None = None) -> None:
        self.looks = looks
        self.now = ""
        self.readings: list[str] = []
        self.taken: list[tuple[str, bool]] = []
        self.watch = FileWatch(
            self._look,
            self._read,
            lambda found, asked: self.taken.append((found, asked)),
            interval_s=3600,
            known=None if known is None else self._signature(known),
        )

    async def play(self) -> None:
        while self.looks:
            await self.watch.look()

    def _look(self) -> Signature:
        self.now = self.looks.pop(0) if self.looks else self.now
        return self._signature(self.now)

    def _read(self) -> str:
        self.readings.append(self.now)
        return self.now

    @staticmethod
    def _signature(text: str) -> Signature:
        return ((text, 0, 0, 0),)


@pytest.mark.parametrize(
    ("looks", "readings", "taken"),
    [
        # two looks alike before a reading, one look after it
        (["a", "a", "a"], ["a"], ["a"]),
        # being written: not read before it rests
        (["a", "b", "c", "d", "d", "d"], ["d"], ["d"]),
        # changed while it was read: that reading does not count, the next does
        (["a", "a", "b", "b", "b"], ["a", "b"], ["b"]),
        # read once, and never again while nothing changes
        (["a", "a", "a", "a", "a", "a"], ["a"], ["a"]),
        # there and back: what was read is still what there is
        (["a", "a", "a", "b", "a", "a"], ["a"], ["a"]),
        # as it was known before
        (["known", "known", "known"], [], []),
    ],
)
async def test_what_is_being_written_is_waited_out(
    looks: list[str], readings: list[str], taken: list[str]
) -> None:
    """The files are read when two looks in a row found the same, and once."""
    script = Scripted(list(looks), "known")
    await script.play()
    assert script.readings == readings
    assert script.taken == [(text, False) for text in taken]


async def test_what_is_not_known_is_read(tmp_path: Path) -> None:
    """Whoever has not read them yet has them read as soon as they rest."""
    script = Scripted(["a", "a", "a"])
    await script.play()
    assert script.taken == [("a", False)]


async def test_who_asks_is_answered_at_once() -> None:
    """Without waiting for a second look, and though nothing changed."""
    script = Scripted(["known", "known"], "known")
    script.watch.read_now()
    await script.play()
    assert script.taken == [("known", True)]


async def test_who_asks_while_files_change_is_answered_when_they_rest() -> None:
    """Half of the old and half of the new is nobody's answer."""
    script = Scripted(["a", "b", "b", "c", "c", "c"], "known")
    script.watch.read_now()
    await script.play()
    assert script.readings == ["a", "b", "c"]
    assert script.taken == [("c", True)]


async def test_what_was_of_no_use_is_read_again() -> None:
    """Whoever could not use what was read gets it once more."""
    script = Scripted(["a", "a", "a", "a", "a", "a"], "known")
    await script.watch.look()
    await script.watch.look()
    script.watch.read_again()
    await script.play()
    assert script.taken == [("a", False)] * 2


async def test_a_question_ends_the_interval() -> None:
    """The next look is an hour away, and happens now."""
    script = Scripted(["a", "a"], "a")
    task = asyncio.create_task(script.watch.run())
    script.watch.read_now()
    await eventually(lambda: script.taken == [("a", True)], "it is read")
    task.cancel()
    await asyncio.wait([task])


def test_a_signature_tells_files_apart(tmp_path: Path) -> None:
    """By content's size, inode, and where a link leads; one that is not there is None."""
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("one")
    before = signature([file])
    file.write_text("longer")
    assert signature([file]) != before
    other.write_text("longer")
    link = tmp_path / "link"
    link.symlink_to(file)
    first = signature([link])
    link.unlink()
    link.symlink_to(other)
    assert signature([link]) != first
    assert signature([tmp_path / "none", link]) == (None, *signature([link]))
