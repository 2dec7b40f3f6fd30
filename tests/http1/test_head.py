"""Request heads: what is parsed, what is forwarded, what is refused."""

from __future__ import annotations

import itertools
import json
import string

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.headers import HeaderRules
from gateway.errors import (
    BAD_FRAMING,
    BAD_HEADER,
    BAD_HOST,
    BAD_REQUEST_LINE,
    CODING_UNKNOWN,
    EXPECTATION_FAILED,
    HEADER_REPEATED,
    HEADERS_TOO_LARGE,
    KEY_CONFLICTING,
    KEY_MALFORMED,
    KEY_MISSING,
    LOOP_DETECTED,
    VERSION_UNKNOWN,
    Refusal,
)
from gateway.http1.field_parser import FieldParser
from gateway.http1.head import (
    MOST_GATEWAYS,
    MOST_PROXIES,
    PSEUDONYM,
    Fields,
    RequestLine,
    is_host,
    parse_fields,
    parse_request_line,
    received_credential,
)
from tests.kit.cost import cost

HOST = b"Host: a\r\n"
VIA = b"Via: 1.1 rate-limiting-gateway\r\n"
KEY = b"gwk_production_7h3k9m2p4q6r_0123456789ABCDEFGHIJKLMNOPQRSTUV012345"


def parse(block: bytes, minor: int = 1, rules: HeaderRules | None = None) -> Fields | Refusal:
    """Parse a block with a new parser."""
    return parse_fields(rules or HeaderRules(100), block, minor)


def fields_of(block: bytes, minor: int = 1, rules: HeaderRules | None = None) -> Fields:
    result = parse(block, minor, rules)
    assert isinstance(result, Fields), result
    return result


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"GET / HTTP/1.1", RequestLine("GET", b"/", 1)),
        (b"PROPFIND /x?y HTTP/1.0", RequestLine("PROPFIND", b"/x?y", 0)),
        (b"M-SEARCH * HTTP/1.1", RequestLine("M-SEARCH", b"*", 1)),
        (b"get / HTTP/1.1", BAD_REQUEST_LINE),
        (b"GET /", BAD_REQUEST_LINE),
        (b"GET  / HTTP/1.1", BAD_REQUEST_LINE),
        (b"GET / HTTP/1.1 ", BAD_REQUEST_LINE),
        (b" GET / HTTP/1.1", BAD_REQUEST_LINE),
        (b"GET /a b HTTP/1.1", BAD_REQUEST_LINE),
        (b"GET /\x7f HTTP/1.1", BAD_REQUEST_LINE),
        (b"GET /\xc3\xa9 HTTP/1.1", BAD_REQUEST_LINE),
        (b"GET\t/ HTTP/1.1", BAD_REQUEST_LINE),
        (b"GET / http/1.1", BAD_REQUEST_LINE),
        (b"GET / HTTP/1.10", BAD_REQUEST_LINE),
        (b"GET / HTTP/11", BAD_REQUEST_LINE),
        (b"A" * 32 + b" / HTTP/1.1", RequestLine("A" * 32, b"/", 1)),
        (b"A" * 33 + b" / HTTP/1.1", BAD_REQUEST_LINE),
        (b"A" * 33 + b" / HTTP/2.0", BAD_REQUEST_LINE),
        (b"GET / HTTP/2.0", VERSION_UNKNOWN),
        (b"GET / HTTP/1.2", VERSION_UNKNOWN),
        (b"PRI * HTTP/2.0", VERSION_UNKNOWN),
        (b"", BAD_REQUEST_LINE),
    ],
)
def test_request_line(line: bytes, expected: object) -> None:
    """A request line is exactly METHOD SP target SP HTTP/1.x, or refused."""
    assert parse_request_line(line) == expected


