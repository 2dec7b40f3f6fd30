"""Reads the heads of one client connection: finds, bounds and parses them, and caches the last one.

The result does not depend on how a head is split into reads: each fault is reported as soon as the
bytes so far prove it, and the first one of several. No byte is scanned twice: otherwise, a head of
32 KiB sent byte by byte would cost 16 seconds of CPU time.
"""

from __future__ import annotations

from typing import Final

from gateway.errors import (
    BAD_HEADER,
    BAD_REQUEST_LINE,
    HEADERS_TOO_LARGE,
    URL_TOO_LONG,
    Refusal,
)
from gateway.http1.field_lines import bare_lf
from gateway.http1.head import Fields
from gateway.proxy.gate import Gate
from gateway.routing import Requested

#: The longest method and version of a request line, with their spaces.
_LINE_SLACK: Final = 64
#: What a head may have beside its target and fields: method and version, line ends, an empty line
#: before it, and a few bytes to see that a bound was exceeded.
HEAD_SLACK_BYTES: Final = _LINE_SLACK + 16
#: Longer heads and header blocks are not cached: an idle connection keeps little.
MOST_KEPT_BYTES: Final = 2048
MOST_BLOCK_BYTES: Final = 4096

_NOTHING: Final = Requested("", 1, "")


class Intake:
    """Reads the heads of one connection. Clients repeat the same header block.

    fields:   the last parsed block that was small enough to be cached
    has_read: a whole head was read
    fault:    of an incomplete head that is refused once its fields have arrived, or None
    """

    __slots__ = (
        "_block",
        "_gate",
        "_head",
        "_heads",
        "_lines",
        "_minor",
        "_parsed_line",
        "_requested",
        "_seen",
        "fault",
        "fields",
        "has_read",
    )

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._block: bytes | None = None
        self._minor = 1
        self.fields = Fields()
        self.has_read = False
        self.fault: Refusal | None = None
        #: The parser of `fields`: another policy may parse the same block differently.
        self._heads = gate.heads
        #: The last head that was cached, and its request line as parsed under `_lines`.
        self._head = b""
        self._lines = gate.lines
        self._requested = _NOTHING
        #: Bytes of an incomplete head that were scanned without a fault,
        self._seen = 0
        #: and its parsed request line, once that is complete.
        self._parsed_line: Requested | None = None

    def read(self, buffer: bytes, at: int) -> tuple[Requested, Fields, int] | Refusal | None:
        """Return the head that begins at `at`, and the index after it; None: it is incomplete.

        After None, call it with the same bytes and more.
        """
        head = self._head
        if (buffer == head or (head and buffer.startswith(head, at))) and (
            self._lines is self._gate.lines
        ):
            self._seen = 0
            return self._requested, self.fields, at + len(head)
        # RFC 9112, 2.2: "SHOULD ignore at least one empty line (CRLF) received prior to the
        # request-line".
        start = at + 2 if buffer.startswith(b"\r\n", at) else at
        end = buffer.find(b"\r\n\r\n", max(start, at + self._seen - 3))
        if end < 0:
            return self._check_partial(buffer, at, start)
        line_end = buffer.index(b"\r\n", start)
        line = buffer[start:line_end]
        requested = self._requested_by(line)
        self._seen = 0
        if isinstance(requested, Refusal):
            return requested
        self.fault = None  # after a reload with another bound, the line is no longer too long
        self.has_read = True
        block = buffer[line_end + 2 : end + 2]
        after = end + 4
        heads = self._gate.heads
        if block == self._block and requested.minor == self._minor and heads is self._heads:
            fields = self.fields
        else:
            parsed = self._parse(block, requested.minor)
            if isinstance(parsed, Refusal):
                return parsed
            fields = parsed
            self._head = b""
            if len(block) <= MOST_BLOCK_BYTES:
                self._block, self._minor, self.fields = block, requested.minor, fields
                self._heads = heads
        hosts = self._gate.hosts
        if hosts is not None:
            requested = hosts.routed(line, requested, fields.host)
        if after - at <= MOST_KEPT_BYTES:
            self._head, self._requested = buffer[at:after], requested
            self._lines = self._gate.lines
        return requested, fields, after

    def _parse(self, block: bytes, minor: int) -> Fields | Refusal:
        bounds = self._gate.policy.bounds
        if len(block) > bounds.headers_bytes:
            fault = _fault(block, 0, 0, bounds.headers_bytes, BAD_HEADER, HEADERS_TOO_LARGE)
            return fault or HEADERS_TOO_LARGE
        return self._gate.heads.parse(block, minor)

    def _requested_by(self, line: bytes) -> Requested | Refusal:
        """Parse the request line, unless that was done when it arrived."""
        parsed, self._parsed_line = self._parsed_line, None
        if parsed is not None and self._lines is self._gate.lines:
            return parsed
        return self._gate.lines.get(line) or self._read_line(line)

    def _read_line(self, line: bytes) -> Requested | Refusal:
        most = self._gate.policy.bounds.url_bytes + _LINE_SLACK
        if len(line) > most:
            return _fault(line, 0, 0, most, BAD_REQUEST_LINE, URL_TOO_LONG) or URL_TOO_LONG
        return self._gate.requested(line)

    def _check_partial(self, buffer: bytes, at: int, start: int) -> Refusal | None:
        """Return the first fault of an incomplete head."""
        bounds = self._gate.policy.bounds
        seen, self._seen = at + self._seen, len(buffer) - at
        line_end = buffer.find(b"\r\n", start)
        if self.fault is None:
            fault = self._check_line(buffer, start, line_end, seen)
            if fault is not URL_TOO_LONG:
                if fault is not None or line_end < 0:
                    return fault
                most = bounds.headers_bytes
                return _fault(buffer, line_end + 2, seen, most, BAD_HEADER, HEADERS_TOO_LARGE)
            self.fault = fault
        # The key is in the fields after the line, and the answer reports its limits. So they are
        # waited for, as long as all of it is within the bounds of a head.
        most = bounds.url_bytes + _LINE_SLACK + bounds.headers_bytes
        return _fault(buffer, start, seen, most, self.fault, self.fault)

    def _check_line(self, buffer: bytes, start: int, end: int, seen: int) -> Refusal | None:
        """Return the fault of the request line, once; end: where it ends; -1: it is incomplete."""
        if end < 0:
            most = self._gate.policy.bounds.url_bytes + _LINE_SLACK
            return _fault(buffer, start, seen, most, BAD_REQUEST_LINE, URL_TOO_LONG)
        if seen < end + 2:  # the line was completed by this read
            requested = self._read_line(buffer[start:end])
            if isinstance(requested, Refusal):
                return requested
            self._parsed_line, self._lines = requested, self._gate.lines
            self._head = b""
        return None


def _fault(
    buffer: bytes, start: int, seen: int, most: int, malformed: Refusal, too_long: Refusal
) -> Refusal | None:
    """Return the first fault from `start` on: a bare LF, or more than `most` bytes.

    seen: there is no bare LF before this index. A final CR may be a part of the line end.
    """
    # RFC 9112, 2.2 lets a recipient accept a bare LF as a line end. Hops that differ in that allow
    # request smuggling, and no client needs it.
    beyond = start + most + 1
    if bare_lf(buffer, max(start, seen), beyond):
        return malformed
    return too_long if len(buffer) - start - buffer.endswith(b"\r") > most else None
