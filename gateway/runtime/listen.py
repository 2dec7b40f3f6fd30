"""The client side's listener: opened, and drained at the end."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final

from gateway.proxy.context import Context
from gateway.proxy.downstream import Downstream
from gateway.proxy.kernel import keep_little_unsent

#: Connections that may wait to be accepted: a burst of new ones is not turned away.
BACKLOG: Final = 4_096


class Listener:
    """Accepts client connections for one worker; tls: what they are wrapped in, None: nothing."""

    def __init__(self, context: Context, tls: ssl.SSLContext | None) -> None:
        self._context = context
        self._tls = tls
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError where the address is not to be had."""
        timeouts = self._context.gate.policy.timeouts
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Downstream(self._context),
            host,
            port,
            backlog=BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else timeouts.header_s,
        )
        for listening in self._server.sockets:
            keep_little_unsent(listening)
        self.port = self._server.sockets[0].getsockname()[1]

    async def drain(self) -> None:
        """Accept no more; answer what is under way while the policy grants it time; then close."""
        context = self._context
        assert self._server is not None
        self._server.close()
        context.draining = True
        for connection in tuple(context.connections):
            connection.drain()
        if context.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(context.gate.policy.timeouts.drain_s):
                    await context.drained.wait()
        self.hurry()

    def hurry(self) -> None:
        """Close every connection now."""
        for connection in tuple(self._context.connections):
            connection.tear_down()
        self._context.drained.set()
