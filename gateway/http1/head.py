"""Request heads: bytes in, values out, and every doubt a refusal.

A head is parsed by expressions over the whole block, not by a tokenizer that forgives: what is not
exactly the grammar of RFC 9112 is refused. The result is a function of the bytes, so it may be
remembered: clients send the same header block again and again over one connection, and the same
bytes mean the same fields. That, and refusing nothing but what the grammar refuses (llhttp knows
a fixed list of methods), is why httptools is not here; the tests hold the two against each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final

from gateway.domain.networks import parse_forwarded
from gateway.errors import (
    BAD_FRAMING,
    BAD_HEADER,
    BAD_HOST,
    BAD_REQUEST_LINE,
    CODING_UNKNOWN,
    EXPECTATION_FAILED,
    HEADERS_TOO_LARGE,
    KEY_CONFLICTING,
    KEY_MALFORMED,
    KEY_MISSING,
    VERSION_UNKNOWN,
    Refusal,
)
from gateway.http1.websocket import read_handshake

#: RFC 9112, 3: method SP request-target SP HTTP-version. Methods are in capitals: an upstream that
#: takes `get` for GET would otherwise be reached past a route that says GET (nginx refuses it too).
#: The longest registered one has 17 letters; an access log has no use for one of a thousand.
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z_-]{0,31}) ([\x21-\x7e]+) HTTP/1\.([01])").fullmatch
_OTHER_VERSION = re.compile(rb"[A-Z][A-Z_-]{0,31} [\x21-\x7e]+ HTTP/[0-9]\.[0-9]").fullmatch
#: RFC 9112, 5: field-name ":" OWS field-value OWS, each line ended by CRLF. "A server MUST reject
#: any received request message that contains whitespace between a header field name and colon";
#: obs-fold, bare CR or LF, NUL and other control characters do not match either.
_FIELD_LINES = re.compile(
    rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*+\r\n)*+"
).fullmatch
#: RFC 9112, 3.2 and RFC 3986, 3.2.2: a name, an IPv4 address or a bracketed IPv6 one; no userinfo.
#: RFC 1035, 2.3.4: a name has at most 255 octets.
_HOST = re.compile(
    rb"(?:[A-Za-z0-9\-._~]{1,255}|\[([0-9A-Fa-f:.]{2,45})\])(?::([0-9]{1,5}))?"
).fullmatch
_DIGITS = re.compile(rb"[0-9]{1,18}").fullmatch
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}").fullmatch
_BEARER = re.compile(rb"[Aa]uthorization: Bearer ([!-~]++)\r\n").match
_TOKENS = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]*").fullmatch

#: Fields that speak of this connection only (RFC 9110, 7.6.1), and those that the gateway sets.
_DROPPED = frozenset(
    # `Proxy` becomes HTTP_PROXY in a CGI's environment (httpoxy, CVE-2016-5385).
    b"connection keep-alive proxy te trailer "
    b"upgrade http2-settings transfer-encoding content-length expect authorization apikey "
    b"x-request-id x-forwarded-for forwarded host sec-websocket-key sec-websocket-version "
    # These ask the upstream for another path or method than was judged.
    b"x-original-url x-original-uri x-original-method x-rewrite-url "
    b"x-http-method x-http-method-override x-method-override".split()
)
#: What a proxy in front says; passed on only where that proxy is trusted.
_PROXIED = (b"x-real-ip", b"x-forwarded-")
_OURS = (b"x-gateway-", b"x-ratelimit-", b"proxy-")
#: Upstreams that make variables of field names (RFC 3875, 4.1.18) take `_`, and some take every
#: character that is no letter or digit, for the same as `-`.
_SYNONYMS = bytes.maketrans(b"!#$%&'*+.^_`|~", b"-" * 14)

#: Blocks, and what they mean, of requests that differ in nothing but their keys. A flood of
#: different ones only empties the memory.
MOST_BLOCKS: Final = 512
MOST_BLOCK_BYTES: Final = 1_024
_blocks: dict[tuple[bytes, int, int], Fields] = {}


class _Kind(Enum):
    """What becomes of a field, by its name."""

    KEPT = 0
    DECISIVE = 1
    PROXIED = 2
    DROPPED = 3


@dataclass(slots=True)
class RequestLine:
    """method: "GET"; target: b"/v1/connectors?x=1"; minor: 1 for HTTP/1.1, 0 for HTTP/1.0."""

    method: str
    target: bytes
    minor: int


@dataclass(slots=True)
class Fields:
    r"""What a header block means to the gateway.

    host:          the Host field's value, b"" where there is none
    length:        Content-Length; None where there is none
    chunked:       the body comes in chunks
    close, keep:   Connection said `close`, `keep-alive`
    expects:       the client waits for 100 Continue before it sends the body
    websocket:     of a request to open a WebSocket, where its method is GET: the handshake's key,
                   or the refusal that it means; None: it is none
    credential:    the key as sent, or the refusal that its absence or doubling means
    authorization: the one Authorization line, rebuilt; goes on only where no key is asked for
    forwarded_for: the items of X-Forwarded-For, or else of Forwarded, in order
    request_id:    the client's X-Request-Id where it is safe to keep, else b""
    forward:       the lines that go on to the upstream, rebuilt: b"Host: x\r\nAccept: */*\r\n"
    proxied:       further lines that go on if the client is a trusted proxy
    others:        lower-case name -> first value of every field that goes on
    bare:          neither a body nor an Upgrade comes with it
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
    forwarded_for: tuple[str, ...] = ()
    request_id: bytes = b""
    forward: bytes = b""
    proxied: bytes = b""
    others: dict[bytes, bytes] = field(default_factory=dict)
    bare: bool = False