@pytest.mark.parametrize(
    "block",
    [
        b"Host : a\r\n",
        b"Host\t: a\r\n",
        b"Host\x85: a\r\n",
        b" Host: a\r\n",
        b"Host: a\r\n b: c\r\n",
        b"Host: a\r\nX: a\r\n\tb\r\n",
        b"Host: a\nX: b\r\n",
        b"Host: a\r\nX: b\rc\r\n",
        b"Host: a\r\nX: b\x00c\r\n",
        b"Host: a\r\nX: b\x1bc\r\n",
        b"Host: a\r\nX: b\x7f\r\n",
        b"Host: a\r\n: b\r\n",
        b"Host: a\r\nX\r\n",
        b"Host: a\r\n\xc3\xa9: b\r\n",
        b"Host: a\r\nX(y): b\r\n",
        b"Host: a",
    ],
)
def test_malformed_lines(block: bytes) -> None:
    """A header line that is not exactly the grammar is refused."""
    assert parse(block) is BAD_HEADER


@pytest.mark.parametrize(
    ("block", "refusal"),
    [
        (b"", BAD_HOST),
        (HOST + HOST, BAD_HOST),
        (b"Host:\r\n", BAD_HOST),
        (b"Host: a@b\r\n", BAD_HOST),
        (b"Host: a:99999\r\n", BAD_HOST),
        (b"Host: a:\r\n", BAD_HOST),
        (b"Host: a/b\r\n", BAD_HOST),
        (b"Host: a, b\r\n", BAD_HOST),
        (b"Host: [::1\r\n", BAD_HOST),
        (HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", BAD_FRAMING),
        (HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n", BAD_FRAMING),
        (HOST + b"Content-Length: 1\r\nContent-Length: 1\r\n", BAD_FRAMING),
        *[
            (HOST + b"Content-Length: %b\r\n" % value, BAD_FRAMING)
            for value in [b"+5", b"-1", b"0x5", b"1_0", b"5,5", b"", b"9" * 20, b"1 2", b"\xb2"]
        ],
        *[
            (HOST + b"Transfer-Encoding: %b\r\n" % value, BAD_FRAMING)
            for value in [
                *(b"", b"gzip", b"identity", b"xchunked", b",chunked", b"gzip,,chunked"),
                *(b"chunked, identity", b"chunked, chunked", b"gzip, chunked, gzip"),
                *(b"gzip;q=1, chunked", b"gzip, chunked;a=b", b"g zip, chunked", b"gzip chunked"),
                b"a," * 16_000 + b"chunked, chunked",
            ]
        ],
        *[
            (HOST + b"Transfer-Encoding: %b\r\n" % value, CODING_UNKNOWN)
            for value in [b"gzip, chunked", b"a,b\t, Chunked", b"a," * 16_000 + b"chunked"]
        ],
        (HOST + b"Transfer-Encoding: chunked\r\n" * 2, BAD_FRAMING),
        (HOST + b"Connection: close, transfer-encoding\r\n", BAD_FRAMING),
        (HOST + b"Connection: Content-Length\r\n", BAD_FRAMING),
        (HOST + b"Connection: host\r\n", BAD_FRAMING),
        (HOST + b"Expect: 200-ok\r\n", EXPECTATION_FAILED),
        (HOST + b"Expect: 100-continue\r\nExpect: 100-continue\r\n", EXPECTATION_FAILED),
        (HOST + b"X: y\r\n" * 100, HEADERS_TOO_LARGE),
        (HOST + b"Connection: %b\r\n" % (b"," * 100), HEADERS_TOO_LARGE),
        (HOST + b"Connection: %b\r\n" % (b"a," * 49 + b"a") * 3, HEADERS_TOO_LARGE),
    ],
)
def test_refused_blocks(block: bytes, refusal: Refusal) -> None:
    """Ambiguous hosts, lengths, codings and expectations are refused."""
    assert parse(block) is refusal


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        (b"a", True),
        (b"A.example.", True),
        (b"my_host", True),
        (b"192.0.2.1:80", True),
        (b"[::1]", True),
        (b"[::ffff:192.0.2.1]:65535", True),
        (b"a" * 255, True),
        (b"a" * 256, False),
        (b"a:0", False),
        (b"a:65536", False),
        (b"a:", False),
        (b"::1", False),
        (b"[]", False),
        (b"[:::]", False),
        (b"[...]", False),
        (b"[1:2:3:4:5:6:7:8:9]", False),
        (b"[fe80::1%25eth0]", False),
        (b"[::1]x", False),
        (b"a%2eb", False),
        (b"u@a", False),
        (b"*", False),
    ],
)
def test_hosts(value: bytes, valid: bool) -> None:
    """A host is a name or a valid IPv4 or IPv6 address, with a valid port."""
    assert is_host(value) is valid


