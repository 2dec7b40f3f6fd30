"""A worker's listener: it accepts connections on its own sockets, and on those of lost workers.

Every worker has the sockets of all workers (`runtime.sockets`). So a socket stays open when its
worker dies, and another worker can accept the connections that arrive there (`adopt`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from gateway.proxy.client_connection import ClientConnection
from gateway.proxy.context import Context
from gateway.proxy.tls import TlsTransport
from gateway.runtime.sockets import Sockets, close_all

log = logging.getLogger("gateway")

#: Connections that may wait to be accepted, so that a burst of new ones is not refused.
BACKLOG: Final = 4_096
#: Connections accepted in one turn of the event loop. libuv accepts one for each handle, so a
#: socket has this many. If few requests travel together, each takes two to three times as much CPU.
ACCEPTED_AT_ONCE: Final = 16


class Listener:
    """Accepts client connections for one worker.

    tls:     returns the context for TLS of a new connection; None: plain connections
    sockets: bound sockets of every worker
    own:     the index of this worker
    """

    def __init__(
        self,
        context: Context,
        tls: Callable[[], ssl.SSLContext] | None,
        sockets: Sequence[Sockets],
        own: int,
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
        """Accept connections for this worker too. Idempotent; does nothing while draining."""
        if worker in self._serving or self._context.draining:
            return
        servers = self._serving[worker] = []
        # Of another worker one handle is enough until it is back.
        handles = ACCEPTED_AT_ONCE if worker == self._own else 1
        for bound in [each for each in self._sockets[worker] for _ in range(handles)]:
            server = await self._serve(bound)
            if self._serving.get(worker) is not servers:  # released while it was opened
                server.close()
                return
            servers.append(server)

    def release(self, worker: int) -> None:
        """Stop accepting for this worker. Does nothing if it is not served here."""
        for server in self._serving.pop(worker, ()):
            server.close()

    async def drain(self) -> None:
        """Stop accepting; answer accepted connections, up to `timeouts.drain`; then close them."""
        context = self._context
        context.draining = True
        await self._close()
        connections = context.connections
        begun = sum(connection.drain() for connection in connections)
        drain_s = context.gate.policy.timeouts.drain_s
        log.info(
            "drain started: %d open connections, %d of them in use; timeout %g s",
            *(len(connections), begun, drain_s),
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await connections.all_gone()
        self.stop_now()
        log.info("drain finished")

    def stop_now(self) -> None:
        """Close every connection now."""
        connections = self._context.connections
        under_way = sum(connection.is_busy for connection in connections)
        if under_way:
            log.warning("drain: closed %d requests, streams or tunnels in progress", under_way)
        for connection in connections:
            connection.tear_down()

    async def _serve(self, bound: socket.socket) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            self._protocol,
            # The server closes its socket, and this one may be needed again.
            sock=bound.dup(),
            backlog=BACKLOG,
        )

    def _protocol(self) -> asyncio.BaseProtocol:
        connection = ClientConnection(self._context)
        if self._tls is None:
            return connection
        return TlsTransport(self._tls(), connection, begins=connection.handshake_begins)

    async def _close(self) -> None:
        """Close the sockets, after accepting the connections in their queues.

        The kernel has established these already, and resets them when the last copy of a socket is
        closed. No worker knows whether its copy is the last, so each accepts from all sockets.
        """
        for worker in tuple(self._serving):
            self.release(worker)
        bound = chain.from_iterable(self._sockets)
        waiting = list(chain.from_iterable(map(_accept_all, bound)))
        close_all(self._sockets)
        loop = asyncio.get_running_loop()
        for client in waiting:
            with contextlib.suppress(OSError):  # the client has disconnected meanwhile
                await loop.connect_accepted_socket(self._protocol, client)


def _accept_all(bound: socket.socket) -> Iterator[socket.socket]:
    """The connections in the queue of a socket."""
    with contextlib.suppress(OSError):  # queue empty, out of descriptors, or not listening
        while True:
            yield bound.accept()[0]