def parse_request_line(line: bytes) -> RequestLine | Refusal:
    """Parse the first line, without its CRLF."""
    match = _REQUEST_LINE(line)
    if match is None:
        return VERSION_UNKNOWN if _OTHER_VERSION(line) else BAD_REQUEST_LINE
    method, target, minor = match.groups()
    return RequestLine(method.decode("ascii"), target, 1 if minor == b"1" else 0)


def parse_fields(block: bytes, minor: int, most: int) -> Fields | Refusal:
    """Parse the header lines, each with its CRLF, without the empty line after them.

    minor: of the request line, as HTTP/1.0 knows neither chunks nor a needed Host.
    most:  how many fields there may be.

    A proxy in front of us sends the requests of many keys over one connection. What the other
    lines mean is remembered, so that another key alone costs a third. No key stays in that memory.
    """
    at = block.find(b"uthorization: Bearer ") - 1
    if at == 0 or (at > 0 and block.startswith(b"\r\n", at - 2)):
        line = _BEARER(block, at)
        if line is not None:
            rest = block[:at] + block[line.end() :]
            fields = _without_key(rest, minor, most - 1)
            if fields is not None:
                return _with_key(fields, line[1])
    return _parse(block, minor, most)


def _without_key(rest: bytes, minor: int, most: int) -> Fields | None:
    """What the lines beside the Bearer line mean; None: they need that line to be judged."""
    known = _blocks.get((rest, minor, most))
    if known is not None:
        return known
    if len(rest) > MOST_BLOCK_BYTES:
        return None
    fields = _parse(rest, minor, most)
    if isinstance(fields, Refusal):
        return None
    # A second credential, in either form, is a matter of both; and it may be a key. Two others that
    # contradict each other leave no `authorization`, but a refusal in place of a credential.
    if fields.credential is not KEY_MISSING or b"apikey:" in rest.lower():
        return None
    if len(_blocks) >= MOST_BLOCKS:
        _blocks.clear()
    _blocks[rest, minor, most] = fields
    return fields


