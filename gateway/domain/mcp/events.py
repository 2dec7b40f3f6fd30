"""Follows an event stream: where a comment may be inserted, and what answers in it say.

https://html.spec.whatwg.org/multipage/server-sent-events.html: lines end with CR LF, LF or CR, and
an event with an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

MEDIA_TYPE: Final = b"text/event-stream"
#: An event without data, which clients ignore.
COMMENT: Final = b": keep-alive\n\n"

_EMPTY_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
#: The last bytes of an empty line, but for a LF that may follow the CR.
_TAILS: Final = (b"\n\n", b"\n\r", b"\r\r")
#: How servers usually end an event: nothing that follows can belong to it.
_USUAL_ENDS: Final = (b"\n\n", b"\r\n\r\n")
_LINE_END = re.compile(rb"\r\n|\n|\r")
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

    edit: returns the new data of an event; most: the longest event that is edited. After a longer
    one, of which `too_long` is told, the rest of the stream is passed on unchanged; mark: what
    events that are edited have in them: others, which may be many, are passed on as they are
    """

    __slots__ = ("_edit", "_kept", "_mark", "_most", "_too_long", "is_edited")

    def __init__(
        self,
        edit: Callable[[bytes], bytes],
        most: int,
        too_long: Callable[[], None],
        mark: bytes = b"",
    ) -> None:
        super().__init__()
        self._edit = edit
        self._mark = mark
        self._most = most
        self._too_long = too_long
        self._kept = bytearray()
        self.is_edited = True

    @property
    def kept(self) -> int:
        return len(self._kept)

    def feed(self, data: bytes) -> bytes:
        if not self.is_edited:
            return super().feed(data)
        if not self._kept and self._mark not in data and data.endswith(_USUAL_ENDS):
            # Whole events, as servers write them: a third of the time.
            return super().feed(data)
        # Only new bytes can complete an event: no byte is searched twice.
        at = max(len(self._kept) - 3, 0)
        self._kept += data
        done = []
        begin = 0
        if self._mark not in self._kept and (end := _last_end(self._kept, at)):
            # None is edited, and there may be thousands.
            done.append(bytes(self._kept[:end]))
            begin = at = end
        while (found := _EMPTY_LINE.search(self._kept, at)) is not None:
            at = found.end()
            if at == len(self._kept) and self._kept.endswith(b"\r"):
                break  # a LF may follow, which belongs to this end
            done.append(self._edited(bytes(self._kept[begin:at])))
            begin = at
        del self._kept[:begin]
        if len(self._kept) > self._most:
            self.is_edited = False
            self._too_long()
            done.append(self.end())
        return super().feed(b"".join(done))

    def end(self) -> bytes:
        rest = bytes(self._kept)
        self._kept.clear()
        # If lines end with CR, the last event was waiting for a LF.
        return self._edited(rest) if self.is_edited else rest

    def _edited(self, event: bytes) -> bytes:
        if self._mark not in event:
            return event
        lines = _LINE_END.split(event.removeprefix(_BOM))
        values = [_value(line) for line in lines]
        data = b"\n".join([value for value in values if value is not None])
        edited = self._edit(data) if data else data
        if edited == data:
            return event
        others = [line for line, value in zip(lines, values, strict=True) if value is None and line]
        return b"%b\n\n" % b"\n".join(others + [b"data: " + line for line in edited.split(b"\n")])


def _last_end(data: bytearray, at: int) -> int:
    """Where the last whole event ends, if that is after this place; 0: nowhere.

    One that a LF may follow, which belongs to its end, is not whole yet.
    """
    last = max(data.rfind(end, at, -1 if data.endswith(b"\r") else None) for end in _TAILS)
    found = None if last < 0 else _EMPTY_LINE.match(data, last)
    return 0 if found is None else found.end()


def _value(line: bytes) -> bytes | None:
    """The value of a line of data; None: it is another line."""
    name, _, value = line.partition(b":")
    return value.removeprefix(b" ") if name == b"data" else None
