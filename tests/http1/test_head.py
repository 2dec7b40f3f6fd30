"""Request heads: what is understood, what is forwarded, what is refused."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from gateway.http1 import head
from gateway.http1.head import Fields, RequestLine, is_host, parse_fields, parse_request_line

HOST = b"Host: a\r\n"


def fields_of(block: bytes, minor: int = 1) -> Fields:
    result = parse_fields(block, minor, 100)
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
    assert parse_fields(block, 1, 100) is BAD_HEADER


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
            for value in [b"xchunked", b",chunked", b"chunked, identity", b"gzip, chunked", b""]
        ],
        (HOST + b"Transfer-Encoding: gzip\r\n", CODING_UNKNOWN),
        (HOST + b"Transfer-Encoding: identity\r\n", CODING_UNKNOWN),
        (HOST + b"Transfer-Encoding: chunked\r\n" * 2, BAD_FRAMING),
        (HOST + b"Connection: close, transfer-encoding\r\n", BAD_FRAMING),
        (HOST + b"Connection: Content-Length\r\n", BAD_FRAMING),
        (HOST + b"Connection: host\r\n", BAD_FRAMING),
        (HOST + b"Expect: 200-ok\r\n", EXPECTATION_FAILED),
        (HOST + b"Expect: 100-continue\r\nExpect: 100-continue\r\n", EXPECTATION_FAILED),
        (HOST + b"X: y\r\n" * 100, HEADERS_TOO_LARGE),
    ],
)
def test_refused_blocks(block: bytes, refusal: Refusal) -> None:
    """Hosts, lengths, codings and expectations that leave a doubt are refused."""
    assert parse_fields(block, 1, 100) is refusal


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
    """A host is a name, an IPv4 address or an IPv6 one that is one, with a port that can be."""
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
    """A spelling that an upstream may take for a name that decides something does not go on."""
    assert fields_of(HOST + name + b": x\r\n").forward == HOST


def test_what_proxies_say() -> None:
    """All of X-Forwarded-* is a proxy's word, in its plain spelling, and kept apart."""
    fields = fields_of(HOST + b"X-Forwarded-Prefix: /x\r\nX_Forwarded_Host: b\r\nX-Any: y\r\n")
    assert fields.proxied == b"X-Forwarded-Prefix: /x\r\n"
    assert fields.forward == HOST + b"X-Any: y\r\n"


def test_http10_needs_no_host_and_knows_no_chunks() -> None:
    """HTTP/1.0 may leave out Host; chunks and expectations are not its own."""
    assert fields_of(b"", 0).host == b""
    assert not fields_of(b"Expect: 100-continue\r\n", 0).expects
    assert parse_fields(b"Transfer-Encoding: chunked\r\n", 0, 100) is BAD_FRAMING


def test_what_is_understood() -> None:
    """Framing, connection and expectation are read from their fields, in any case."""
    fields = fields_of(
        b"hOST: [::1]:8080\r\ncontent-length:  5 \r\nConnection: Keep-Alive , Close\r\n"
        b"EXPECT: 100-Continue\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nx-forwarded-for: 3.3.3.3\r\n"
        b"X-Request-Id: abc-1.2_3\r\n"
    )
    assert (fields.host, fields.length, fields.chunked) == (b"[::1]:8080", 5, False)
    assert (fields.close, fields.keep, fields.expects) == (True, True, True)
    assert [item.strip() for item in fields.forwarded_for] == ["1.1.1.1", "2.2.2.2", "3.3.3.3"]
    assert fields.request_id == b"abc-1.2_3"
    assert fields_of(HOST + b"Transfer-Encoding: Chunked\r\n").chunked


@pytest.mark.parametrize("value", [b"", b"a b", b"a" * 129, b"<x>", b"a\r\nX-Request-Id: b"])
def test_unsafe_request_ids_are_dropped(value: bytes) -> None:
    """A request id that could do harm in a log, or that comes twice, is not kept."""
    assert fields_of(HOST + b"X-Request-Id: %b\r\n" % value).request_id == b""


def test_what_goes_on() -> None:
    """Fields of this connection or of the gateway, and keys, stay; the rest goes on, rebuilt."""
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
        b"Host: a\r\nAccept: */*\r\ntraceparent: 00-1\r\nAccept: text/html\r\n"
    )
    assert fields.proxied == b"X-Real-IP: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n"
    assert fields.others[b"accept"] == b"*/*"
    assert fields.length is None


def test_connection_cannot_take_away_what_is_ours() -> None:
    """Naming our fields in Connection takes off the client's, which never went on; no more."""
    fields = fields_of(
        HOST + b"Connection: close, Authorization, apiKey, X-Forwarded-For, X-Gateway-Plan\r\n"
        b"Authorization: Bearer k\r\nX-Forwarded-For: 1.1.1.1\r\n"
    )
    assert fields.credential == b"k"
    assert fields.forwarded_for == ("1.1.1.1",)
    assert fields.forward == HOST


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
    """One key in either form; two that differ, or a form that is none, is a failed attempt."""
    assert fields_of(HOST + block).credential == credential