def _with_key(fields: Fields, key: bytes) -> Fields:
    return Fields(
        fields.host,
        fields.length,
        fields.chunked,
        fields.close,
        fields.keep,
        fields.expects,
        fields.websocket,
        key,
        b"Authorization: Bearer %b\r\n" % key,
        fields.forwarded_for,
        fields.request_id,
        fields.forward,
        fields.proxied,
        fields.others,
        fields.bare,
    )


def _parse(block: bytes, minor: int, most: int) -> Fields | Refusal:
    if not _FIELD_LINES(block):
        return BAD_HEADER
    lines = block.split(b"\r\n")
    lines.pop()
    if len(lines) > most:
        return HEADERS_TOO_LARGE
    decisive: dict[bytes, list[bytes]] = {}
    kept: list[tuple[bytes, bytes, bytes]] = []
    proxied: list[bytes] = []
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.strip(b" \t")
        lower, kind = _kind(name)
        if kind is _Kind.KEPT:
            kept.append((lower, name, value))
        elif kind is _Kind.DECISIVE:
            decisive.setdefault(lower, []).append(value)
        elif kind is _Kind.PROXIED:
            proxied.append(b"%b: %b\r\n" % (name, value))
    fields = Fields()
    refusal = (
        _read_host(fields, decisive, minor)
        or _read_framing(fields, decisive, minor)
        or _read_expect(fields, decisive, minor)
    )
    if refusal is not None:
        return refusal
    nominated = _read_connection(fields, decisive.get(b"connection", ()))
    if isinstance(nominated, Refusal):
        return nominated
    if b"upgrade" in decisive and minor == 1:
        # RFC 9110, 7.8: "A server MUST ignore an Upgrade header field that is received in an
        # HTTP/1.0 request."
        fields.websocket = read_handshake(
            decisive[b"upgrade"],
            nominated,
            decisive.get(b"sec-websocket-key", ()),
            decisive.get(b"sec-websocket-version", ()),
            framed=fields.chunked or fields.length is not None,
        )
    fields.bare = not fields.chunked and fields.length is None and fields.websocket is None
    authorizations = decisive.get(b"authorization", ())
    fields.credential = _credential(authorizations, decisive.get(b"apikey", ()))
    if len(authorizations) == 1:
        fields.authorization = b"Authorization: %b\r\n" % authorizations[0]
    fields.forwarded_for = _forwarded_for(decisive)
    ids = decisive.get(b"x-request-id", ())
    fields.request_id = ids[0] if len(ids) == 1 and _SAFE_ID(ids[0]) else b""
    forward = [b"Host: %b\r\n" % fields.host] if fields.host else []
    for lower, name, value in kept:
        if lower not in nominated:
            forward.append(b"%b: %b\r\n" % (name, value))
            fields.others.setdefault(lower, value)
    fields.forward = b"".join(forward)
    fields.proxied = b"".join(proxied)
    return fields


# The names that clients send are few. Bounded, as a name may have 32 KiB.
@lru_cache(maxsize=256)
def _kind(name: bytes) -> tuple[bytes, _Kind]:
    """A field's name in lower case, and what becomes of it."""
    lower = name.lower()
    plain = lower.translate(_SYNONYMS)
    if plain.startswith(_OURS):
        return lower, _Kind.DROPPED
    if plain in _DROPPED:
        # Else a spelling with `_`, which is never a synonym.
        return lower, _Kind.DECISIVE if plain == lower else _Kind.DROPPED
    if plain.startswith(_PROXIED):
        return lower, _Kind.PROXIED if plain == lower else _Kind.DROPPED
    return lower, _Kind.KEPT


def is_host(value: bytes) -> bool:
    """Is this a valid Host, its port included?"""
    match = _HOST(value)
    if match is None:
        return False
    address, port = match.groups()
    return (port is None or 1 <= int(port) <= 65_535) and (address is None or _is_ipv6(address))


def _is_ipv6(text: bytes) -> bool:
    try:
        IPv6Address(text.decode("ascii"))
    except ValueError:
        return False
    return True


