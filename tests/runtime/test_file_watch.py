"""Changed files are read once they no longer change, and only once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.runtime.file_watch import FileWatch, Signature, is_whole, signature
from tests.kit.eventually import eventually


class Scripted:
    """Replaces the files: each check gets the next state of a script; the last one repeats."""

    def __init__(self, looks: list[str], known: str | None = None, in_place: int = 2) -> None:
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
            in_place=in_place,
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
        """A file that was written in place; in capitals, one that was renamed to its place."""
        return ((text, 1, 1, 2, 1) if text.isupper() else ("file", 1, hash(text), hash(text), 1),)


@pytest.mark.parametrize(
    ("looks", "readings", "taken"),
    [
        # two equal checks before a reading, one check after it
        (["a", "a", "a"], ["a"], ["a"]),
        # being written: not read before it is complete
        (["a", "b", "c", "d", "d", "d"], ["d"], ["d"]),
        # changed while it was read: that reading is dropped, the next one counts
        (["a", "a", "b", "b", "b"], ["a", "b"], ["b"]),
        # read once, and never again while nothing changes
        (["a", "a", "a", "a", "a", "a"], ["a"], ["a"]),
        # changed and changed back: what was read is still current
        (["a", "a", "a", "b", "a", "a"], ["a"], ["a"]),
        # unchanged from the known state
        (["known", "known", "known"], [], []),
    ],
)
async def test_files_are_read_once_unchanged(
    looks: list[str], readings: list[str], taken: list[str]
) -> None:
    """The files are read when two successive checks found the same, and once."""
    script = Scripted(list(looks), "known")
    await script.play()
    assert script.readings == readings
    assert script.taken == [(text, False) for text in taken]


@pytest.mark.parametrize(
    ("looks", "taken"),
    [
        ("aaa", []),
        ("aaaa", ["a"]),
        # the writer pauses, and goes on
        ("aaabbbb", ["b"]),
        # a file that was renamed into place is complete
        ("AA", ["A"]),
        ("aaAA", ["A"]),
        ("AAAbbb", ["A"]),
        ("AAAbbbb", ["A", "b"]),
    ],
)
async def test_files_that_are_written_in_place(looks: str, taken: list[str]) -> None:
    """Files that are not renamed into place are read after so many equal checks as they ask for."""
    script = Scripted(list(looks), "known", in_place=4)
    await script.play()
    assert script.taken == [(text, False) for text in taken]


async def test_files_that_are_read_later() -> None:
    """What was read may be read again after more equal checks, which begin anew at a change."""
    script = Scripted(list("aa"), "known")
    await script.play()
    script.watch.read_later(5)
    script.looks.extend("aa")
    await script.play()
    assert (script.taken, script.watch.checks) == ([("a", False)], 4)
    script.looks.append("a")
    await script.play()
    assert script.taken == [("a", False)] * 2
    script.watch.read_later(10)
    script.looks.extend("bb")
    await script.play()
    assert script.taken[2:] == [("b", False)]


async def test_unknown_files_are_read(tmp_path: Path) -> None:
    """Without known files, they are read as soon as they no longer change."""
    script = Scripted(["a", "a", "a"])
    await script.play()
    assert script.taken == [("a", False)]


async def test_a_requested_reading_happens_at_once() -> None:
    """Without a second check, and even if nothing changed."""
    script = Scripted(["known", "known"], "known")
    script.watch.read_now()
    await script.play()
    assert script.taken == [("known", True)]


async def test_a_requested_reading_waits_for_files_that_change() -> None:
    """A mixture of old and new files is never the result."""
    script = Scripted(["a", "b", "b", "c", "c", "c"], "known")
    script.watch.read_now()
    await script.play()
    assert script.readings == ["a", "b", "c"]
    assert script.taken == [("c", True)]


async def test_unusable_files_are_read_again() -> None:
    """Files that could not be used are read once more."""
    script = Scripted(["a", "a", "a", "a", "a", "a"], "known")
    await script.watch.look()
    await script.watch.look()
    script.watch.read_again()
    await script.play()
    assert script.taken == [("a", False)] * 2


async def test_a_request_ends_the_interval() -> None:
    """The next check is an hour later, but happens now."""
    script = Scripted(["a", "a"], "a")
    task = asyncio.create_task(script.watch.run())
    script.watch.read_now()
    await eventually(lambda: script.taken == [("a", True)], "it is read")
    task.cancel()
    await asyncio.wait([task])


def test_a_signature_tells_files_apart(tmp_path: Path) -> None:
    """By size, inode, and a link's target; a missing file is None."""
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


def test_files_that_were_renamed_into_place(tmp_path: Path) -> None:
    """A file that is renamed after it was written is complete; one that is written in place, is
    empty or absent may not be.
    """
    file, draft = tmp_path / "file", tmp_path / "draft"
    file.write_text("one")
    known = signature([file])
    assert not is_whole(known, known)
    file.write_text("another")
    assert not is_whole(known, signature([file]))

    def renamed(text: str) -> bool:
        draft.write_text(text)
        written_ns = draft.stat().st_ctime_ns
        draft.rename(file)
        # The clock of the file system may not have moved on since it was written.
        while file.stat().st_ctime_ns == written_ns:
            file.chmod(0o600)
        return is_whole(known, signature([file]))

    assert renamed("two")
    assert not renamed("")
    assert not is_whole(known, (*signature([file]), *signature([tmp_path / "none"])))
    assert not is_whole(known, ())
