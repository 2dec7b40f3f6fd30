"""Parses request heads. Ambiguous heads are refused.

Regular expressions match the whole block against the exact grammar of RFC 9112; there is no lenient
tokenizer. The result is a function of the bytes, so it is cached: clients send the same header
block many times over one connection. For this reason, and because llhttp refuses methods that are
not in its list, httptools is not used here; the tests compare the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final

from gateway.domain.headers import (
    LISTS,
    PREFLIGHT,
    Handling,
    HeaderRules,
    holds_secret,
    read_credential,
    without_secrets,
)
from gateway.errors import (
    BAD_FRAMING,
    BAD_HEADER,
    BAD_HOST,
    BAD_REQUEST_LINE,
    CODING_UNKNOWN,
    EXPECTATION_FAILED,
    HEADER_REPEATED,
    HEADERS_TOO_LARGE,
    KEY_MISSING,
    LOOP_DETECTED,
    VERSION_UNKNOWN,
    Refusal,
)
from gateway.http1.field_lines import name_of, plain_lines, split_fields
from gateway.http1.trace_context import TraceParent, read_trace_context
from gateway.http1.websocket import read_handshake

#: RFC 9112, 3: method SP request-target SP HTTP-version. Methods are in capitals: for an upstream
#: that reads `get` as GET, `get` would evade a route for GET (nginx refuses it too).
#: The longest registered one has 17 letters; the bound keeps the access log's lines short.
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z_-]{0,31}) ([\x21-\x7e]+) HTTP/1\.([01])").fullmatch
_OTHER_VERSION = re.compile(rb"[A-Z][A-Z_-]{0,31} [\x21-\x7e]+ HTTP/[0-9]\.[0-9]").fullmatch
#: RFC 9112, 3.2 and RFC 3986, 3.2.2: a name, an IPv4 address or a bracketed IPv6 one; no userinfo.
#: RFC 1035, 2.3.4: a name has at most 255 octets.
_HOST = re.compile(
    rb"(?:[A-Za-z0-9\-._~]{1,255}|\[([0-9A-Fa-f:.]{2,45})\])(?::([0-9]{1,5}))?"
).fullmatch
#: The longest Host: a name or an address, and its port.
MOST_HOST_BYTES: Final = 255 + len(":65535")
_DIGITS = re.compile(rb"[0-9]{1,18}").fullmatch
#: Whole lines that may carry a key. From CRLF to CRLF: after a bare LF nothing is read.
_CREDENTIALS = re.compile(
    rb"\r\n(?i:(authorization)|apikey):([\t\x20-\x7e\x80-\xff]*+)(?=\r\n)"
).findall
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}").fullmatch
#: RFC 9112, 6.1: a list of transfer codings; none with parameters is supported.
_CODINGS = re.compile(rb"(?:[ \t]*+[!#$%&'*+\-.^_`|~0-9A-Za-z]++[ \t]*+,)+[ \t]*+chunked").fullmatch

#: The gateway's name in Via.
PSEUDONYM: Final = b"rate-limiting-gateway"
#: The gateway's own line, by the minor version of the request that was received.
_VIA: Final = (b"Via: 1.0 %b" % PSEUDONYM, b"Via: 1.1 %b" % PSEUDONYM)
#: The most gateways of this name, and proxies of any name, that a request may have passed. After
#: more it is in a loop.
MOST_GATEWAYS: Final = 8
MOST_PROXIES: Final = 32

#: Fields that describe the message itself. Most requests of clients have none of them.
_OF_MESSAGE: Final = frozenset(
    (b"connection", b"content-length", b"expect", b"transfer-encoding", b"upgrade", b"via")
)
_NONE: Final = frozenset[bytes]()
_KEEP_ALIVE: Final = {b"keep-alive"}

# Module constants: looking up a member of an Enum costs more than comparing it.
_FORWARDED: Final = Handling.FORWARDED
_READ: Final = Handling.READ
_FROM_TRUSTED: Final = Handling.FROM_TRUSTED


@dataclass(slots=True)
class RequestLine:
    """method: "GET"; target: b"/v1/connectors?x=1"; minor: 1 for HTTP/1.1, 0 for HTTP/1.0."""

    method: str
    target: bytes
    minor: int


@dataclass(slots=True)
class Fields:
    r"""A parsed header block.

    host:          the Host field's value; b"": there is none
    length:        Content-Length; None: there is none
    chunked:       the body is chunked
    close, keep:   Connection has `close`, `keep-alive`
    expects:       the client waits for 100 Continue before it sends the body
    websocket:     of a WebSocket handshake, if the method is GET: its key, or why it is refused;
                   None: it is none
    credential:    the key as sent, or why there is none: see `headers.read_credential`
    authorization: the one Authorization line, rebuilt; forwarded only if no key is required
    forwarded_for: X-Forwarded-For, all its lines as one list; forwarded: the same of Forwarded
    request_id:    the client's X-Request-Id if it is safe to use, else b""
    forward:       the lines for the upstream, rebuilt: b"Host: x\r\nAccept: */*\r\n"
    proxied:       further lines for the upstream if the client is a trusted proxy
    counted:       lower-case name -> value of the fields in `HeaderRules.counted`, and whether only
                   a trusted proxy's value counts; None: there are none
    bare:          neither a body nor a WebSocket handshake, nor a preflight
    asked:         the line X-Forwarded-Host for the upstream, unless a trusted proxy has sent one
    trace:         the client's span, if traces are on; None: it named none
    fault:         why the request is refused once its route is known; None: it is not
    """

    host: bytes = b""
    length: int | None = None
    chunked: bool = False
    close: bool = False
    keep: bool = False
    expects: bool = False
    websocket: bytes | Refusal | None = None
    credential: bytes | Refusal = KEY_MISSING
    authorization: bytes = b""
    forwarded_for: bytes = b""
    forwarded: bytes = b""
    request_id: bytes = b""
    forward: bytes = b""
    proxied: bytes = b""
    counted: Mapping[bytes, tuple[bytes, bool]] | None = None
    bare: bool = False
    asked: bytes = b""
    trace: TraceParent | None = None
    fault: Refusal | None = None


def parse_request_line(line: bytes) -> RequestLine | Refusal:
    """Parse the first line, without its CRLF."""
    match = _REQUEST_LINE(line)
    if match is None:
        return VERSION_UNKNOWN if _OTHER_VERSION(line) else BAD_REQUEST_LINE
    method, target, minor = match.groups()
    return RequestLine(method.decode("ascii"), target, 1 if minor == b"1" else 0)


def parse_fields(rules: HeaderRules, block: bytes, minor: int) -> Fields | Refusal:
    """Parse the header lines, each with its CRLF, without the empty line after them.

    minor: of the request line, as HTTP/1.0 has no chunks and requires no Host
    """
    most = rules.most
    if block.count(b"\n") > most:
        return HEADERS_TOO_LARGE
    plain = plain_lines(block)
    if plain is None:
        return BAD_HEADER
    handling = rules.handling
    read: dict[bytes, list[bytes]] = {}
    kept: list[bytes] = []
    proxied: list[bytes] = []
    for line, name, value in split_fields(plain):
        lower, how = handling(name)
        if how is _FORWARDED:
            kept.append(line)
        elif how is _READ:
            read.setdefault(lower, []).append(value)
        elif how is _FROM_TRUSTED:
            proxied.append(line)
    fields = Fields(bare=True)
    refusal = _read_host(fields, read, minor)
    if refusal is not None:
        return refusal
    nominated = _NONE if _OF_MESSAGE.isdisjoint(read) else _read_message(fields, read, minor, most)
    if isinstance(nominated, Refusal):
        return nominated
    if rules.counted:
        _read_counted(fields, rules.counted, nominated, kept, proxied)
        fields.bare = PREFLIGHT not in (fields.counted or ()) and fields.fault is None
    if minor == 1 and b"upgrade" in read:
        _read_upgrade(fields, read, nominated)
    if fields.chunked or fields.length is not None or fields.websocket is not None:
        fields.bare = False
    read_own_fields(rules, fields, read, nominated)
    fields.forward = _forward(fields.host, kept, read.get(b"via", ()), nominated, minor)
    if proxied:
        fields.proxied = without_secrets(b"\r\n".join(proxied) + b"\r\n")
    return fields


def read_own_fields(
    rules: HeaderRules,
    fields: Fields,
    read: Mapping[bytes, Sequence[bytes]],
    nominated: frozenset[bytes] = _NONE,
) -> None:
    """Read what differs from request to request, but for a length.

    read: the values by name, in lower case; nominated: the names that Connection removes
    """
    authorizations = read.get(b"authorization", ())
    fields.credential = read_credential(authorizations, read.get(b"apikey", ()))
    if len(authorizations) == 1:
        fields.authorization = b"Authorization: %b\r\n" % authorizations[0]
    if b"x-request-id" in read:
        fields.request_id = safe_request_id(read[b"x-request-id"])
    if b"x-forwarded-for" in read:
        fields.forwarded_for = b",".join(read[b"x-forwarded-for"])
    if b"forwarded" in read:
        fields.forwarded = b",".join(read[b"forwarded"])
    if rules.traced:
        fields.trace = _read_trace(read, nominated)


def received_credential(head: bytes) -> bytes | Refusal:
    """The key in the whole lines of a head that is refused; a refusal if there is none, or two.

    head: as far as it was received, from its request line on; what follows its end is not read
    """
    end = head.find(b"\r\n\r\n")
    authorizations: list[bytes] = []
    api_keys: list[bytes] = []
    for name, value in _CREDENTIALS(head, 0, len(head) if end < 0 else end + 2):
        (authorizations if name else api_keys).append(value.strip(b" \t"))
    return read_credential(authorizations, api_keys)


def is_host(value: bytes) -> bool:
    """Is this a valid Host, its port included?"""
    match = _HOST(value)
    if match is None:
        return False
    address, port = match.groups()
    return (port is None or 1 <= int(port) <= 65_535) and (address is None or _is_ipv6(address))


@lru_cache(maxsize=256)
def _is_safe_host(value: bytes) -> bool:
    return is_host(value) and not holds_secret(value)


def _is_ipv6(text: bytes) -> bool:
    try:
        IPv6Address(text.decode("ascii"))
    except ValueError:
        return False
    return True


def _read_host(fields: Fields, read: dict[bytes, list[bytes]], minor: int) -> Refusal | None:
    # RFC 9112, 3.2: "A server MUST respond with a 400 status code to any HTTP/1.1 request message
    # that lacks a Host header field and to any request message that contains more than one Host
    # header field line or a Host header field with an invalid field value."
    hosts = read.get(b"host", ())
    if len(hosts) == 1 and len(hosts[0]) <= MOST_HOST_BYTES and _is_safe_host(hosts[0]):
        fields.host = hosts[0]
        fields.asked = b"X-Forwarded-Host: %b\r\n" % hosts[0]
        return None
    return None if not hosts and minor == 0 else BAD_HOST


def _read_message(
    fields: Fields, read: dict[bytes, list[bytes]], minor: int, most: int
) -> frozenset[bytes] | Refusal:
    """Read the fields in `_OF_MESSAGE`; return the names that Connection removes."""
    refusal = (
        _read_framing(fields, read, minor)
        or _read_expect(fields, read, minor)
        or _via_fault(read.get(b"via", ()))
    )
    return refusal or _read_connection(fields, read.get(b"connection", ()), most)


def _read_framing(fields: Fields, read: dict[bytes, list[bytes]], minor: int) -> Refusal | None:
    lengths = read.get(b"content-length", ())
    codings = read.get(b"transfer-encoding", ())
    if codings:
        # RFC 9112, 6.1: a message with both "ought to be handled as an error"; under HTTP/1.0 a
        # recipient "MUST treat the message as if the framing is faulty".
        if lengths or minor == 0 or len(codings) > 1:
            return BAD_FRAMING
        coding = codings[0].lower()
        if coding != b"chunked":
            # RFC 9112, 6.3: if chunked "is not the final encoding ... the server MUST respond with
            # the 400 (Bad Request) status code". If it is, the others are not understood: 6.1, a
            # server "SHOULD respond with 501 (Not Implemented)".
            is_framed = coding.count(b"chunked") == 1 and _CODINGS(coding)
            return CODING_UNKNOWN if is_framed else BAD_FRAMING
        fields.chunked = True
    elif lengths:
        return read_length(fields, lengths)
    return None


def read_length(fields: Fields, values: Sequence[bytes]) -> Refusal | None:
    """Read Content-Length."""
    # RFC 9112, 6.3: an invalid value or differing values are "an unrecoverable error". Equal ones
    # could be merged; no real client sends them.
    if len(values) > 1 or not _DIGITS(values[0]):
        return BAD_FRAMING
    fields.length = int(values[0])
    return None


def _read_expect(fields: Fields, read: dict[bytes, list[bytes]], minor: int) -> Refusal | None:
    expectations = read.get(b"expect")
    if expectations is None:
        return None
    if len(expectations) > 1 or expectations[0].lower() != b"100-continue":
        return EXPECTATION_FAILED
    # RFC 9110, 10.1.1: a server must ignore a 100-continue expectation of an HTTP/1.0 client.
    fields.expects = minor == 1
    return None


def _via_fault(values: Sequence[bytes]) -> Refusal | None:
    """Refuse a request in a loop. RFC 9110, 7.6.3: Via is also for "avoiding request loops"."""
    if not values:
        return None
    ours = sum([value.lower().count(PSEUDONYM) for value in values])
    proxies = len(values) + sum([value.count(b",") for value in values])
    return LOOP_DETECTED if ours > MOST_GATEWAYS or proxies > MOST_PROXIES else None


def _read_connection(
    fields: Fields, values: Sequence[bytes], most: int
) -> frozenset[bytes] | Refusal:
    """The names that Connection removes from the message."""
    if not values:
        return frozenset()
    # It names fields of this message. 16,000 names cost eleven times as much as other bytes.
    if len(values) + sum([value.count(b",") for value in values]) > most:
        return HEADERS_TOO_LARGE
    tokens = {token.strip(b" \t").lower() for value in values for token in value.split(b",")}
    # If a framing field were removed as hop-by-hop, the next hop would read another message.
    if tokens & {b"transfer-encoding", b"content-length", b"host"}:
        return BAD_FRAMING
    fields.close = b"close" in tokens
    fields.keep = b"keep-alive" in tokens
    return frozenset(tokens)


def _read_counted(
    fields: Fields,
    names: frozenset[bytes],
    nominated: frozenset[bytes],
    kept: list[bytes],
    proxied: list[bytes],
) -> None:
    """Read the fields of limits per header. Each once: an upstream might read another one."""
    counted: dict[bytes, tuple[bytes, bool]] = {}
    for lines, is_proxied in ((kept, False), (proxied, True)):
        for line in lines:
            lower = name_of(line)
            if lower in names:
                value = line[len(lower) + 2 :]
                # A value that is not forwarded counts as absent: see `_forward`.
                is_dropped = (lower in nominated and not is_proxied) or holds_secret(value)
                read = b"" if is_dropped else value
                if lower in counted and lower not in LISTS:
                    # Neither value decides anything; the body of the refusal depends on the route.
                    fields.fault, read = HEADER_REPEATED, b""
                elif lower in counted:
                    read = b"%b, %b" % (counted[lower][0], read)
                counted[lower] = read, is_proxied
    fields.counted = counted


def safe_request_id(values: Sequence[bytes]) -> bytes:
    """The client's id, if it is safe in headers, bodies and logs; else b"".

    values: of all its X-Request-Id lines
    """
    if len(values) != 1 or not _SAFE_ID(values[0]) or holds_secret(values[0]):
        return b""
    return values[0]


def _read_upgrade(
    fields: Fields, read: dict[bytes, list[bytes]], nominated: frozenset[bytes]
) -> None:
    """Only for HTTP/1.1. RFC 9110, 7.8: "A server MUST ignore an Upgrade header field that is
    received in an HTTP/1.0 request."
    """
    fields.websocket = read_handshake(
        read[b"upgrade"],
        nominated,
        read.get(b"sec-websocket-key", ()),
        read.get(b"sec-websocket-version", ()),
        framed=fields.chunked or fields.length is not None,
    )


def _read_trace(
    read: Mapping[bytes, Sequence[bytes]], nominated: frozenset[bytes]
) -> TraceParent | None:
    """The client's span, without what Connection nominates, or a key in it."""
    parents, states = (
        ()
        if name in nominated or any(map(holds_secret, read.get(name, ())))
        else read.get(name, ())
        for name in (b"traceparent", b"tracestate")
    )
    return read_trace_context(parents, states)


def _forward(
    host: bytes, kept: list[bytes], vias: Sequence[bytes], nominated: frozenset[bytes], minor: int
) -> bytes:
    """The lines for the upstream. kept: in order; vias: the values of Via as received."""
    lines = [b"Host: %b" % host] if host else []
    # Keep-Alive itself is never kept.
    if nominated and nominated != _KEEP_ALIVE:
        kept = [line for line in kept if name_of(line) not in nominated]
    lines += kept
    if vias and b"via" not in nominated:
        lines += [b"Via: %b" % value for value in vias]
    # RFC 9110, 7.6.3: a gateway "MUST send an appropriate Via header field in each inbound request
    # message".
    lines += (_VIA[minor], b"")
    return without_secrets(b"\r\n".join(lines))