def _read_host(fields: Fields, decisive: dict[bytes, list[bytes]], minor: int) -> Refusal | None:
    # RFC 9112, 3.2: "A server MUST respond with a 400 status code to any HTTP/1.1 request message
    # that lacks a Host header field and to any request message that contains more than one Host
    # header field line or a Host header field with an invalid field value."
    hosts = decisive.get(b"host", ())
    if len(hosts) == 1 and is_host(hosts[0]):
        fields.host = hosts[0]
        return None
    return None if not hosts and minor == 0 else BAD_HOST


def _read_framing(fields: Fields, decisive: dict[bytes, list[bytes]], minor: int) -> Refusal | None:
    lengths = decisive.get(b"content-length", ())
    codings = decisive.get(b"transfer-encoding", ())
    if codings:
        # RFC 9112, 6.1: a message with both "ought to be handled as an error"; under HTTP/1.0 a
        # recipient "MUST treat the message as if the framing is faulty".
        if lengths or minor == 0 or len(codings) > 1:
            return BAD_FRAMING
        coding = codings[0].lower()
        if coding != b"chunked":
            # "If any transfer coding other than chunked is applied ... chunked must be the final".
            lone = coding and b"chunked" not in coding and _TOKENS(coding)
            return CODING_UNKNOWN if lone else BAD_FRAMING
        fields.chunked = True
    elif lengths:
        # RFC 9112, 6.3: an invalid value or differing values are "an unrecoverable error". Equal
        # ones could be folded into one; no honest client sends them.
        if len(lengths) > 1 or not _DIGITS(lengths[0]):
            return BAD_FRAMING
        fields.length = int(lengths[0])
    return None


def _read_expect(fields: Fields, decisive: dict[bytes, list[bytes]], minor: int) -> Refusal | None:
    expectations = decisive.get(b"expect")
    if expectations is None:
        return None
    if len(expectations) > 1 or expectations[0].lower() != b"100-continue":
        return EXPECTATION_FAILED
    # RFC 9110, 10.1.1: a 100-continue expectation from an HTTP/1.0 client is to be ignored.
    fields.expects = minor == 1
    return None


def _read_connection(fields: Fields, values: list[bytes] | tuple[()]) -> frozenset[bytes] | Refusal:
    """The names that Connection takes off the message."""
    tokens = {token.strip(b" \t").lower() for value in values for token in value.split(b",")}
    if not tokens:
        return frozenset()
    # Naming a framing field as hop-by-hop asks the next hop to see another message than we do.
    if tokens & {b"transfer-encoding", b"content-length", b"host"}:
        return BAD_FRAMING
    fields.close = b"close" in tokens
    fields.keep = b"keep-alive" in tokens
    return frozenset(tokens)


def _forwarded_for(decisive: dict[bytes, list[bytes]]) -> tuple[str, ...]:
    """Whom the request came through, in order: X-Forwarded-For's word, or else Forwarded's."""
    chain = decisive.get(b"x-forwarded-for")
    if chain is not None:
        return tuple(b",".join(chain).decode("latin-1").split(","))
    forwarded = decisive.get(b"forwarded")
    if forwarded is None:
        return ()
    return parse_forwarded([value.decode("latin-1") for value in forwarded])


def _credential(
    authorizations: list[bytes] | tuple[()], api_keys: list[bytes] | tuple[()]
) -> bytes | Refusal:
    """The one key that was sent, in either form."""
    if len(authorizations) > 1 or len(set(api_keys)) > 1:
        return KEY_CONFLICTING
    if not authorizations:
        return api_keys[0] or KEY_MISSING if api_keys else KEY_MISSING
    scheme, _, bearer = authorizations[0].partition(b" ")
    bearer = bearer.strip(b" ")
    if scheme.lower() != b"bearer" or not bearer:
        return KEY_CONFLICTING if api_keys else KEY_MALFORMED
    return KEY_CONFLICTING if api_keys and api_keys[0] != bearer else bearer
