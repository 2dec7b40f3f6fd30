"""The connections of the admin listener: how many there may be, and how long each may wait.

aiohttp reads requests and writes answers. What it leaves open is settled here, so that nobody who
comes in slowly, or not at all, keeps out a probe or uses up the process's descriptors:

- Connections are bounded, from the moment they are accepted. Where all are in use, the one that has
  waited longest for its client is closed. A probe sends its request at once, so that it is answered
  while a thousand others dribble.
- Whatever a client has to do has a deadline: the TLS handshake, a request's head, its body, and
  taking the answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, cast

from aiohttp import web

from gateway import errors, tasks
from gateway.admin.headers import HEADERS
from gateway.admin.refusals import BODY_BROKEN, UNREADABLE, Refused, refusal
from gateway.observe.seldom import Seldom

_log = logging.getLogger("gateway")

#: A browser opens six connections, a Prometheus or a kubelet one or two.
MOST_CONNECTIONS: Final = 128
#: For a TLS handshake, and for a whole request's head: from the connection's start, or from the end
#: of the answer before.
HEAD_S: Final = 10.0
#: For all of a body: 64 KiB at most, so that 7 KB a second are enough.
BODY_S: Final = 10.0
#: For all of an answer to be taken: a megabyte of metrics at 35 KB a second.
WRITE_S: Final = 30.0
#: How long what is left of a refused body is read away, so that the client reads the refusal
#: before it sees a reset.
_LINGER_S: Final = 1.0
#: For the other end to close a TLS connection that we have closed.
_TLS_CLOSE_S: Final = 2.0
#: A probe or a scrape that hangs must not hold up the end of the process.
_STOP_S: Final = 1.0
#: How long no connection is accepted after one could not be, for want of descriptors or memory.
_PAUSE_S: Final = 0.1
_BACKLOG: Final = 512
#: A browser behind a proxy sends 30. With 8 KiB for each, a head takes half a megabyte at most.
_MOST_FIELDS: Final = 64
#: Longer than any address of the console. A path is looked up slash by slash, each time anew: one
#: of 8 KiB took 3.5 ms, eight times a plain one.
_MOST_LINE_BYTES: Final = 4_096
_LOG_EVERY_S: Final = 60.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """One client's connection. Either it waits for its client, or a handler works for it."""

    __slots__ = ("_room", "_transport", "opening")

    def __init__(self, server: web.Server, room: Room, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None is "no log" everywhere in aiohttp
            keepalive_timeout=HEAD_S,
            lingering_time=_LINGER_S,
            max_line_size=_MOST_LINE_BYTES,
            max_headers=_MOST_FIELDS,
            # Nobody packs 64 KiB; and a body that unpacks to a thousand times its size costs so.
            auto_decompress=False,
        )
        self._room = room
        self._transport: asyncio.Transport | None = None
        #: What makes the connection, TLS included, until it is made.
        self.opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of no such class
        # What the kernel has not taken counts as not sent, so that `deliver` waits for it. Not 0: a
        # TLS transport is at its high water already when it holds as much as that.
        self._transport.set_write_buffer_limits(high=1, low=0)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._room.left(self)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What aiohttp could not read; or, beyond all middlewares, a fault of ours.

        It is not repeated, neither to the client nor in the log: a line that cannot be read may
        have the token in it.
        """
        if status < 500:
            response = refusal(UNREADABLE, HEADERS)
        else:
            _log.error("the admin listener failed: %s", type(exc).__name__)
            response = refusal(errors.INTERNAL, HEADERS)
        response.headers["Server"] = "gateway"
        response.force_close()
        # It is sent outside of `deliver`; whoever does not take it is not waited for.
        self._loop.call_later(WRITE_S, self.drop)
        return response

    @property
    def is_made(self) -> bool:
        """It is open, or was."""
        return self._transport is not None

    def drop(self) -> None:
        """Close it at once, whatever is under way; harmless when repeated."""
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    @contextmanager
    def working(self) -> Iterator[None]:
        """A handler works for it in here, and it is not closed to make room for another."""
        self._room.works(self)
        try:
            yield
        finally:
            self._room.waits(self)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """In here, amid `working`, nobody works for it: the client has something to do."""
        self._room.waits(self)
        try:
            yield
        finally:
            self._room.works(self)


class Room:
    """The connections that there are. most: how many there may be"""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: set[Connection] = set()
        #: Those that wait for their clients, whoever has waited longest first.
        self._waiting: dict[Connection, None] = {}
        self._seldom = Seldom(_LOG_EVERY_S)

    def __len__(self) -> int:
        return len(self._open)

    def has_place(self, now_s: float) -> bool:
        """Is there a place for one more? If need be, one that waits is closed for it."""
        if len(self._open) < self.most:
            return True
        longest = next(iter(self._waiting), None)
        if self._seldom.left_out("full", now_s) is not None:
            _log.warning(
                "admin: all %d connections are in use, %s",
                self.most,
                "and all are worked for: new ones are refused"
                if longest is None
                else "those that wait longest for their clients are closed",
            )
        if longest is None:
            return False
        # Its descriptor is closed within a turn of the event loop.
        self.left(longest)
        longest.drop()
        return True

    def entered(self, connection: Connection) -> None:
        self._open.add(connection)
        self.waits(connection)

    def left(self, connection: Connection) -> None:
        """It has ended; harmless when repeated."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def works(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        if connection in self._open:
            self._waiting[connection] = None

    def drop_all(self) -> None:
        for connection in tuple(self._open):
            connection.drop()


