"""A worker's listener: it accepts clients at its own socket, and at another's while told to.

Each worker holds the sockets of all (`runtime.sockets`), which keeps them open beyond the death of
their worker, and accepts at those of one that cannot (`adopt`), so that nobody waits there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from gateway.proxy.context import Context
from gateway.proxy.downstream import Downstream
from gateway.runtime.sockets import Sockets, close_all

#: Connections that may wait to be accepted: a burst of new ones is not turned away.
BACKLOG: Final = 4_096


class Listener:
    """Accepts client connections for one worker.

    tls:     what they are wrapped in, None: nothing
    sockets: of every worker, bound; own: whose are served from the start
    """

    def __init__(
        self, context: Context, tls: ssl.SSLContext | None, sockets: Sequence[Sockets], own: int
    ) -> None:
        self._context = context
        self._tls = tls
        self._sockets = sockets
        self._own = own
        self._serving: dict[int, list[asyncio.Server]] = {}
        self.port: int = sockets[own][0].getsockname()[1]

    async def start(self) -> None:
        await self.adopt(self._own)

    async def adopt(self, worker: int) -> None:
        """Accept what comes in for this worker too; harmless when repeated, or while draining."""
        if worker in self._serving or self._context.draining:
            return
        servers = self._serving[worker] = []
        for bound in self._sockets[worker]:
            server = await self._serve(bound)
            if self._serving.get(worker) is not servers:  # released while it was opened
                server.close()
                return
            servers.append(server)

    def release(self, worker: int) -> None:
        """Leave them to their own worker again; harmless when they are not served here."""
        for server in self._serving.pop(worker, ()):
            server.close()

    async def drain(self) -> None:
        """Accept no more; answer what is under way while the policy grants it time; then close."""
        context = self._context
        context.draining = True
        self._close()
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

    async def _serve(self, bound: socket.socket) -> asyncio.Server:
        timeouts = self._context.gate.policy.timeouts
        return await asyncio.get_running_loop().create_server(
            lambda: Downstream(self._context),
            # The server closes what it is given, and this one may be needed again.
            sock=bound.dup(),
            backlog=BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else timeouts.header_s,
        )

    def _close(self) -> None:
        for worker in tuple(self._serving):
            self.release(worker)
        close_all(self._sockets)
