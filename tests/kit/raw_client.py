"""A client that sends raw bytes over a socket, and ends its connection in every way."""

from __future__ import annotations

import asyncio
import socket
import struct

from tests.kit.wire import TIMEOUT_S

#: With this, closing sends a reset, and drops unsent bytes.
_NO_LINGER = struct.pack("ii", 1, 0)


class RawClient:
    """One connection to 127.0.0.1. Waits fail after TIMEOUT_S."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, port: int) -> RawClient:
        connection = socket.socket()
        try:
            connection.setblocking(False)
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self._loop.sock_sendall(self._socket, data)

    def send_what_fits(self, data: bytes) -> int:
        """Send as much as is taken at once; return the number of bytes."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def read_until(self, mark: bytes) -> bytes:
        """Read until this was seen; return all that was read."""
        data = b""
        async with asyncio.timeout(TIMEOUT_S):
            while mark not in data:
                piece = await self._loop.sock_recv(self._socket, 65536)
                assert piece, f"the connection ended after {data!r}"
                data += piece
        return data

    async def read_to_end(self) -> bytes:
        """Read until the other end closes. Raises ConnectionResetError on a reset."""
        data = b""
        async with asyncio.timeout(TIMEOUT_S):
            while piece := await self._loop.sock_recv(self._socket, 65536):
                data += piece
        return data

    def half_close(self) -> None:
        """End the sending side, and stay open."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close; may be repeated."""
        self._socket.close()

    def reset(self) -> None:
        """Close with a reset, as a crashed machine does."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._socket.close()
