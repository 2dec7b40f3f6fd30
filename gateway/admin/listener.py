"""The sockets of the admin listener: accepts connections, and stops.

aiohttp reads requests and writes answers. This module and its neighbours add what aiohttp has no
setting for, so that slow or idle clients cannot block probes or exhaust the process's descriptors.
The number of connections is bounded from the moment they are accepted (`connections`), and so are
the data and time of each (`connection`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from aiohttp import hdrs, web

from gateway import tasks
from gateway.admin.connection import HEAD_S, Connection, deliver
from gateway.admin.connections import Connections, Event
from gateway.admin.context import ERROR_DOCS
from gateway.observe.log_throttle import LogThrottle
from gateway.proxy.tls import TlsTransport

_log = logging.getLogger("gateway")

#: A browser opens six connections, a Prometheus or a kubelet one or two.
MOST_CONNECTIONS: Final = 128
#: For requests in progress when the process ends.
_STOP_S: Final = 1.0
#: The pause after a failed accept(): out of descriptors or memory.
_PAUSE_S: Final = 0.1
_BACKLOG: Final = 512
_LOG_EVERY_S: Final = 60.0


class AdminServer:
    """Serves an application from `start` to `stop`.

    tls:  returns the context for TLS of a new connection; None: plain HTTP
    most: the maximum number of connections
    """

    def __init__(
        self,
        app: web.Application,
        tls: Callable[[], ssl.SSLContext] | None = None,
        most: int = MOST_CONNECTIONS,
    ) -> None:
        self.connections = Connections(most)
        self._runner = web.AppRunner(app, shutdown_timeout=_STOP_S)
        self._leaving = False
        app.on_response_prepare.append(self._close_if_leaving)
        self._error_docs = app.get(ERROR_DOCS, lambda: None)
        self._tls = tls
        self._sockets: Sequence[socket.socket] = ()
        self._accepting: list[asyncio.Task[None]] = []
        self._throttle = LogThrottle(_LOG_EVERY_S)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections at these bound sockets. `stop` closes them."""
        self._sockets = sockets
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        # Not a middleware: aiohttp refuses some requests before it calls those.
        server.request_handler = partial(deliver, handler=server.request_handler)
        for listening in sockets:
            listening.listen(_BACKLOG)
            self._accepting.append(tasks.spawn(self._accept(listening), "admin listener"))

    @property
    def port(self) -> int:
        """The port of the first socket, once started."""
        return int(self._sockets[0].getsockname()[1])

    async def leave(self) -> None:
        """Stop accepting, as another process does now. Waits a second for open connections.

        Each gets one more answer and is closed; its client then reconnects to the other process.
        """
        self._leaving = True
        await self._stop_listening()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await self.connections.all_closed()

    async def stop(self) -> None:
        """Stop listening and close all connections. Idempotent, also before `start`."""
        await self._stop_listening()
        await self._runner.cleanup()
        self.connections.drop_all()

    async def _stop_listening(self) -> None:
        accepting, self._accepting = self._accepting, []
        for task in accepting:
            task.cancel()
        if accepting:
            await asyncio.wait(accepting)
        for listening in self._sockets:
            listening.close()

    async def _close_if_leaving(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._leaving:
            response.force_close()
            response.headers[hdrs.CONNECTION] = "close"

    async def _accept(self, listening: socket.socket) -> None:
        # Not loop.create_server, which accepts any number of connections, and does not report one
        # before its TLS handshake is done.
        loop = asyncio.get_running_loop()
        while True:
            try:
                await _is_readable(listening)
                accepted, address = listening.accept()
                accepted.setblocking(False)
            except BlockingIOError:
                continue  # another process that has the socket was faster
            except OSError as error:
                if self._throttle.suppressed("accept", loop.time()) is not None:
                    _log.error("admin: cannot accept connections: %s", error.strerror)
                await asyncio.sleep(_PAUSE_S)
                continue
            self._add(accepted, address[0], loop)

    def _add(self, accepted: socket.socket, address: str, loop: asyncio.AbstractEventLoop) -> None:
        server = self._runner.server
        if server is None or not self.connections.make_room(loop.time()):
            accepted.close()
            return
        connection = Connection(server, self.connections, loop, self._error_docs)
        self.connections.add(connection, address)
        opening = tasks.spawn(self._open(connection, accepted), "admin connection")
        connection.opening = opening
        opening.add_done_callback(lambda _: self._opened(connection, accepted))

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        # A failed handshake is not logged: any client can cause one.
        with suppress(OSError):
            loop = asyncio.get_running_loop()
            if self._tls is None:
                await loop.connect_accepted_socket(lambda: connection, accepted)
                return
            opened = loop.create_future()
            transport = TlsTransport(self._tls(), connection, opened=opened)
            await loop.connect_accepted_socket(lambda: transport, accepted)
            try:
                async with asyncio.timeout(HEAD_S):
                    await opened
            finally:
                if not connection.is_made:
                    transport.abort()

    def _opened(self, connection: Connection, accepted: socket.socket) -> None:
        """The opening has succeeded or failed."""
        connection.opening = None
        if not connection.is_made:
            self.connections.step(connection, Event.CLOSES)
            accepted.close()


async def _is_readable(listening: socket.socket) -> None:
    """Wait until a connection can be accepted.

    Not loop.sock_accept: if it is cancelled just after it has accepted one, that one is lost.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(listening, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(listening)
