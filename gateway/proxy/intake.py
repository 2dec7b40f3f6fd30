"""Heads off one client connection's bytes: found, bounded, parsed, and the last one remembered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.domain.policy import Bounds
from gateway.errors import (
    BAD_HEADER,
    BAD_REQUEST_LINE,
    HEADERS_TOO_LARGE,
    URL_TOO_LONG,
    Refusal,
)
from gateway.http1.head import Fields, parse_fields
from gateway.proxy.requested import Requested

if TYPE_CHECKING:
    from gateway.proxy.gate import Gate

#: Longest method and version around a target.
_LINE_SLACK: Final = 64

_BARE_LF = re.compile(rb"(?:^|[^\r])\n").search


class Intake:
    """Reads the heads of one connection. Clients send the same header block again and again."""

    __slots__ = ("_block", "_fields", "_gate", "_minor")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._block: bytes | None = None
        self._minor = 1
        self._fields = Fields()

    def read(self, buffer: bytes) -> tuple[Requested, Fields, bytes] | Refusal | None:
        """Give the head at the buffer's start and what follows it; None: it is not whole yet."""
        # RFC 9112, 2.2: "SHOULD ignore at least one empty line (CRLF) received prior to the
        # request-line".
        start = 2 if buffer.startswith(b"\r\n") else 0
        end = buffer.find(b"\r\n\r\n", start)
        if end < 0:
            return self._doubt(buffer[start:])
        line_end = buffer.index(b"\r\n", start)
        requested = self._gate.requested(buffer[start:line_end])
        if isinstance(requested, Refusal):
            return requested
        block = buffer[line_end + 2 : end + 2]
        if block != self._block or requested.minor != self._minor:
            bounds = self._gate.policy.bounds
            if len(block) > bounds.headers_bytes:
                return HEADERS_TOO_LARGE
            fields = parse_fields(block, requested.minor, bounds.header_count)
            if isinstance(fields, Refusal):
                return fields
            self._block, self._minor, self._fields = block, requested.minor, fields
        return requested, self._fields, buffer[end + 4 :]

    def _doubt(self, buffer: bytes) -> Refusal | None:
        """What is wrong already with a head that is not whole."""
        bounds: Bounds = self._gate.policy.bounds
        line_end = buffer.find(b"\r\n")
        if _BARE_LF(buffer):
            # RFC 9112, 2.2 lets a recipient take a lone LF for a line's end; where two hops differ
            # in that, a request can be hidden. Nobody needs it.
            return BAD_REQUEST_LINE if line_end < 0 else BAD_HEADER
        if line_end < 0:
            return URL_TOO_LONG if len(buffer) > bounds.url_bytes + _LINE_SLACK else None
        requested = self._gate.requested(buffer[:line_end])
        if isinstance(requested, Refusal):
            return requested
        return HEADERS_TOO_LARGE if len(buffer) - line_end > bounds.headers_bytes else None
