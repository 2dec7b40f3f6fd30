"""Bounds on the length of the store's replies, checked before memory is allocated for them.

A reply announces the lengths of its arrays and strings, and the parser (hiredis) trusts them: an
array of 2,147,483,647 elements, announced in 13 bytes, allocates 16 GB at once. So the bytes are
scanned here first, from header to header. A string's content is skipped by its length.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from redis._parsers import _AsyncHiredisParser
from redis.exceptions import InvalidResponse

#: The longest line: an integer, an error, the length of a string. Redis' own errors have some
#: hundred bytes.
MOST_LINE_BYTES: Final = 8 * 1024
#: The longest reply to any command: a journal has 8 MiB at most, a page of records 4.
MOST_REPLY_BYTES: Final = 16 * 1024 * 1024
#: The most elements of all arrays of a reply together, for which the parser allocates 8 MB. The
#: longest array is the index of all keys.
MOST_ELEMENTS: Final = 1024 * 1024

_STRING: Final = ord("$")
#: Strings up to this size are recognized as a whole: a batch of decisions has 4 KB.
_MOST_WHOLE_BYTES: Final = 8 * 1024
_LINES: Final = frozenset(b"+-:,_#(")
_LISTS: Final = frozenset(b"*~>%")
_MAP: Final = ord("%")
#: A null, the shortest element of an array, has three bytes.
_ELEMENT_BYTES: Final = 3
#: The digits of the longest number of 64 bits, and its sign.
_MOST_DIGITS: Final = 20


class ReplyBounds:
    """Scans the replies of one connection.

    most_bytes: of one reply, what it announces included
    """

    __slots__ = ("_ahead", "_begin", "_line", "_most_bytes", "_open")

    def __init__(self, most_bytes: int = MOST_REPLY_BYTES) -> None:
        self._most_bytes = most_bytes
        # Relative to the first byte of the next data: the next header, and the start of its reply.
        self._ahead = 0
        self._begin = 0
        #: How many elements are missing until the reply is complete.
        self._open = 1
        #: The bytes of an incomplete header.
        self._line = b""

    def check(self, data: bytes) -> None:
        """Scan received data.

        Raises InvalidResponse where a reply is too long or announces too much, and ValueError where
        a header has no length.
        """
        if not (self._begin or self._line) and data.startswith(_head_of_string(len(data))):
            return  # one string and nothing else: this check takes a third of the time
        at = self._ahead
        if self._line:
            data = self._line + data
            self._line = b""
        size, begin, to_come, find = len(data), self._begin, self._open, data.find
        while at < size:
            end = find(b"\r\n", at)
            if end < 0 or end - at > _MOST_DIGITS:
                end = self._find_end(data, at, end)
                if end < 0:
                    size = at
                    break
            kind = data[at]
            if kind == _STRING:
                length = int(data[at + 1 : end])
                at = end + length + 4 if length >= 0 else end + 2
                to_come -= 1
            elif kind in _LINES:
                at = end + 2
                to_come -= 1
            else:
                to_come += _elements(kind, data[at + 1 : end]) - 1
                at = end + 2
            if at - begin + to_come * _ELEMENT_BYTES > self._most_bytes or to_come > MOST_ELEMENTS:
                raise InvalidResponse(f"a reply of more than {self._most_bytes} bytes")
            if not to_come:
                begin, to_come = at, 1
        self._ahead, self._begin, self._open = at - size, begin - size, to_come

    def _find_end(self, data: bytes, at: int, end: int) -> int:
        """The end of a line that is longer than usual; -1: it is not complete."""
        if (len(data) if end < 0 else end) - at > MOST_LINE_BYTES:
            raise InvalidResponse(f"a line of more than {MOST_LINE_BYTES} bytes")
        if end < 0:
            self._line = data[at:]
        elif data[at] not in _LINES:
            raise InvalidResponse("a length of more than 64 bits")
        return end


class BoundedParser(_AsyncHiredisParser):
    """The parser of redis-py's connections, within these bounds."""

    def on_connect(self, connection: Any) -> None:
        """Start with a new connection."""
        super().on_connect(connection)  # type: ignore[no-untyped-call]
        self._reader: Any = _BoundedReader(self._reader)


class _BoundedReader:
    """The part of a hiredis.Reader that redis-py uses."""

    def __init__(self, reader: Any) -> None:
        self.gets = reader.gets
        self.has_data = reader.has_data
        self._feed = reader.feed
        self._bounds = ReplyBounds()

    def feed(self, data: bytes) -> None:
        """Parse received data. Raises InvalidResponse."""
        try:
            self._bounds.check(data)
        except ValueError as error:
            raise InvalidResponse("a header without a length") from error
        self._feed(data)


@lru_cache(maxsize=1024)
def _head_of_string(size: int) -> bytes:
    """The header of a string of `size` bytes in all, header and end included.

    A text that no reply begins with, for sizes that no string has and for large ones, which are
    rare.
    """
    if size <= _MOST_WHOLE_BYTES:
        for digits in range(1, len(str(_MOST_WHOLE_BYTES)) + 1):
            length = size - digits - 5
            if length >= 0 and len(str(length)) == digits:
                return b"$%d\r\n" % length
    return b"none"


def _elements(kind: int, length: bytes) -> int:
    """How many elements a header announces."""
    if kind not in _LISTS:
        # Unknown to the parser, or an attribute, which the parser returns as a separate reply.
        raise InvalidResponse(f"a reply of the type {chr(kind)!r}")
    return max(int(length), 0) * (2 if kind == _MAP else 1)
