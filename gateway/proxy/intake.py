"""Heads off one client connection's bytes: found, bounded, parsed, and the last one remembered.

What a head comes to does not depend on how it is cut: each fault is found where the bytes so far
leave no doubt of it, and of two it is the first. And what was looked at once is not looked at again
when more comes: a head of 32 KiB sent byte by byte would else cost 16 seconds of CPU time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.errors import (
    BAD_HEADER,
    BAD_REQUEST_LINE,
    HEADERS_TOO_LARGE,
    URL_TOO_LONG,
    Refusal,
)
from gateway.http1.head import Fields, parse_fields
from gateway.http1.requested import Requested

if TYPE_CHECKING:
    from gateway.proxy.gate import Gate

#: Longest method and version around a target.
_LINE_SLACK: Final = 64
_CR: Final = 0x0D
#: A longer head is not kept whole: an idle connection is to stay small.
MOST_KEPT_BYTES: Final = 2048


class Intake:
    """Reads the heads of one connection. Clients send the same header block again and again."""

    __slots__ = ("_block", "_fields", "_gate", "_head", "_lines", "_minor", "_requested", "_seen")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._block: bytes | None = None
        self._minor = 1
        self._fields = Fields()
        #: The last head, if nothing followed it, and what it asked for under the gate's lines.
        self._head = b""
        self._lines = gate.lines
        self._requested: Requested | None = None
        #: So much of the buffer belongs to a head that is not whole and has no fault yet.
        self._seen = 0

    def read(self, buffer: bytes) -> tuple[Requested, Fields, bytes] | Refusal | None:
        """Give the head at the buffer's start and what follows it; None: it is not whole yet.

        After None, the next buffer is this one and more.
        """
        if buffer == self._head and self._requested and self._lines is self._gate.lines:
            return self._requested, self._fields, b""
        # RFC 9112, 2.2: "SHOULD ignore at least one empty line (CRLF) received prior to the
        # request-line".
        start = 2 if buffer.startswith(b"\r\n") else 0
        end = buffer.find(b"\r\n\r\n", max(start, self._seen - 3))
        if end < 0:
            return self._doubt(buffer, start)
        self._seen = 0
        line_end = buffer.index(b"\r\n", start)
        line = buffer[start:line_end]
        requested = self._gate.lines.get(line) or self._read_line(line)
        if isinstance(requested, Refusal):
            return requested
        block = buffer[line_end + 2 : end + 2]
        if block != self._block or requested.minor != self._minor:
            bounds = self._gate.policy.bounds
            if len(block) > bounds.headers_bytes:
                fault = _fault(block, 0, 0, bounds.headers_bytes, BAD_HEADER, HEADERS_TOO_LARGE)
                return fault or HEADERS_TOO_LARGE
            fields = parse_fields(block, requested.minor, bounds.header_count)
            if isinstance(fields, Refusal):
                return fields
            self._block, self._minor, self._fields = block, requested.minor, fields
            self._head = b""
        if end + 4 == len(buffer) <= MOST_KEPT_BYTES:
            self._head, self._requested, self._lines = buffer, requested, self._gate.lines
        return requested, self._fields, buffer[end + 4 :]

    def _read_line(self, line: bytes) -> Requested | Refusal:
        most = self._gate.policy.bounds.url_bytes + _LINE_SLACK
        if len(line) > most:
            return _fault(line, 0, 0, most, BAD_REQUEST_LINE, URL_TOO_LONG) or URL_TOO_LONG
        return self._gate.requested(line)

    def _doubt(self, buffer: bytes, start: int) -> Refusal | None:
        """What is wrong already with a head that is not whole."""
        bounds = self._gate.policy.bounds
        seen, self._seen = self._seen, len(buffer)
        line_end = buffer.find(b"\r\n", start)
        if line_end < 0:
            most = bounds.url_bytes + _LINE_SLACK
            return _fault(buffer, start, seen, most, BAD_REQUEST_LINE, URL_TOO_LONG)
        if seen < line_end + 2:  # the line has become whole just now
            requested = self._read_line(buffer[start:line_end])
            if isinstance(requested, Refusal):
                return requested
        most = bounds.headers_bytes
        return _fault(buffer, line_end + 2, seen, most, BAD_HEADER, HEADERS_TOO_LARGE)


def _fault(
    buffer: bytes, start: int, seen: int, most: int, malformed: Refusal, too_long: Refusal
) -> Refusal | None:
    """The first fault of what begins at `start`: a bare LF, or more than `most` bytes.

    seen: before this, there is no bare LF. A CR at the end may be the end of what is read here.
    """
    # RFC 9112, 2.2 lets a recipient take a lone LF for a line's end; where two hops differ in that,
    # a request can be hidden. Nobody needs it.
    beyond = start + most + 1
    at = buffer.find(b"\n", max(start, seen), beyond)
    while at >= 0:
        if at == start or buffer[at - 1] != _CR:
            return malformed
        at = buffer.find(b"\n", at + 1, beyond)
    return too_long if len(buffer) - start - buffer.endswith(b"\r") > most else None