@pytest.mark.parametrize(
    "name",
    [
        b"X.Gateway.Plan",
        b"X~Gateway-Plan",
        b"x_gateway-plan",
        b"X-RateLimit_Limit",
        b"Proxy",
        b"Proxy_Foo",
        b"Content.Length",
        b"Transfer_Encoding",
        b"X_Original_URL",
        b"X-Original-URI",
        b"X-Original-Method",
        b"X-Forwarded-Prefix",
        b"X-Forwarded_Host",
        b"X.Real.IP",
    ],
)
def test_names_that_could_pass_for_others(name: bytes) -> None:
    """A spelling that an upstream may read as a significant name is not forwarded."""
    assert fields_of(HOST + name + b": x\r\n").forward == HOST + VIA


def test_what_proxies_say() -> None:
    """All of X-Forwarded-* is for trusted proxies, in its plain spelling, and kept apart."""
    fields = fields_of(HOST + b"X-Forwarded-Prefix: /x\r\nX_Forwarded_Host: b\r\nX-Any: y\r\n")
    assert fields.proxied == b"X-Forwarded-Prefix: /x\r\n"
    assert fields.forward == HOST + b"X-Any: y\r\n" + VIA


def test_http10_needs_no_host_and_has_no_chunks() -> None:
    """HTTP/1.0 may omit Host; it has no chunks and no expectations."""
    assert fields_of(b"", 0).host == b""
    assert not fields_of(b"Expect: 100-continue\r\n", 0).expects
    assert parse(b"Transfer-Encoding: chunked\r\n", 0) is BAD_FRAMING


def test_what_is_parsed() -> None:
    """Framing, connection and expectation are read from their fields, in any case."""
    fields = fields_of(
        b"hOST: [::1]:8080\r\ncontent-length:  5 \r\nConnection: Keep-Alive , Close\r\n"
        b"EXPECT: 100-Continue\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nx-forwarded-for: 3.3.3.3\r\n"
        b"X-Request-Id: abc-1.2_3\r\n"
    )
    assert (fields.host, fields.length, fields.chunked) == (b"[::1]:8080", 5, False)
    assert (fields.close, fields.keep, fields.expects) == (True, True, True)
    assert fields.forwarded_for == b"1.1.1.1, 2.2.2.2,3.3.3.3"
    assert fields.request_id == b"abc-1.2_3"
    assert fields_of(HOST + b"Transfer-Encoding: Chunked\r\n").chunked


@pytest.mark.parametrize("value", [b"", b"a b", b"a" * 129, b"<x>", b"a\r\nX-Request-Id: b"])
def test_unsafe_request_ids_are_dropped(value: bytes) -> None:
    """A request id that is unsafe in a log, or that comes twice, is dropped."""
    assert fields_of(HOST + b"X-Request-Id: %b\r\n" % value).request_id == b""


def test_a_request_id_needs_no_escape_in_json() -> None:
    """Error bodies contain it unescaped: an id that JSON would escape is dropped."""
    kept = ""
    for byte in range(256):
        parsed = parse(HOST + b"X-Request-Id: a%cb\r\n" % byte)
        if isinstance(parsed, Fields) and parsed.request_id:
            assert parsed.request_id == b"a%cb" % byte
            kept += chr(byte)
    assert kept == f"-.{string.digits}{string.ascii_uppercase}_{string.ascii_lowercase}"
    assert json.dumps(kept) == f'"{kept}"'