@web.middleware
async def deliver(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost middleware: has the answer taken in time, or hangs up."""
    connection = _connection_of(request)
    with connection.working():
        try:
            answer = await handler(request)
        except web.HTTPException as redirection:
            answer = redirection
    try:
        async with asyncio.timeout(WRITE_S):
            await answer.prepare(request)
            await answer.write_eof()
    except (TimeoutError, ConnectionError):
        connection.drop()
    if isinstance(answer, web.HTTPException):
        raise answer
    return answer


def waiting(request: web.Request) -> AbstractContextManager[None]:
    """In here, the request's connection may be closed to make room for another."""
    return _connection_of(request).waiting()


async def read_body(request: web.Request) -> bytes:
    """The whole body. Raises Refused where it does not come, and what aiohttp says to its size."""
    with waiting(request):
        try:
            async with asyncio.timeout(BODY_S):
                return await request.read()
        except TimeoutError:
            raise Refused(errors.REQUEST_TIMEOUT) from None
        except (ConnectionError, web.RequestPayloadError, RuntimeError):
            # RuntimeError: the connection had gone before anybody read.
            raise Refused(BODY_BROKEN) from None


class AdminServer:
    """Serves an application from `start` to `stop`.

    tls:  what connections are wrapped in; None: nothing
    most: connections
    """

    def __init__(
        self,
        app: web.Application,
        tls: ssl.SSLContext | None = None,
        most: int = MOST_CONNECTIONS,
    ) -> None:
        self.room = Room(most)
        self._runner = web.AppRunner(app, shutdown_timeout=_STOP_S)
        self._tls = tls
        self._sockets: Sequence[socket.socket] = ()
        self._accepting: list[asyncio.Task[None]] = []
        self._seldom = Seldom(_LOG_EVERY_S)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections at these sockets, which are bound, and are closed at the end."""
        self._sockets = sockets
        await self._runner.setup()
        for listening in sockets:
            listening.listen(_BACKLOG)
            self._accepting.append(tasks.spawn(self._accept(listening), "admin listener"))

    @property
    def port(self) -> int:
        """The port that is listened on, once started."""
        return int(self._sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and end what is open. Harmless when repeated, or never started."""
        accepting, self._accepting = self._accepting, []
        for task in accepting:
            task.cancel()
        if accepting:
            await asyncio.wait(accepting)
        for listening in self._sockets:
            listening.close()
        await self._runner.cleanup()
        self.room.drop_all()

    async def _accept(self, listening: socket.socket) -> None:
        # Not by create_server, which accepts whoever comes: a connection in its TLS handshake would
        # be counted by nobody.
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                if self._seldom.left_out("accept", loop.time()) is not None:
                    _log.error("admin: connections cannot be accepted: %s", error.strerror)
                await asyncio.sleep(_PAUSE_S)
                continue
            self._welcome(accepted, loop)
            # Whoever connects faster than this runs must not keep the loop from all others.
            await asyncio.sleep(0)

    def _welcome(self, accepted: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        server = self._runner.server
        if server is None or not self.room.has_place(loop.time()):
            accepted.close()
            return
        connection = Connection(server, self.room, loop)
        self.room.entered(connection)
        opening = tasks.spawn(self._open(connection, accepted), "admin connection")
        connection.opening = opening
        opening.add_done_callback(lambda _: self._opened(connection, accepted))

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        # A handshake that fails, or is broken off, is the client's affair.
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HEAD_S,
                ssl_shutdown_timeout=None if self._tls is None else _TLS_CLOSE_S,
            )

    def _opened(self, connection: Connection, accepted: socket.socket) -> None:
        """It is made, or never will be."""
        connection.opening = None
        if not connection.is_made:
            self.room.left(connection)
            accepted.close()


def _connection_of(request: web.Request) -> Connection:
    connection = request.protocol
    assert isinstance(connection, Connection), "the application is not served by AdminServer"
    return connection
