"""Bodies: readers that take bytes and return payload, for requests and responses.

Each has `feed(data) -> (payload, rest)`: the body's bytes, and the bytes after its end. `done` is
set when the end was read, `fault` when the body is malformed.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, Protocol

#: A chunk's size line with its extensions; far longer than real clients send (RFC 9112, 7.1.1: a
#: recipient "ought to limit the total length of chunk extensions").
MOST_CHUNK_LINE_BYTES: Final = 256
#: After this many chunks in one read, other connections are served first: these may have taken as
#: long as a hundred requests.
MANY_CHUNKS: Final = 512
#: All trailer lines together. They are dropped, so this only bounds the work.
MOST_TRAILER_BYTES: Final = 8 * 1024

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_PLAIN = rb"[\t\x20!#-\[\]-\x7e\x80-\xff]*+"
_QUOTED = rb'"%b(?:\\[\t\x20-\x7e\x80-\xff]%b)*"' % (_PLAIN, _PLAIN)
#: RFC 9112, 7.1: chunk-size [ chunk-ext ]; 16 digits would already overflow 64 bits. 7.1.1:
#: chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] ), the value being a
#: token or a quoted-string. There is one way to match each part, so that it takes linear time.
_SIZE_LINE = re.compile(
    rb"([0-9A-Fa-f]{1,15})"
    rb"(?:[ \t]*+;[ \t]*+%b(?:[ \t]*+=[ \t]*+(?:%b|%b))?)*" % (_TOKEN, _TOKEN, _QUOTED)
).fullmatch
#: Chunks of up to 15 bytes, whole and without extensions, and their data. Read one by one, a body
#: of them costs hundreds of times an unchunked one of its size; matched together, a quarter of it.
_TINY_DATA = b"|".join(
    rb"(?<=[%b%b]\r\n)[\x00-\xff]{%d}" % (b"%x" % size, b"%X" % size, size) for size in range(1, 16)
)
_TINY_CHUNKS = re.compile(rb"(?:0{0,14}[1-9a-fA-F]\r\n(?:%b)\r\n)+" % _TINY_DATA).match
_TINY_PAYLOADS = re.compile(rb"0{0,14}[1-9a-fA-F]\r\n(%b)\r\n" % _TINY_DATA).findall
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*").fullmatch


class BodyReader(Protocol):
    """Reads a body. wanted: at least this many of its bytes are still to come."""

    done: bool
    fault: str | None

    @property
    def wanted(self) -> int: ...

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Return (payload, the bytes after the end)."""
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


class _Part(Enum):
    """What the next byte of a chunked body belongs to."""

    SIZE = 0
    DATA = 1
    DATA_END = 2
    TRAILER = 3


class ChunkedReader:
    """A chunked body (RFC 9112, 7.1). Extensions and trailers are read and dropped.

    chunks: pieces of payload in the last `feed`
    """

    __slots__ = ("_held", "_left", "_part", "_trailer_bytes", "chunks", "done", "fault")

    def __init__(self) -> None:
        self.done = False
        self.fault: str | None = None
        self.chunks = 0
        self._part = _Part.SIZE
        #: Bytes of a line, or of a CRLF, that is not complete yet.
        self._held = b""
        #: Remaining bytes of the current chunk.
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
            if self._part is _Part.SIZE:
                at = self._chunks(data, at, pieces)
            elif self._part is _Part.DATA:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._part = _Part.DATA_END
            elif self._part is _Part.DATA_END:
                # RFC 9112, 7.1: chunk-data is followed by CRLF and nothing else.
                if not b"\r\n".startswith(data[at : at + 2]):
                    self.fault = "chunk data is not followed by CRLF"
                elif len(data) - at < 2:
                    self._held = data[at:]
                    at = len(data)
                else:
                    at += 2
                    self._part = _Part.SIZE
            else:
                at = self._trailer(data, at)
        self.chunks = len(pieces)
        payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return payload, data[at:] if self.done else b""

    def _chunks(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        """Read complete chunks, and the size of an incomplete one; return the index after them."""
        while True:
            tiny = _TINY_CHUNKS(data, at)
            if tiny is not None:
                pieces += _TINY_PAYLOADS(data, at, tiny.end())
                at = tiny.end()
            line_end = self._line_end(data, at, MOST_CHUNK_LINE_BYTES)
            if line_end < 0:
                return len(data)
            match = _SIZE_LINE(data, at, line_end)
            if match is None:
                self.fault = "a chunk's size line is malformed"
                return line_end
            size = int(match[1], 16)
            at = line_end + 2
            end = at + size
            if not size:
                self._part = _Part.TRAILER
                return at
            if data[end : end + 2] != b"\r\n":
                self._left, self._part = size, _Part.DATA
                return at
            pieces.append(data[at:end])
            at = end + 2

    def _trailer(self, data: bytes, at: int) -> int:
        """Read a trailer line; return the index after it."""
        end = self._line_end(data, at, MOST_TRAILER_BYTES)
        if end < 0:
            return len(data)
        if end == at:
            self.done = True
        else:
            self._trailer_bytes += end + 2 - at
            if self._trailer_bytes > MOST_TRAILER_BYTES:
                self.fault = f"the trailers are longer than {MOST_TRAILER_BYTES} bytes"
            elif not _TRAILER(data, at, end):
                self.fault = "a trailer line is malformed"
        return end + 2

    def _line_end(self, data: bytes, at: int, most: int) -> int:
        """The end of the line that begins at `at`; -1: it is incomplete or malformed."""
        end = data.find(b"\r\n", at, at + most + 2)
        if end < 0:
            if len(data) - at > most + 1:
                self.fault = f"a line of the chunked body is longer than {most} bytes"
            elif b"\n" in data[at:]:
                self.fault = "a line of the chunked body ends in a bare LF"
            else:
                self._held = data[at:]
        return end


def chunk(payload: bytes) -> bytes:
    """Encode a chunk. The payload must not be empty: an empty chunk ends the body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


LAST_CHUNK: Final = b"0\r\n\r\n"
