"""The WebSocket handshake: which requests are one, which are refused, which 101 is accepted."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.headers import HeaderRules
from gateway.errors import BAD_FRAMING, BAD_WEBSOCKET, UPGRADE_REQUIRED, Refusal
from gateway.http1.field_parser import FieldParser
from gateway.http1.head import Fields
from gateway.http1.response import ResponseHead, parse_response_head
from gateway.http1.websocket import accept_of, handshake_lines, switch_fault

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
HOST = b"Host: a\r\n"
UPGRADE = b"Upgrade: websocket\r\n"
CONNECTION = b"Connection: Upgrade\r\n"
VERSION = b"Sec-WebSocket-Version: 13\r\n"
KEY_LINE = b"Sec-WebSocket-Key: " + KEY + b"\r\n"
GOOD = HOST + UPGRADE + CONNECTION + VERSION + KEY_LINE


def parse(block: bytes, minor: int = 1) -> Fields | Refusal:
    return FieldParser(HeaderRules(100)).parse(block, minor)


def websocket_of(block: bytes, minor: int = 1) -> bytes | Refusal | None:
    """The `websocket` of a header block."""
    fields = parse(block, minor)
    return fields.websocket if isinstance(fields, Fields) else fields


def with_upgrade(value: bytes) -> bytes:
    return GOOD.replace(UPGRADE, b"Upgrade:" + value + b"\r\n")


def with_connection(value: bytes) -> bytes:
    return GOOD.replace(CONNECTION, b"Connection:" + value + b"\r\n")


def with_version(value: bytes) -> bytes:
    return GOOD.replace(VERSION, b"Sec-WebSocket-Version:" + value + b"\r\n")


def with_key(value: bytes) -> bytes:
    return GOOD.replace(KEY_LINE, b"Sec-WebSocket-Key:" + value + b"\r\n")


@pytest.mark.parametrize(
    "block",
    [
        GOOD,
        b"".join(reversed([HOST, UPGRADE, CONNECTION, VERSION, KEY_LINE])),
        GOOD.lower().replace(KEY.lower(), KEY),
        GOOD.upper().replace(KEY.upper(), KEY),
        with_upgrade(b"WebSocket"),
        with_upgrade(b" WEBSOCKET"),
        with_upgrade(b"\twebsocket\t "),
        with_connection(b"upgrade"),
        with_connection(b" UPGRADE"),
        with_connection(b" keep-alive, Upgrade"),
        with_connection(b" Upgrade, keep-alive"),
        with_connection(b"\tkeep-alive\t,\tupgrade\t"),
        with_connection(b",,upgrade,"),
        with_connection(b" Upgrade, Upgrade"),
        GOOD + b"Connection: keep-alive\r\n",
        with_connection(b" keep-alive") + CONNECTION,
        with_connection(b" Upgrade, Sec-WebSocket-Key"),
        with_version(b"13"),
        with_version(b"13 "),
        with_version(b" \t13\t "),
        with_key(KEY),
        with_key(b"\t" + KEY + b" \t"),
        GOOD + b"Sec-WebSocket-Protocol: chat, superchat\r\n",
        GOOD + b"Sec-WebSocket-Extensions: permessage-deflate\r\n",
        GOOD + b"Sec_WebSocket_Key: x\r\n",
        GOOD + b"Sec_WebSocket_Version: 8\r\n",
        GOOD + b"Origin: https://example.org\r\n",
    ],
)
def test_a_good_handshake(block: bytes) -> None:
    """Case, order, blanks, further options and further fields do not matter."""
    assert websocket_of(block) == KEY


@pytest.mark.parametrize(
    "block",
    [
        HOST,
        HOST + UPGRADE,
        HOST + CONNECTION,
        HOST + CONNECTION + VERSION + KEY_LINE,
        HOST + UPGRADE + VERSION + KEY_LINE,
        with_upgrade(b" h2c"),
        with_upgrade(b" h2c") + b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        with_upgrade(b" TLS/1.0"),
        with_upgrade(b" IRC/6.9, RTA/x11"),
        with_upgrade(b" websocket, h2c"),
        with_upgrade(b" h2c, websocket"),
        with_upgrade(b" websocket, websocket"),
        with_upgrade(b" websocket,"),
        with_upgrade(b",websocket"),
        with_upgrade(b" websocket/13"),
        with_upgrade(b" websockets"),
        with_upgrade(b" xwebsocket"),
        with_upgrade(b" web socket"),
        with_upgrade(b' "websocket"'),
        with_upgrade(b" websocket;q=1"),
        with_upgrade(b" websoc\xe2\x84\xaaet"),
        with_upgrade(b""),
        with_upgrade(b" "),
        GOOD + UPGRADE,
        GOOD + b"Upgrade: h2c\r\n",
        GOOD + b"Upgrade:\r\n",
        GOOD.replace(b"Upgrade: websocket", b"Up_grade: websocket"),
        with_connection(b""),
        with_connection(b" keep-alive"),
        with_connection(b" close"),
        with_connection(b" close, upgrade"),
        with_connection(b" upgrade") + b"Connection: close\r\n",
        with_connection(b" upgraded"),
        with_connection(b" xupgrade"),
        with_connection(b' "upgrade"'),
        with_connection(b" upgrade;x"),
        with_connection(b" keep-alive upgrade"),
        with_connection(b" keep-alive; upgrade"),
        with_connection(b" websocket"),
    ],
)
def test_no_websocket_is_requested(block: bytes) -> None:
    """A request that is not exactly a WebSocket handshake is forwarded as a plain one."""
    assert websocket_of(block) is None


@pytest.mark.parametrize(
    "version",
    [
        *(b"0", b"4", b"7", b"8", b"12", b"14", b"130", b"1", b"3", b"-13", b"+13", b"013"),
        *(b"13.0", b"0x0d", b"13, 8", b"8, 13", b"13, 13", b"13,", b",13", b"1 3", b'"13"', b""),
        *(b"thirteen", b"\xb2\xb3", b"13;8", b"13\x85"),
    ],
)
def test_other_versions(version: bytes) -> None:
    """Only 13, once, in two digits: the refusal of another names the supported version."""
    assert websocket_of(with_version(version)) is UPGRADE_REQUIRED


@pytest.mark.parametrize(
    "block",
    [
        GOOD.replace(VERSION, b""),
        GOOD + VERSION,
        GOOD + b"Sec-WebSocket-Version: 8\r\n",
        GOOD.replace(VERSION, b"Sec_WebSocket_Version: 13\r\n"),
        # The draft of 2010, which had neither key nor version in these fields.
        HOST + UPGRADE + CONNECTION + b"Sec-WebSocket-Key1: 4 @1  46546xW%0l 1 5\r\n",
    ],
)
def test_no_version_or_two(block: bytes) -> None:
    """There must be exactly one version."""
    assert websocket_of(block) is UPGRADE_REQUIRED


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"=",
        b"==",
        b"x",
        KEY[:-1],
        KEY[:-2],
        KEY + b"=",
        KEY[1:],
        b"A" + KEY,
        base64.b64encode(b""),
        base64.b64encode(b"k" * 15),
        base64.b64encode(b"k" * 17),
        base64.b64encode(b"k" * 18),
        base64.b64encode(b"k" * 32),
        b"k" * 16,
        b"k" * 24,
        b"=" * 24,
        KEY.replace(b"G", b"-"),
        KEY.replace(b"G", b"_"),
        KEY.replace(b"G", b"!"),
        KEY.replace(b"G", b" "),
        KEY.replace(b"G", b"\t"),
        KEY.replace(b"G", b"\xc3"),
        KEY.replace(b"G", b"="),
        b'"' + KEY + b'"',
        KEY + b", " + KEY,
        KEY + b",",
        b"," + KEY,
        KEY + b";x",
        KEY.hex().encode(),
        b"A" * 10_000 + b"==",
    ],
)
def test_bad_keys(key: bytes) -> None:
    """A key is the base64 of sixteen bytes, and nothing else."""
    assert websocket_of(with_key(b" " + key)) is BAD_WEBSOCKET


@pytest.mark.parametrize(
    "block",
    [
        GOOD.replace(KEY_LINE, b""),
        GOOD + KEY_LINE,
        GOOD + b"Sec-WebSocket-Key:\r\n",
        GOOD + b"SEC-WEBSOCKET-KEY: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
        GOOD.replace(KEY_LINE, b"Sec_WebSocket_Key: " + KEY + b"\r\n"),
    ],
)
def test_no_key_or_two(block: bytes) -> None:
    """There must be one key, or it would not be clear which one was answered."""
    assert websocket_of(block) is BAD_WEBSOCKET


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 0\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"content-length: 99999999999\r\n",
    ],
)
def test_a_handshake_with_a_body(framing: bytes) -> None:
    """A body could be read as frames, and frames as a body: it is refused."""
    assert websocket_of(GOOD + framing) is BAD_WEBSOCKET


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: +5\r\n",
        b"Connection: Content-Length\r\n",
    ],
)
def test_bad_framing_stays_bad(lines: bytes) -> None:
    """Framing that is refused in any request is refused in a handshake."""
    assert websocket_of(GOOD + lines) is BAD_FRAMING


def test_http10_has_no_upgrade() -> None:
    """RFC 9110, 7.8: an Upgrade in an HTTP/1.0 request is ignored, valid or not."""
    assert websocket_of(GOOD, minor=0) is None
    assert websocket_of(GOOD + KEY_LINE, minor=0) is None


def test_the_handshake_is_rebuilt() -> None:
    """Its checked fields are rebuilt; unchecked ones are forwarded."""
    more = b"Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: x\r\nOrigin: o\r\n"
    fields = parse(GOOD + b"Sec_WebSocket-Key: x\r\n" + more)
    assert isinstance(fields, Fields)
    assert fields.forward == HOST + more + b"Via: 1.1 rate-limiting-gateway\r\n"
    assert handshake_lines(KEY) == (
        CONNECTION + UPGRADE + b"Sec-WebSocket-Version: 13\r\n" + KEY_LINE
    )


@given(st.binary(min_size=16, max_size=16))
def test_every_key_of_sixteen_bytes(key: bytes) -> None:
    """Any sixteen bytes make a handshake, answered by RFC 6455's formula."""
    text = base64.b64encode(key)
    assert websocket_of(with_key(text)) == text
    digest = hashlib.sha1(text + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    assert accept_of(text) == base64.b64encode(digest)


@given(st.binary(max_size=40).filter(lambda key: len(key) != 16))
def test_no_key_of_another_size(key: bytes) -> None:
    """Other lengths do not."""
    assert websocket_of(with_key(base64.b64encode(key))) is BAD_WEBSOCKET


@given(
    st.lists(
        st.sampled_from(
            [UPGRADE, CONNECTION, VERSION, KEY_LINE, b"Upgrade: h2c\r\n", b"Content-Length: 0\r\n"]
        ),
        max_size=8,
    )
)
def test_only_the_whole_is_a_handshake(lines: list[bytes]) -> None:
    """Of all combinations of the parts, only each of them once gives a key."""
    wanted = {UPGRADE: 1, VERSION: 1, KEY_LINE: 1}
    wanted |= {b"Upgrade: h2c\r\n": 0, b"Content-Length: 0\r\n": 0}
    whole = CONNECTION in lines and all(lines.count(line) == n for line, n in wanted.items())
    assert (websocket_of(HOST + b"".join(lines)) == KEY) is whole


def test_the_example_of_the_rfc() -> None:
    """RFC 6455, 1.3 has an example; that of 4.1 has a bit set that no encoder sets."""
    assert accept_of(KEY) == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    example = b"AQIDBAUGBwgJCgsMDQ4PEC=="
    assert websocket_of(with_key(example)) == example


# -- the upstream's answer ------------------------------------------------------------------------
STATUS = b"HTTP/1.1 101 Switching Protocols\r\n"
ACCEPT = b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
AGREED = STATUS + UPGRADE + CONNECTION + ACCEPT


def fault_of(raw: bytes) -> str | None:
    """The fault of a 101, found by the parser or the check."""
    head = parse_response_head(raw)
    return switch_fault(raw, head, KEY) if isinstance(head, ResponseHead) else head


@pytest.mark.parametrize(
    "raw",
    [
        AGREED,
        STATUS + ACCEPT + CONNECTION + UPGRADE,
        AGREED.replace(b"Switching Protocols", b"Web Socket Protocol Handshake"),
        AGREED.replace(b" Switching Protocols", b""),
        AGREED.replace(UPGRADE, b"upgrade:WebSocket\r\n"),
        AGREED.replace(CONNECTION, b"connection:\tkeep-alive,\tUPGRADE\t\r\n"),
        AGREED + b"Connection: keep-alive\r\n",
        AGREED + b"Sec-WebSocket-Protocol: chat\r\nSet-Cookie: a=b\r\n",
        AGREED + b"Sec-WebSocket-Extensions: permessage-deflate\r\n",
    ],
)
def test_a_valid_101(raw: bytes) -> None:
    """Upgrade, Connection and the accept value of this key."""
    assert fault_of(raw) is None


HOSTILE_101 = [
    STATUS,
    STATUS + UPGRADE + CONNECTION,
    STATUS + UPGRADE + ACCEPT,
    STATUS + CONNECTION + ACCEPT,
    AGREED + ACCEPT,
    AGREED + UPGRADE,
    AGREED + b"Upgrade: h2c\r\n",
    AGREED.replace(UPGRADE, b"Upgrade: h2c\r\n"),
    AGREED.replace(UPGRADE, b"Upgrade: websocket, h2c\r\n"),
    AGREED.replace(UPGRADE, b"Upgrade: websockets\r\n"),
    AGREED.replace(UPGRADE, b"Upgrade:\r\n"),
    AGREED.replace(CONNECTION, b"Connection: close\r\n"),
    AGREED.replace(CONNECTION, b"Connection: upgraded\r\n"),
    AGREED.replace(CONNECTION, b"Connection: keep-alive\r\n"),
    AGREED.replace(CONNECTION, b"Connection: Upgrade, Sec-WebSocket-Accept\r\n"),
    AGREED.replace(b"s3pP", b"s3pp"),
    AGREED.replace(b"xOo=", b"xOo"),
    AGREED.replace(ACCEPT, b"Sec-WebSocket-Accept: " + KEY + b"\r\n"),
    AGREED.replace(ACCEPT, b"Sec-WebSocket-Accept:\r\n"),
    AGREED.replace(ACCEPT, ACCEPT.lower()),
    AGREED.replace(b"xOo=", b"xOo=, s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
    AGREED.replace(b"Sec-WebSocket-Accept", b"Sec_WebSocket_Accept"),
    AGREED + b"Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n",
    AGREED + b"Content-Length: 0\r\n",
    AGREED + b"Content-Length: 5\r\n",
    AGREED + b"Transfer-Encoding: chunked\r\n",
    AGREED + b"X: a\x00b\r\n",
    AGREED + b" folded\r\n",
    AGREED.replace(b"HTTP/1.1", b"HTTP/1.0"),
]


@pytest.mark.parametrize("raw", HOSTILE_101)
def test_an_invalid_101(raw: bytes) -> None:
    """Anything less, more or other is invalid, for a stated reason."""
    assert fault_of(raw)