def test_what_is_forwarded() -> None:
    """Fields of this connection or of the gateway, and keys, are dropped; the rest is rebuilt."""
    fields = fields_of(
        b"Host:  a \r\nAccept:*/*\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n"
        b"Keep-Alive: timeout=5\r\nProxy-Authorization: x\r\nProxy-Foo: x\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: x\r\nTrailer: X\r\nAuthorization: Bearer k\r\napiKey: k\r\n"
        b"X-Gateway-Plan: enterprise\r\nx_gateway_key_id: 1\r\nX-GATEWAY-Scopes: all\r\n"
        b"X-RateLimit-Limit: 1\r\nForwarded: for=1\r\nX-Real-IP: 1.2.3.4\r\nContent_Length: 7\r\n"
        b"X-Original-URL: /admin\r\nX-HTTP-Method-Override: GET\r\nX-Rewrite-URL: /admin\r\n"
        b"X-Forwarded-Proto: https\r\ntraceparent: 00-1\r\nAccept: text/html\r\n"
    )
    assert fields.forward == (
        b"Host: a\r\nAccept: */*\r\ntraceparent: 00-1\r\nAccept: text/html\r\n" + VIA
    )
    assert fields.proxied == b"X-Real-IP: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n"
    assert fields.forwarded == b"for=1"
    assert fields.length is None


def test_connection_names_a_bounded_number_of_fields() -> None:
    """It may name as many as the bound on fields; named fields are not forwarded."""
    names = b",".join(b"X-%d" % number for number in range(100))
    assert fields_of(HOST + b"Connection: %b\r\nX-99: y\r\n" % names).forward == HOST + VIA


def test_connection_cannot_remove_the_gateways_fields() -> None:
    """Naming the gateway's fields in Connection removes only the client's."""
    fields = fields_of(
        HOST + b"Connection: close, Authorization, apiKey, X-Forwarded-For, X-Gateway-Plan\r\n"
        b"Authorization: Bearer k\r\nX-Forwarded-For: 1.1.1.1\r\n"
    )
    assert fields.credential == b"k"
    assert fields.forwarded_for == b"1.1.1.1"
    assert fields.forward == HOST + VIA


@pytest.mark.parametrize(
    ("block", "credential"),
    [
        (b"", KEY_MISSING),
        (b"Authorization: Bearer k\r\n", b"k"),
        (b"authorization: bEARER  k \r\n", b"k"),
        (b"apiKey: k\r\n", b"k"),
        (b"APIKEY: k\r\n", b"k"),
        (b"apiKey: k\r\nAuthorization: Bearer k\r\n", b"k"),
        (b"apiKey: k\r\nAuthorization: Bearer l\r\n", KEY_CONFLICTING),
        (b"apiKey: k\r\nAuthorization: Basic k\r\n", KEY_CONFLICTING),
        (b"apiKey: k\r\napiKey: l\r\n", KEY_CONFLICTING),
        (b"apiKey:\r\n", KEY_MISSING),
        (b"apiKey:\r\nAuthorization: Bearer k\r\n", KEY_CONFLICTING),
        (b"Authorization: Bearer k\r\nAuthorization: Bearer k\r\n", KEY_CONFLICTING),
        (b"Authorization: Basic abc\r\n", KEY_MALFORMED),
        (b"Authorization: Bearer\r\n", KEY_MALFORMED),
        (b"Authorization: k\r\n", KEY_MALFORMED),
        (b"api_Key: k\r\n", KEY_MISSING),
    ],
)
def test_credential(block: bytes, credential: object) -> None:
    """One key in either form; two that differ, or an invalid form, is a failed authentication.

    The same where something else of the head is refused.
    """
    assert fields_of(HOST + block).credential == credential
    assert received_credential(b"G\r\n" + HOST + block) == credential


class _Sink:
    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.seen.append((name, value))


TOKEN = st.text("abcXYZ019-_.", min_size=1, max_size=8).map(str.encode)
VALUE = st.text('abc XYZ,;="/\t', max_size=12).map(str.encode)


