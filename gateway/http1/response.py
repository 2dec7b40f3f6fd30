"""Parses response heads of upstreams, as strictly as request heads; rebuilds them for clients."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from gateway.domain.headers import OURS_IN_ANSWERS, SESSION_MARK, sets_session
from gateway.http1.field_lines import plain_lines, without
from gateway.http1.framing import BodyReader, ChunkedReader, CloseReader, LengthReader

#: RFC 9112, 4: HTTP-version SP status-code SP [ reason-phrase ]. Many servers omit the last SP.
#: RFC 9110, 15: statuses from 600 on are invalid, and a client "SHOULD process the response as if
#: it had a 5xx (Server Error) status code". They are passed on, as nginx does.
_STATUS_LINE = re.compile(
    rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*+))?\r\n"
).match
#: Is this a valid Content-Length?
is_length: Final = re.compile(rb"[0-9]{1,18}").fullmatch

MOST_HEAD_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 256
#: A challenge whose answer identifies the connection, not the request: all that comes on it later
#: is taken to be from whoever has answered. RFC 4559, 6.
_binds = re.compile(rb"(?:^|\n)www-authenticate:[^\r]*?\b(?:ntlm|negotiate)\b").search
#: Connection must not name these, and names this alone in most heads.
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_KEEP_ALIVE: Final = [b"keep-alive"]
_STATED_TWICE: Final = "the body's length is stated more than once"

#: The name and value of a field that is read, or not forwarded; from the LF before it to its CR.
_SPECIAL = re.compile(
    rb"\n(connection|keep-alive|proxy-connection|proxy-authenticate|te|trailer|upgrade|"
    rb"transfer-encoding|content-length|x-request-id|(?:%b)[^:]*+): ([^\r]*+)\r"
    % b"|".join(map(re.escape, OURS_IN_ANSWERS)),
    re.IGNORECASE,
).split


@dataclass(slots=True)
class ResponseHead:
    """An upstream's parsed head.

    status:  200; reason: b"OK"
    length:  Content-Length; None: there is none
    chunked: the body is chunked
    keep:    the connection can be reused after a framed body; never where it asks for credentials
             that identify the connection
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
    # Built here once, as a head that is sent many times is cached.
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
    """Parse a head, up to the last field's CRLF; return the reason if it is invalid.

    Servers repeat most fields and change a few, such as lengths and ids. So fields that are not
    read are passed on in as large pieces as possible.
    """
    match = _STATUS_LINE(head)
    if match is None:
        return "the status line is malformed"
    minor, status, reason = match.groups()
    rest = head[match.end() :]
    if rest.count(b"\n") > MOST_FIELDS:
        return f"there are more than {MOST_FIELDS} header fields"
    block = plain_lines(rest)
    if block is None:
        return "a header line is malformed"
    parts = _SPECIAL(b"\n" + block)
    forward = b"".join(parts[::3])[1:]
    length: int | None = None
    chunked = False
    keep = minor == b"1"
    options: list[bytes] = []
    for at in range(1, len(parts), 3):
        lower, value = parts[at].lower(), parts[at + 1]
        if lower == b"connection":
            options += value.lower().split(b",")
        # RFC 9112, 6.3: both, differing, or invalid lengths are an unrecoverable error; "the proxy
        # MUST close the connection to the server, discard the received response, and send a 502".
        elif lower == b"content-length":
            if chunked or length is not None:
                return _STATED_TWICE
            if not is_length(value):
                return "the Content-Length is not a number"
            length = int(value)
        elif lower == b"transfer-encoding":
            if chunked or length is not None:
                return _STATED_TWICE
            if value.lower() != b"chunked" or minor == b"0":
                return "the transfer coding is not chunked"
            chunked = True
    if SESSION_MARK in forward:
        forward = _without_set_session(forward)
    if options and (options != _KEEP_ALIVE or not keep):
        if len(options) > MOST_FIELDS:
            return f"Connection names more than {MOST_FIELDS} fields"
        named = {option.strip(b" \t") for option in options}
        if not named.isdisjoint(_FRAMING):
            return "Connection names a framing field"
        keep = b"close" not in named and (keep or b"keep-alive" in named)
        forward = without(forward, named)
    lower = forward.lower()
    # What a server says of credentials with another status follows a request that had some.
    if status == b"401" and _binds(lower):
        keep = False
    dated = b"\ndate:" in lower or lower.startswith(b"date:")
    return ResponseHead(int(status), reason or b"", length, chunked, keep, forward, dated)


def _without_set_session(block: bytes) -> bytes:
    """The lines without those that set the console's session."""
    lines = block.split(b"\r\n")[:-1]
    return b"".join([line + b"\r\n" for line in lines if not _sets_session(line)])


def _sets_session(line: bytes) -> bool:
    name, _, value = line.partition(b": ")
    return name.lower() == b"set-cookie" and sets_session(value)
