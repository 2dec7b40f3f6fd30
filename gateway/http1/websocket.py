"""Checks the WebSocket handshake (RFC 6455, section 4) of both sides.

A client's `Upgrade: websocket` is checked before it is sent to an upstream. The upstream accepts
with a 101, which must answer this very request. Frames are not read: after the handshake, bytes are
relayed (`proxy/tunnel.py`).
"""

from __future__ import annotations

import hashlib
import re
from binascii import b2a_base64
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from gateway.errors import BAD_WEBSOCKET, UPGRADE_REQUIRED, Refusal

if TYPE_CHECKING:
    from gateway.http1.response import ResponseHead

#: RFC 6455, 4.2.2: hashed with the key, so that only a server that implements the protocol answers.
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#: 4.2.1: "a base64-encoded value that, when decoded, is 16 bytes in length". The unused bits of
#: the last letter are not checked: in the RFC's example, AQIDBAUGBwgJCgsMDQ4PEC==, one is set.
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==").fullmatch
_VERSION: Final = b"13"

#: What a 426 must contain: RFC 9110, 15.5.22, "The server MUST send an Upgrade header field"; and
#: RFC 6455, 4.4, the supported versions.
REQUIRED_FIELDS: Final = b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"


def read_handshake(
    upgrades: Sequence[bytes],
    options: Collection[bytes],
    keys: Sequence[bytes],
    versions: Sequence[bytes],
    *,
    framed: bool,
) -> bytes | Refusal | None:
    """Return the handshake's key, or why it is refused; None: no WebSocket is requested.

    upgrades, keys, versions: the values of Upgrade, Sec-WebSocket-Key and Sec-WebSocket-Version
    options: the tokens of Connection, in lower case
    framed:  the request states a body's length, even 0

    An Upgrade to several protocols, or to another one, is ignored: RFC 9110, 7.8, "A server MAY
    ignore a received Upgrade header field". So is one without the connection option `upgrade`, or
    on a connection that closes after the response.
    """
    if len(upgrades) != 1 or upgrades[0].lower() != b"websocket":
        return None
    if b"upgrade" not in options or b"close" in options:
        return None
    # An upstream might read a body as a body or as frames.
    if framed:
        return BAD_WEBSOCKET
    # The version determines the form of the rest.
    if list(versions) != [_VERSION]:
        return UPGRADE_REQUIRED
    if len(keys) != 1 or not _KEY(keys[0]):
        return BAD_WEBSOCKET
    return keys[0]


def handshake_lines(key: bytes) -> bytes:
    """The lines that request a WebSocket from an upstream, in one spelling."""
    return (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n" % key
    )


def accept_of(key: bytes) -> bytes:
    """The Sec-WebSocket-Accept that answers a key: b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="."""
    digest = hashlib.sha1(key + _GUID, usedforsecurity=False).digest()
    return b2a_base64(digest, newline=False)


def switch_fault(raw: bytes, head: ResponseHead, key: bytes) -> str | None:
    """Why an upstream's 101 does not open a WebSocket; None: it does.

    raw: the head as received, including its last field's CRLF; head: the same, parsed
    """
    if not raw.startswith(b"HTTP/1.1 "):
        return "the 101 is not HTTP/1.1"
    # RFC 9110, 8.6 and RFC 9112, 6.1: neither may be in a 1xx.
    if head.length is not None or head.chunked:
        return "the 101 states a body's length"
    if [value.lower() for value in _values(raw, b"upgrade")] != [b"websocket"]:
        return "the 101 does not say Upgrade: websocket"
    options = b",".join(_values(raw, b"connection")).lower().split(b",")
    if b"upgrade" not in [option.strip(b" \t") for option in options]:
        return "the 101 does not say Connection: Upgrade"
    # Checked in the lines that the client gets and checks, too.
    if _values(b"\r\n" + head.forward, b"sec-websocket-accept") != [accept_of(key)]:
        return "the 101 does not have the Sec-WebSocket-Accept of this request"
    return None


def _values(raw: bytes, name: bytes) -> list[bytes]:
    """The values of all fields of this name, in order. The first line is skipped."""
    lines = (line.partition(b":") for line in raw.split(b"\r\n")[1:])
    return [value.strip(b" \t") for key, _, value in lines if key.lower() == name]
