"""Where a body ends: readers that are fed bytes and give payload, for requests and responses.

Each has `feed(data) -> (payload, rest)`: what of it is body, and what lies beyond the body's end.
`done` says that the end was seen, `fault` that it can never be seen.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

#: A chunk's size line with its extensions; nobody honest comes near (RFC 9112, 7.1.1: a recipient
#: "ought to limit the total length of chunk extensions").
MOST_CHUNK_LINE_BYTES: Final = 256
#: All trailer lines together. They are dropped, so this only bounds the work.
MOST_TRAILER_BYTES: Final = 8 * 1024

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED = rb'"(?:[\t\x20!#-\[\]-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*+"'
#: RFC 9112, 7.1: chunk-size [ chunk-ext ]; 16 digits would already overflow 64 bits. 7.1.1:
#: chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] ), the value being a
#: token or a quoted-string. Possessive throughout, so that it takes linear time.
_SIZE_LINE = re.compile(
    rb"([0-9A-Fa-f]{1,15})"
    rb"(?:[ \t]*+;[ \t]*+%b(?:[ \t]*+=[ \t]*+(?:%b|%b))?+)*+" % (_TOKEN, _TOKEN, _QUOTED)
).fullmatch
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*").fullmatch


class BodyReader(Protocol):
    """What the proxy needs of a body. wanted: so many bytes at least are still a part of it."""

    done: bool
    fault: str | None

    @property
    def wanted(self) -> int: ...

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Give (payload, what lies beyond the end)."""
        ...

    def end(self) -> None:
        """The peer sends no more."""
        ...


class LengthReader:
    """A body of a stated length in bytes."""

    __slots__ = ("done", "fault", "left")

    def __init__(self, length: int) -> None:
        self.left = length
        self.done = length == 0
        self.fault: str | None = None

    @property
    def wanted(self) -> int:
        return self.left

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        if len(data) <= self.left:
            self.left -= len(data)
            self.done = self.left == 0
            return data, b""
        payload, rest = data[: self.left], data[self.left :]
        self.left = 0
        self.done = True
        return payload, rest

    def end(self) -> None:
        if not self.done:
            self.fault = f"the body ended {self.left} bytes early"


class CloseReader:
    """A response body that ends with its connection."""

    __slots__ = ("done", "fault")

    def __init__(self) -> None:
        self.done = False
        self.fault: str | None = None

    @property
    def wanted(self) -> int:
        return 0  # any byte may be the last

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        return data, b""

    def end(self) -> None:
        self.done = True


class ChunkedReader:
    """A chunked body (RFC 9112, 7.1). Extensions and trailers are read and dropped."""

    __slots__ = ("_held", "_left", "_state", "_trailer_bytes", "done", "fault")

    def __init__(self) -> None:
        self.done = False
        self.fault: str | None = None
        self._state = "size"
        #: Bytes of a line, or of a CRLF, that is not whole yet.
        self._held = b""
        #: Bytes of the current chunk that are still to come.
        self._left = 0
        self._trailer_bytes = 0

    @property
    def wanted(self) -> int:
        return self._left

    def end(self) -> None:
        if not self.done and self.fault is None:
            self.fault = "the chunked body ended early"

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        if self._held:
            data = self._held + data
            self._held = b""
        pieces: list[bytes] = []
        at = 0
        while at < len(data) and not self.done and self.fault is None:
            if self._state == "data":
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._state = "data-end"
            elif self._state == "data-end":
                # RFC 9112, 7.1: chunk-data is followed by CRLF and nothing else.
                if not b"\r\n".startswith(data[at : at + 2]):
                    self.fault = "chunk data is not followed by CRLF"
                elif len(data) - at < 2:
                    self._held = data[at:]
                    at = len(data)
                else:
                    at += 2
                    self._state = "size"
            else:
                at = self._line(data, at)
        payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return payload, data[at:] if self.done else b""

    def _line(self, data: bytes, at: int) -> int:
        """Read a size or trailer line; give the place after it."""
        most = MOST_CHUNK_LINE_BYTES if self._state == "size" else MOST_TRAILER_BYTES
        end = data.find(b"\r\n", at, at + most + 2)
        if end < 0:
            if len(data) - at > most + 1:
                self.fault = f"a line of the chunked body is longer than {most} bytes"
            elif b"\n" in data[at:]:
                self.fault = "a line of the chunked body ends in a bare LF"
            else:
                self._held = data[at:]
            return len(data)
        if self._state == "size":
            match = _SIZE_LINE(data, at, end)
            if match is None:
                self.fault = "a chunk's size line is malformed"
            else:
                self._left = int(match[1], 16)
                self._state = "data" if self._left else "trailer"
        elif end == at:
            self.done = True
        else:
            self._trailer_bytes += end + 2 - at
            if self._trailer_bytes > MOST_TRAILER_BYTES:
                self.fault = f"the trailers are longer than {MOST_TRAILER_BYTES} bytes"
            elif not _TRAILER(data, at, end):
                self.fault = "a trailer line is malformed"
        return end + 2


def chunk(payload: bytes) -> bytes:
    """One chunk of this payload, which is not empty: an empty one would end the body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


LAST_CHUNK: Final = b"0\r\n\r\n"
