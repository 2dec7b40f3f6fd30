"""A WebSocket's handshake: the fields of a client, and the answer of an upstream."""

from __future__ import annotations

from typing import Final

from gateway.http1.websocket import accept_of
from tests.kit.upstream import Exchange
from tests.kit.wire import Header

#: The one of RFC 6455, 1.2.
KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE: Final[tuple[Header, ...]] = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
)
#: The answer that agrees to it.
AGREED: Final = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept_of(KEY.encode())
)


async def switch(exchange: Exchange) -> None:
    """A script: agree to HANDSHAKE, and wait for the end of the connection."""
    assert exchange.request.maybe("Sec-WebSocket-Key") == KEY
    await exchange.write(AGREED)
    await exchange.ended()
