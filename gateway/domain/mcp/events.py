"""Follows an event stream: where a comment may be inserted, and what answers in it say.

https://html.spec.whatwg.org/multipage/server-sent-events.html: lines end with CR LF, LF or CR, and
an event with an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

MEDIA_TYPE: Final = "text/event-stream"
#: An event without data, which clients ignore.
COMMENT: Final = b": keep-alive\n\n"

EMPTY_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
#: The last bytes of an empty line, but for a LF that may follow the CR.
_TAILS: Final = (b"\n\n", b"\n\r", b"\r\r")
#: How servers usually end an event: nothing that follows can belong to it.
_USUAL_ENDS: Final = (b"\n\n", b"\r\n\r\n")
#: In the form of `_split`: lines in a row that are no data, and those that are.
_others = re.compile(rb"\n[^\r]*+")
_data = re.compile(rb"\r[^\n]*+")
#: An event with more lines of data among as many other lines is not edited: no server writes one,
#: and each change from one to the other takes as long as passing on 100 bytes.
_MOST_LINES: Final = 4 * 1024
#: Events that are edited in a row, and the bytes for which there is one more: a list has kilobytes.
#: Editing takes as long as passing on a hundred times as many bytes of small events.
MOST_IN_A_ROW: Final = 256
BYTES_FOR_ONE: Final = 4 * 1024
#: It may stand before a stream, and is no part of its first line.
_BOM: Final = b"\xef\xbb\xbf"


class Stream:
    """A stream as it is passed on unchanged.

    between: what was passed on ends with a whole event, or is empty
    """

    __slots__ = ("_end", "between")

    def __init__(self) -> None:
        self._end = b""
        self.between = True

    @property
    def kept(self) -> int:
        """Bytes of an event that is not complete."""
        return 0

    def feed(self, data: bytes) -> bytes:
        """The next bytes; returns what is passed on now."""
        if data:
            end = self._end = (self._end + data[-4:])[-4:]
            end = end.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            self.between = end.endswith(b"\n\n")
        return data

    def end(self) -> bytes:
        """The stream has ended; returns what is left."""
        return b""


class EditedStream(Stream):
    """A stream whose events are edited, one whole event after the other.

    edit: returns the new data of an event, or None if it cannot be edited; most: the longest event
    that is edited: after a longer one, the rest of the stream is passed on unchanged; mark: what
    events that are edited have in them: others, which may be many, are passed on as they are;
    missed: called once if an event was passed on that should have been edited
    """

    __slots__ = (
        *("_edit", "_is_marked", "_kept", "_left", "_mark", "_missed", "_most", "is_edited"),
    )

    def __init__(
        self,
        edit: Callable[[bytes], bytes | None],
        most: int,
        missed: Callable[[], None],
        mark: bytes = b"",
    ) -> None:
        super().__init__()
        self._edit = edit
        self._mark = mark
        self._most = most
        self._missed: Callable[[], None] | None = missed
        self._kept = bytearray()
        #: The mark is in what is kept.
        self._is_marked = False
        #: How many events may be edited now.
        self._left = float(MOST_IN_A_ROW)
        self.is_edited = True

    @property
    def kept(self) -> int:
        return len(self._kept)

    def feed(self, data: bytes) -> bytes:
        if not self.is_edited:
            return super().feed(data)
        if self._left < MOST_IN_A_ROW:
            self._left = min(self._left + len(data) / BYTES_FOR_ONE, MOST_IN_A_ROW)
        if not self._kept and self._mark not in data and data.endswith(_USUAL_ENDS):
            # Whole events, as servers write them: a third of the time.
            return super().feed(data)
        # Only new bytes can complete an event, or a mark: no byte is searched twice.
        at = max(len(self._kept) - 3, 0)
        self._find_mark(data)
        done = []
        begin = 0
        while self._is_marked and self._left >= 1:
            found = EMPTY_LINE.search(self._kept, at)
            if found is None or (found.end() == len(self._kept) and self._kept.endswith(b"\r")):
                break  # a LF may follow, which belongs to this end
            at = found.end()
            done.append(self._edited(bytes(self._kept[begin:at])))
            begin = at
        if end := last_end(self._kept, at):
            # None of these events is edited, and there may be thousands.
            done.append(rest := bytes(self._kept[begin:end]))
            begin = end
            if self._is_marked and self._mark in rest:
                self._miss()
        if begin:
            del self._kept[:begin]
            self._is_marked = self._mark in self._kept
        if len(self._kept) > self._most:
            self.is_edited = False
            self._miss()
            done.append(self.end())
        return super().feed(b"".join(done))

    def _find_mark(self, data: bytes) -> None:
        """Keep these bytes, and search them for the mark."""
        begin = max(len(self._kept) - len(self._mark) + 1, 0)
        self._kept += data
        if not self._is_marked:
            self._is_marked = self._kept.find(self._mark, begin) >= 0

    def _miss(self) -> None:
        missed, self._missed = self._missed, None
        if missed is not None:
            missed()

    def end(self) -> bytes:
        rest = bytes(self._kept)
        self._kept.clear()
        # If lines end with CR, the last event was waiting for a LF.
        return self._edited(rest) if self.is_edited else rest

    def _edited(self, event: bytes) -> bytes:
        if self._mark not in event:
            return event
        self._left -= 1
        parts = _split(event.removeprefix(_BOM))
        if parts is None:
            self._miss()
            return event
        others, data = parts
        if not data:
            return event
        edited = self._edit(data)
        if edited is None:
            self._miss()
        if edited is None or edited == data:
            return event
        return b"%bdata: %b\n\n" % (others, edited.replace(b"\n", b"\ndata: "))


def last_end(data: bytes | bytearray, at: int) -> int:
    """Where the last whole event ends, if that is after this place; 0: nowhere.

    One that a LF may follow, which belongs to its end, is not whole yet.
    """
    last = max(data.rfind(end, at, -1 if data.endswith(b"\r") else None) for end in _TAILS)
    found = None if last < 0 else EMPTY_LINE.match(data, last)
    return 0 if found is None else found.end()


def _split(event: bytes) -> tuple[bytes, bytes] | None:
    """The other lines of an event, each with a LF, and its data; None: there are too many of both.

    An event may have 200,000 lines: an object for each of them takes 50 ms. So no line is looked at
    by itself. Here each line begins with a LF or, in place of the name, with a CR if it is data.
    """
    lines = b"\n%b\n" % event.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = lines.replace(b"\ndata: ", b"\r").replace(b"\ndata:", b"\r")
    # A line may be the name alone. Two in a row share a LF, so that the second is found later.
    lines = lines.replace(b"\ndata\n", b"\r\n").replace(b"\ndata\n", b"\r\n")
    lines = lines.replace(b"\ndata\r", b"\r\r")
    if min(lines.count(b"\n"), lines.count(b"\r")) > _MOST_LINES:
        return None
    others = _data.sub(b"", lines).strip(b"\n")
    return others and others + b"\n", _others.sub(b"", lines)[1:].replace(b"\r", b"\n")