@given(st.lists(st.tuples(TOKEN, VALUE), max_size=6))
def test_agrees_with_httptools(pairs: list[tuple[bytes, bytes]]) -> None:
    """What is parsed here is parsed the same by another parser."""
    pairs = [(b"X" + name, value) for name, value in pairs]
    block = HOST + b"".join(b"%b:%b\r\n" % pair for pair in pairs)
    sink = _Sink()
    httptools.HttpRequestParser(sink).feed_data(b"GET / HTTP/1.1\r\n" + block + b"\r\n")
    expected = [(name, value.strip(b" \t")) for name, value in sink.seen]
    ours = fields_of(block).forward.removesuffix(VIA).split(b"\r\n")[:-1]
    assert [tuple(line.split(b": ", 1)) for line in ours] == expected


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value(data: bytes) -> None:
    """No bytes raise an exception."""
    assert isinstance(parse_request_line(data), RequestLine | Refusal)
    for block in (data, HOST + data + b"\r\n"):
        assert isinstance(parse(block), Fields | Refusal)


# -- what upstreams believe ------------------------------------------------------------------------
def test_fields_of_trusted_proxies() -> None:
    """Fields that upstreams trust are kept apart, and so are those of a listed prefix."""
    block = HOST + b"CF-Connecting-IP: 1.1.1.1\r\nx-envoy-retry-on: 5xx\r\nX-Any: y\r\n"
    fields = fields_of(block)
    assert fields.forward == HOST + b"X-Any: y\r\n" + VIA
    assert fields.proxied == b"CF-Connecting-IP: 1.1.1.1\r\nx-envoy-retry-on: 5xx\r\n"
    rules = HeaderRules(100, trusted_only=("X-Any",))
    assert fields_of(block, rules=rules).proxied == b"X-Any: y\r\n"


def test_a_header_that_counts_comes_once() -> None:
    """Of two values, the upstream could use the one that was not counted: so it is refused."""
    rules = HeaderRules(100, counted=("x-tenant", "x-host"))
    line = b"X-Tenant: a\r\n"
    for lines in (line + b"x-tenant: b\r\n", line * 2, line * 3, b"X-Host: a\r\n" * 2):
        for key in (b"", b"Authorization: Bearer abc\r\n"):
            refused = fields_of(HOST + key + lines, rules=rules)
            assert (refused.fault, refused.bare) == (HEADER_REPEATED, False)
            # Neither value decides anything else of the refusal.
            assert list((refused.counted or {}).values()) in [[(b"", False)], [(b"", True)]]
    assert fields_of(HOST + line + b"X-Other: a\r\n" * 2, rules=rules).fault is None
    for spelling in (b"X_Tenant", b"x.tenant", b"X~TENANT"):
        fields = fields_of(HOST + line + spelling + b": b\r\n", rules=rules)
        assert fields.counted == {b"x-tenant": (b"a", False)}
        assert fields.forward == HOST + line + VIA
    assert fields_of(HOST + b"X_Tenant: b\r\n").forward == HOST + b"X_Tenant: b\r\n" + VIA


def test_what_counts_is_what_is_forwarded() -> None:
    """A header that Connection removes counts as absent; a trusted proxy's counts as such."""
    rules = HeaderRules(100, counted=("x-tenant", "x-host"))
    fields = fields_of(HOST + b"Connection: x-tenant\r\nX-Tenant: a\r\nX-Host: b\r\n", rules=rules)
    assert fields.counted == {b"x-tenant": (b"", False), b"x-host": (b"b", True)}
    assert fields.forward == HOST + VIA
    assert fields.proxied == b"X-Host: b\r\n"
    secret = fields_of(HOST + b"X-Tenant: %b\r\n" % KEY, rules=rules)
    assert (secret.counted, secret.forward) == ({b"x-tenant": (b"", False)}, HOST + VIA)
    with_key = HOST + b"X-Tenant: a\r\nAuthorization: Bearer k\r\n"
    assert fields_of(with_key, rules=rules).counted == {b"x-tenant": (b"a", False)}


def test_connection_does_not_remove_what_a_trusted_proxy_says() -> None:
    """It counts as it is forwarded: a client could else name it in Connection and evade its limit.

    Some proxies pass on their clients' Connection.
    """
    rules = HeaderRules(100, counted=("x-tenant", "x-host"))
    block = b"Connection: X-Host, close, x-tenant\r\nX-Host: b\r\nX-Tenant: a\r\n"
    fields = fields_of(HOST + block, rules=rules)
    assert fields.counted == {b"x-tenant": (b"", False), b"x-host": (b"b", True)}
    assert (fields.forward, fields.proxied) == (HOST + VIA, b"X-Host: b\r\n")