class _Sink:
    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.seen.append((name, value))


TOKEN = st.text("abcXYZ019-_.", min_size=1, max_size=8).map(str.encode)
VALUE = st.text('abc XYZ,;="/\t', max_size=12).map(str.encode)


@given(st.lists(st.tuples(TOKEN, VALUE), max_size=6))
def test_agrees_with_httptools(pairs: list[tuple[bytes, bytes]]) -> None:
    """What is taken apart here is taken apart the same by another parser."""
    pairs = [(b"X" + name, value) for name, value in pairs]
    block = HOST + b"".join(b"%b:%b\r\n" % pair for pair in pairs)
    sink = _Sink()
    httptools.HttpRequestParser(sink).feed_data(b"GET / HTTP/1.1\r\n" + block + b"\r\n")
    expected = [(name, value.strip(b" \t")) for name, value in sink.seen]
    ours = fields_of(block).forward.split(b"\r\n")[:-1]
    assert [tuple(line.split(b": ", 1)) for line in ours] == expected


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value(data: bytes) -> None:
    """No bytes raise an exception."""
    parse_request_line(data)
    parse_fields(data, 1, 100)
    parse_fields(HOST + data + b"\r\n", 1, 100)


NEIGHBOURS = st.sampled_from(
    [
        HOST,
        b"Host: b\r\n",
        b"X-Item: 1\r\n",
        b"X: Authorization: Bearer no\r\n",
        b"Proxy-Authorization: Bearer no\r\n",
        b"Authorization: Bearer other\r\n",
        b"authorization: Basic eDp5\r\n",
        b"apiKey: key\r\n",
        b"apiKey: other\r\n",
        b"APIKEY:\r\n",
        b"Connection: Authorization, x-item\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"X-Forwarded-For: 10.1.2.3\r\n",
        b"\r\n",
        b"bad line\r\n",
        b"no end",
    ]
)


@given(
    st.lists(NEIGHBOURS, max_size=4),
    st.lists(NEIGHBOURS, max_size=4),
    st.sampled_from([b"key", b"other", b"", b" key", b"key ", b"a b", b"k\xe9y", b"k\ny"]),
    st.sampled_from([b"Authorization", b"authorization"]),
    st.sampled_from([0, 1]),
    st.integers(1, 6),
)
def test_what_is_remembered_of_other_keys_requests_changes_nothing(
    before: list[bytes], after: list[bytes], key: bytes, name: bytes, minor: int, most: int
) -> None:
    """A block means what it means alone, whatever blocks with other keys were read before it."""
    blocks = [
        b"".join([*before, b"%b: Bearer %b\r\n" % (spelled, key), *after])
        # The last spelling is not looked for, so that nothing is remembered of it.
        for spelled in (name, name, b"AUTHORIZATION")
    ]
    first, again, alone = (parse_fields(block, minor, most) for block in blocks)
    assert first == again == alone


def test_a_third_credential_is_no_less_than_a_second() -> None:
    """Where two lines contradict each other already, one line more makes nothing good."""
    lines = [b"Authorization: Bearer %b\r\n" % key for key in (b"one", b"two", b"three")]
    for _ in range(2):
        assert fields_of(HOST + b"".join(lines)).credential is KEY_CONFLICTING


def test_keys_are_not_remembered() -> None:
    """Of a block all but its key may be kept, in bounded number; with a second key nothing is."""
    for number in range(2 * head.MOST_BLOCKS):
        other = b"apiKey: sesame\r\n" if number % 2 else b""
        fields_of(HOST + b"X: %d\r\nAuthorization: Bearer sesame\r\n%b" % (number, other))
    assert 0 < len(head._blocks) <= head.MOST_BLOCKS
    assert "sesame" not in repr(head._blocks)
    size = len(head._blocks)
    fields_of(HOST + b"X: %b\r\nAuthorization: Bearer k\r\n" % (b"x" * head.MOST_BLOCK_BYTES))
    assert len(head._blocks) == size


def test_requests_with_other_keys_share_what_their_blocks_mean() -> None:
    """Two blocks that differ in the key alone are parsed once."""
    one = fields_of(HOST + b"X-A: 1\r\nAuthorization: Bearer one\r\nX-B: 2\r\n")
    two = fields_of(HOST + b"X-A: 1\r\nX-B: 2\r\nauthorization: Bearer two\r\n")
    assert one.others is two.others
    assert (one.credential, two.credential) == (b"one", b"two")
    assert two.authorization == b"Authorization: Bearer two\r\n"
