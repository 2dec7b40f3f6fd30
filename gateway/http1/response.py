"""Parses response heads of upstreams, as strictly as request heads; rebuilds them for clients."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from gateway.domain.headers import OURS_IN_ANSWERS, sets_session
from gateway.http1.framing import BodyReader, ChunkedReader, CloseReader, LengthReader

#: RFC 9112, 4: HTTP-version SP status-code SP [ reason-phrase ]. Many servers omit the last SP.
#: RFC 9110, 15: statuses from 600 on are invalid, and a client "SHOULD process the response as if
#: it had a 5xx (Server Error) status code". They are passed on, as nginx does.
_STATUS_LINE = re.compile(
    rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?"
).fullmatch
_FIELD_LINES = re.compile(
    rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*+\r\n)*"
).fullmatch
_DIGITS = re.compile(rb"[0-9]{1,18}").fullmatch

MOST_HEAD_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 256

_DROPPED = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate te trailer upgrade "
    b"transfer-encoding content-length x-request-id".split()
)


@dataclass(slots=True)
class ResponseHead:
    """An upstream's parsed head.

    status:  200; reason: b"OK"
    length:  Content-Length; None: there is none
    chunked: the body is chunked
    keep:    the connection can be reused after a framed body
    forward: the lines for the client, rebuilt, without framing and rate-limit fields
    dated:   they include a Date
    start:   the status line for the client, and `forward`
    framing: the Content-Length line for the client, or b""
    sized:   `length` is the body's, unless the method was HEAD
    """

    status: int
    reason: bytes
    length: int | None
    chunked: bool
    keep: bool
    forward: bytes
    dated: bool
    # Built here once: servers send the same head many times, and parsed heads are cached.
    start: bytes = field(init=False)
    framing: bytes = field(init=False)
    sized: bool = field(init=False)

    def __post_init__(self) -> None:
        self.start = b"HTTP/1.1 %d %b\r\n%b" % (self.status, self.reason, self.forward)
        self.framing = b""
        if self.length is not None and self.status >= 200 and self.status != 204:
            self.framing = b"Content-Length: %d\r\n" % self.length
        self.sized = bool(self.framing) and not self.chunked and self.status != 304

    def reader(self, method: str) -> BodyReader | None:
        """The body's reader; None: it has no body, whatever its fields say (RFC 9112, 6.3)."""
        if method == "HEAD" or self.status in {204, 304} or self.status < 200:
            return None
        if self.chunked:
            return ChunkedReader()
        return CloseReader() if self.length is None else LengthReader(self.length)


def parse_response_head(head: bytes) -> ResponseHead | str:
    """Parse a head, up to the last field's CRLF; return the reason if it is invalid."""
    line, _, block = head.partition(b"\r\n")
    match = _STATUS_LINE(line)
    if match is None:
        return "the status line is malformed"
    if not _FIELD_LINES(block):
        return "a header line is malformed"
    lines = block.split(b"\r\n")
    lines.pop()
    if len(lines) > MOST_FIELDS:
        return f"there are more than {MOST_FIELDS} header fields"
    lengths: list[bytes] = []
    codings: list[bytes] = []
    connection: set[bytes] = set()
    options = 0
    dated = False
    kept: list[tuple[bytes, bytes, bytes]] = []
    for field_line in lines:
        name, _, value = field_line.partition(b":")
        value = value.strip(b" \t")
        lower = name.lower()
        if lower not in _DROPPED:
            if lower.startswith(OURS_IN_ANSWERS):
                continue
            if lower == b"date":
                dated = True
            elif lower == b"set-cookie" and sets_session(value):
                continue
            kept.append((lower, name, value))
        elif lower == b"content-length":
            lengths.append(value)
        elif lower == b"transfer-encoding":
            codings.append(value.lower())
        elif lower == b"connection":
            if b"," not in value:
                connection.add(value.lower())
                continue
            options += value.count(b",")
            if options > MOST_FIELDS:
                return f"Connection names more than {MOST_FIELDS} fields"
            connection |= {token.strip(b" \t").lower() for token in value.split(b",")}
    # RFC 9112, 6.3: both, differing, or invalid lengths are an unrecoverable error; "the proxy MUST
    # close the connection to the server, discard the received response, and send a 502".
    if len(lengths) + len(codings) > 1:
        return "the body's length is stated more than once"
    if lengths and not _DIGITS(lengths[0]):
        return "the Content-Length is not a number"
    if codings and (codings[0] != b"chunked" or match[1] == b"0"):
        return "the transfer coding is not chunked"
    if connection & {b"content-length", b"transfer-encoding"}:
        return "Connection names a framing field"
    keep = b"close" not in connection and (match[1] == b"1" or b"keep-alive" in connection)
    return ResponseHead(
        status=int(match[2]),
        reason=match[3] or b"",
        length=int(lengths[0]) if lengths else None,
        chunked=bool(codings),
        keep=keep,
        forward=b"".join(
            b"%b: %b\r\n" % (name, value) for lower, name, value in kept if lower not in connection
        ),
        dated=dated and b"date" not in connection,
    )