# -- Via -------------------------------------------------------------------------------------------
def test_via() -> None:
    """The gateway adds itself after the other entries, with the version that it received."""
    block = HOST + b"via: 1.0 fred, 1.1 p.example (x)\r\nX: y\r\nVia: 2 z\r\n"
    assert fields_of(block).forward == (
        HOST + b"X: y\r\nVia: 1.0 fred, 1.1 p.example (x)\r\nVia: 2 z\r\n" + VIA
    )
    assert fields_of(b"", 0).forward == b"Via: 1.0 rate-limiting-gateway\r\n"
    assert fields_of(HOST + b"Connection: via\r\nVia: 1.1 a\r\n").forward == HOST + VIA


@pytest.mark.parametrize(
    ("item", "most"), [(b"1.1 " + PSEUDONYM.upper(), MOST_GATEWAYS), (b"1.1 a", MOST_PROXIES)]
)
def test_loops(item: bytes, most: int) -> None:
    """After too many proxies, or too often through this one, a request is refused."""
    for count, expected in ((most, Fields), (most + 1, Refusal)):
        one = b"Via: %b\r\n" % b",".join([item] * count)
        several = (b"Via: %b\r\n" % item) * count
        for block in (one, several):
            assert isinstance(parse(HOST + block), expected)
    assert parse(HOST + one) is LOOP_DETECTED


# -- secrets in the wrong place --------------------------------------------------------------------
@pytest.mark.parametrize(
    "line",
    [
        b"X-Api-Key: %b",
        b"api_key: %b",
        b"api-key: Bearer %b,",
        b"Cookie: theme=dark; key=%b",
        b"Referer: https://a.example/?apiKey=%b&x=y",
        b"Sec-WebSocket-Protocol: key, %b",
        b"X-Forwarded-Host: %b",
        b"Via: 1.1 %b",
        # A token, which may be the name of a field.
        b"X%%%b: y",
    ],
)
@pytest.mark.parametrize("key", [KEY, KEY.upper(), KEY[:11] + KEY[12:], KEY.replace(b"_", b"%5F")])
def test_no_key_is_forwarded(line: bytes, key: bytes) -> None:
    """A field that contains a key is dropped, whatever its name and the key's spelling."""
    fields = fields_of(HOST + line % key + b"\r\nX-Any: y\r\n")
    assert fields.forward == HOST + b"X-Any: y\r\n" + VIA
    assert fields.proxied == b""


def test_no_key_is_a_name() -> None:
    """As a host or a request id, a key would be forwarded, and logged."""
    assert parse(b"Host: %b\r\n" % KEY) is BAD_HOST
    assert fields_of(HOST + b"X-Request-Id: %b\r\n" % KEY).request_id == b""


def test_what_only_resembles_a_key() -> None:
    """A key's public id, and similar words, are forwarded."""
    lines = b"X-Id: gwk_production_7h3k9m2p4q6r\r\nX: gwk_tool_1\r\nY: gwk_a_b_c\r\n"
    assert fields_of(HOST + lines).forward == HOST + lines + VIA


def test_the_consoles_session_stays_here() -> None:
    """All cookies are forwarded except the console's, which browsers send here."""
    fields = fields_of(
        HOST + b"Cookie: a=1; gateway_session=secret; b=2\r\nX: gateway_session=x\r\n"
        b"cookie: __Host-gateway_session=secret\r\nCookie: gateway_session2=c\r\n"
    )
    assert fields.forward == (
        HOST + b"Cookie: a=1; b=2\r\nX: gateway_session=x\r\nCookie: gateway_session2=c\r\n" + VIA
    )


# -- what a block may cost -------------------------------------------------------------------------
LENGTH = 32_000
PLAIN = HOST + b"X: %b\r\n" % (b"abcdefgh" * (LENGTH // 8))
HEAVY = {
    "fields of its own": b"".join(b"baggage: %b\r\n" % (b"a," * 160) for _ in range(90)),
    **{
        f"{name} of {unit!r}": b"%b: %b\r\n" % (name.encode(), unit * (LENGTH // len(unit)))
        for name, unit in (
            ("X-Forwarded-For", b","),
            ("X-Forwarded-For", b"10.0.0.1,"),
            ("Forwarded", b","),
            ("Forwarded", b"for=a,"),
            ("Forwarded", b'for="a,'),
            ("Connection", b"a,"),
            ("Transfer-Encoding", b"a,"),
            ("Transfer-Encoding", b"a , "),
            ("Expect", b"a,"),
            ("Upgrade", b"a,"),
            ("Via", b"1.1 a,"),
            ("Cookie", b"a=b;"),
            ("Cookie", b"gateway_session=b;"),
            ("X", b"gwk_"),
            ("X", b"%"),
            ("X", b"%67wk%5F"),
            ("X", b"%25"),
            ("X", b"gwk_" + b"a" * 34 + b"_" + b"a" * 18 + b"_" + b"a" * 15 + b"-"),
            ("authorization", b"Bearer gwk_"),
            ("apiKey", b"gwk_"),
        )
    },
}


@pytest.mark.parametrize("name", HEAVY)
def test_no_block_is_expensive(name: str) -> None:
    """A block costs at most a few times as much as a plain one of 32 KB.

    The aim is four times; the test allows more.
    """
    parser = FieldParser(HeaderRules(100, counted=("x-tenant",)))
    heavy = HOST + HEAVY[name]
    assert cost(lambda: parser.parse(heavy, 1), lambda: parser.parse(PLAIN, 1), 10) < 10


def test_names_that_were_not_seen_before_are_not_expensive() -> None:
    """The same for names that no cache has: each block has others."""
    parser = FieldParser(HeaderRules(100))
    blocks = (
        HOST + b"".join(b"N%d-%d: x\r\n" % (number, n) for n in range(90))
        for number in itertools.count()
    )
    assert cost(lambda: parser.parse(next(blocks), 1), lambda: parser.parse(PLAIN, 1), 10) < 10


@pytest.mark.parametrize(
    "line", [b"a:\r\n", b"apikey:x\r\n", b"Authorization: x\r\n", b"authorizatio", b" \t", b"\r\na"]
)
@pytest.mark.parametrize("start", [b"\r\n", b"\r\napikey:"])
def test_no_refused_head_is_expensive(line: bytes, start: bytes) -> None:
    """To look for its key takes at most five times as long as to parse a plain one of 32 KB.

    The test allows more.
    """
    parser = FieldParser(HeaderRules(100))
    refused = b"GET / HTTP/1.1" + start + line * (LENGTH // len(line)) + b"\r\n"
    assert cost(lambda: received_credential(refused), lambda: parser.parse(PLAIN, 1), 20) < 20


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (b"", KEY_MISSING),
        (b"GET / HTTP/1.1", KEY_MISSING),
        (b"apiKey: k\r\n", KEY_MISSING),  # it is in the place of the request line
        (b"G\r\nAPIKEY:\tk \r\n", b"k"),
        (b"G\r\nauthorization: bearer  k\r\nX", b"k"),
        (b"G\r\nAuthorization: Bearer k\r\napiKey: l\r\n\r\n", KEY_CONFLICTING),
        (b"G\r\napiKey: k", KEY_MISSING),
        (b"G\r\napiKey: k\n\r\n", KEY_MISSING),
        (b"G\napiKey: k\r\n", KEY_MISSING),
        (b"G\r\n apiKey: k\r\n", KEY_MISSING),
        (b"G\r\napiKey : k\r\n", KEY_MISSING),
        (b"G\r\nX-apiKey: k\r\n", KEY_MISSING),
        (b"G\r\napiKey: k\0\r\n", KEY_MISSING),
        (b"G\r\n\r\napiKey: k\r\n", KEY_MISSING),
        (b"\r\n\r\napiKey: k\r\n", KEY_MISSING),
    ],
)
def test_the_key_of_a_refused_head(received: bytes, expected: bytes | Refusal) -> None:
    """It is in a whole, valid line before the head's end; nothing else is one."""
    assert received_credential(received) == expected
