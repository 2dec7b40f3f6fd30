"""The connections of the admin listener: their number, and their deadlines.

aiohttp reads requests and writes answers. This module adds what aiohttp has no setting for, so that
slow or idle clients cannot block probes or use up the process's descriptors:

- The number of connections is bounded, counted from the moment they are accepted. When all are in
  use, one is closed for each new one: of the address that has the most, the one that has waited
  longest. A probe sends its request at once, and often from an address of its own, so it is
  answered even while thousands of other clients connect.
- Everything that a client does has a deadline: the TLS handshake, sending a request's head, sending
  its body, and reading the answer.
- What a client sends ahead is bounded in bytes: a head, and what follows a request that has not
  been answered yet.
- An answered request is freed at once. aiohttp's exceptions are raised through frames that hold
  both the exception and the request, which makes cycles. The garbage collector counts objects, not
  bytes: it may leave gigabytes of large heads. So `deliver` and `handle_error` break the cycles.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Final, cast

from aiohttp import StreamReader, hdrs, web
from aiohttp.web_protocol import _ErrInfo

from gateway import errors, tasks
from gateway.admin.access import subject_of
from gateway.admin.headers import HEADERS
from gateway.admin.refusals import BODY_BROKEN, UNREADABLE, Refused, refusal
from gateway.observe.seldom import Seldom
from gateway.proxy.tls import TlsTransport

_log = logging.getLogger("gateway")

#: A browser opens six connections, a Prometheus or a kubelet one or two.
MOST_CONNECTIONS: Final = 128
#: For a TLS handshake, and for a request's head, from the start of the connection or the end of the
#: previous answer to its last byte.
HEAD_S: Final = 10.0
#: For a whole body: with 64 KiB at most, 7 KB a second are enough.
BODY_S: Final = 10.0
#: For reading a whole answer: a megabyte of metrics at 35 KB a second.
WRITE_S: Final = 30.0
#: How long the rest of a refused body is read and discarded, so that the client can read the
#: refusal before the connection is reset.
_LINGER_S: Final = 1.0
#: For requests under way when the process ends.
_STOP_S: Final = 1.0
#: The pause after accept() has failed, because descriptors or memory are used up.
_PAUSE_S: Final = 0.1
_BACKLOG: Final = 512
#: A browser behind a proxy sends 30 fields, of 8 KiB at most.
_MOST_FIELDS: Final = 64
#: The whole head. A browser's is 1 KiB; cookies of other servers on the same host, and what a proxy
#: adds, may be another 20.
_MOST_HEAD_BYTES: Final = 32 * 1024
#: What may come while a request waits for its turn: it with its body, and little more. Browsers and
#: probes wait for each answer.
_MOST_AHEAD_BYTES: Final = 128 * 1024
#: Of a body that nobody has read yet, twice as much is taken.
_BODY_BUFFER_BYTES: Final = 32 * 1024
#: Longer than any URL of the console. aiohttp's router is quadratic in the number of slashes: a
#: path of 8 KiB took 3.5 ms.
_MOST_LINE_BYTES: Final = 4_096
_LOG_EVERY_S: Final = 60.0

#: A control character, which the parser refuses wherever it is in a head.
_NEVER_IN_A_HEAD: Final = b"\0"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """A client's connection. It is either waiting, mostly for its client, or being worked on."""

    __slots__ = (
        "_ahead_bytes",
        "_body",
        "_deadline",
        "_head_bytes",
        "_is_head_too_large",
        "_room",
        "_transport",
        "opening",
        "reading",
    )

    def __init__(self, server: web.Server, room: Room, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None is "no log" everywhere in aiohttp
            keepalive_timeout=HEAD_S,
            lingering_time=_LINGER_S,
            max_line_size=_MOST_LINE_BYTES,
            max_headers=_MOST_FIELDS,
            read_bufsize=_BODY_BUFFER_BYTES,
            # A compressed body may cost a thousand times its size, and none is larger than 64 KiB.
            auto_decompress=False,
        )
        self._room = room
        self._transport: asyncio.Transport | None = None
        #: Of the head that is being received, or more: counted from the end of a piece.
        self._head_bytes = 0
        #: Received while requests wait for their turn.
        self._ahead_bytes = 0
        #: The body of the newest request.
        self._body: StreamReader | None = None
        self._is_head_too_large = False
        #: For reading an answer that `deliver` does not send.
        self._deadline: asyncio.TimerHandle | None = None
        #: The task that opens the connection, TLS handshake included; None: it is done.
        self.opening: asyncio.Task[None] | None = None
        #: The task of a handler that only reads; it ends when its client has gone.
        self.reading: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's have another base class
        # `deliver` waits until the kernel has taken everything. Not high=0: a TLS transport pauses
        # where it holds as many bytes as that, so it would never resume.
        self._transport.set_write_buffer_limits(high=1, low=0)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, in pieces so small that no more than a head is parsed in vain."""
        if len(data) <= _MOST_HEAD_BYTES:
            self._parse(data)
            return
        for start in range(0, len(data), _MOST_HEAD_BYTES):
            self._parse(data[start : start + _MOST_HEAD_BYTES])

    def _parse(self, data: bytes) -> None:
        if self._is_head_too_large:
            return
        waiting = len(self._messages)
        self._ahead_bytes = self._ahead_bytes + len(data) if waiting else 0
        if self._ahead_bytes > _MOST_AHEAD_BYTES:
            self.close()  # after the request that is being answered
            return
        if self._body is None or self._body.is_eof():
            self._head_bytes += len(data)
        if self._head_bytes > _MOST_HEAD_BYTES:
            self._is_head_too_large = True
            data = _NEVER_IN_A_HEAD
        super().data_received(data)
        if len(self._messages) == waiting:
            return
        self._head_bytes = 0
        newest, self._body = self._messages[-1]
        if isinstance(newest, _ErrInfo):
            _forget_frames(newest.exc)
        if self._is_head_too_large:
            # aiohttp takes the rest of the head for a body that nobody has read: it waits for
            # _LINGER_S before it closes, so that the client can read the refusal.
            self._body = StreamReader(self, _BODY_BUFFER_BYTES, loop=self._loop)
            self._messages[-1] = newest, self._body

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._is_head_too_large and self._body is not None:
            self._body.feed_eof()
        self._body = None  # it holds the connection, as the deadline does
        if self._deadline is not None:
            self._deadline.cancel()
        self._room.left(self)
        if self.reading is not None:
            self.reading.cancel()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what aiohttp cannot parse, or to an error outside of all middlewares.

        aiohttp's own would quote the malformed line to the client and in the log. It may contain
        the admin token.
        """
        if self._is_head_too_large:
            response = refusal(errors.HEADERS_TOO_LARGE, HEADERS)
        elif status < 500:
            response = refusal(UNREADABLE, HEADERS)
        else:
            _log.error("the admin listener failed: %s", type(exc).__name__)
            response = refusal(errors.INTERNAL, HEADERS)
        response.headers["Server"] = "gateway"
        response.force_close()
        # aiohttp sends it without `deliver`, so without its deadline.
        self._deadline = self._loop.call_later(WRITE_S, self.drop)
        return response

    @property
    def is_made(self) -> bool:
        """Whether it has been opened."""
        return self._transport is not None

    def drop(self) -> None:
        """Close it at once, discarding what was not sent. Harmless when repeated."""
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    @contextmanager
    def working(self) -> Iterator[None]:
        """While a handler works on a request: the connection is not closed to make room."""
        self._room.works(self)
        try:
            yield
        finally:
            self._room.waits(self)

    @contextmanager
    def cancelled_when_lost(self) -> Iterator[None]:
        """What runs within this is cancelled where the client goes."""
        self.reading = asyncio.current_task()
        try:
            yield
        finally:
            self.reading = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within `working`, while the handler only waits: the connection may be closed."""
        self._room.waits(self)
        try:
            yield
        finally:
            self._room.works(self)


class Room:
    """The open connections. most: their greatest number"""

    def __init__(self, most: int) -> None:
        self.most = most
        #: Connection -> its address.
        self._open: dict[Connection, str] = {}
        self._by_address: Counter[str] = Counter()
        #: Those that are waiting, the longest first.
        self._waiting: dict[Connection, None] = {}
        self._emptied = asyncio.Event()
        self._seldom = Seldom(_LOG_EVERY_S)

    def __len__(self) -> int:
        return len(self._open)

    def has_place(self, now_s: float) -> bool:
        """Is there a place for one more? If all are in use, one that is waiting is closed."""
        if len(self._open) < self.most:
            return True
        # Of several with the same key, max() gives the first, which has waited longest.
        longest = max(
            self._waiting, key=lambda one: self._by_address[self._open[one]], default=None
        )
        if self._seldom.left_out("full", now_s) is not None:
            _log.warning(
                "admin: all %d connections are in use, %s",
                self.most,
                "none of them is waiting: new ones are refused"
                if longest is None
                else "one that is waiting is closed for each new one",
            )
        if longest is None:
            return False
        # The event loop closes its descriptor in its next iteration.
        self.left(longest)
        longest.drop()
        return True

    def entered(self, connection: Connection, address: str) -> None:
        self._open[connection] = subject = subject_of(address)
        self._by_address[subject] += 1
        self.waits(connection)

    def left(self, connection: Connection) -> None:
        """The connection was closed. Harmless when repeated."""
        subject = self._open.pop(connection, None)
        if subject is None:
            return
        self._waiting.pop(connection, None)
        self._by_address[subject] -= 1
        if not self._by_address[subject]:
            del self._by_address[subject]
        if not self._open:
            self._emptied.set()

    async def is_empty(self) -> None:
        """Wait until there is no connection."""
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()

    def works(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        if connection in self._open:
            self._waiting[connection] = None

    def drop_all(self) -> None:
        for connection in tuple(self._open):
            connection.drop()


async def deliver(request: web.BaseRequest, handler: Handler) -> web.StreamResponse:
    """Around the application: sends its answer, and closes the connection if that takes long.

    Raises no HTTPException: aiohttp's own frames would hold it, and it them.
    """
    assert isinstance(request, web.Request)
    connection = _connection_of(request)
    # A change and its entry in the audit log are carried out whatever the client does. Reading may
    # take long, and is of no use to a client that has gone.
    is_reading = request.method in {hdrs.METH_GET, hdrs.METH_HEAD}
    lost = connection.cancelled_when_lost() if is_reading else nullcontext()
    with connection.working(), lost:
        answer = await _answer(request, handler)
    try:
        async with asyncio.timeout(WRITE_S):
            await answer.prepare(request)
            await answer.write_eof()
    except (TimeoutError, ConnectionError):
        connection.drop()
    return answer


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    if _head_bytes(request) > _MOST_HEAD_BYTES:
        answer = refusal(errors.HEADERS_TOO_LARGE)
        answer.force_close()
        return answer
    try:
        return await handler(request)
    except web.HTTPException as raised:
        _forget_frames(raised)
        return _response(raised)
    finally:
        # The router's 404 and 405, which the request itself holds.
        if request.match_info.http_exception is not None:
            _forget_frames(request.match_info.http_exception)


def _response(raised: web.HTTPException) -> web.Response:
    """The same answer, which is no exception."""
    response = web.Response(
        status=raised.status, reason=raised.reason, headers=raised.headers, body=raised.body
    )
    response.cookies.update(raised.cookies)
    return response


def _forget_frames(error: BaseException) -> None:
    """Let go of the frames that an exception passed, which may hold the exception."""
    error.__traceback__ = None


def _head_bytes(request: web.Request) -> int:
    fields = sum(len(name) + len(value) for name, value in request.raw_headers)
    return len(request.raw_path) + fields


def waiting(request: web.Request) -> AbstractContextManager[None]:
    """While this request only waits: its connection may be closed to make room for another."""
    return _connection_of(request).waiting()


async def read_body(request: web.Request) -> bytes:
    """The whole body. Raises Refused where it is late or malformed, HTTPRequestEntityTooLarge."""
    with waiting(request):
        try:
            async with asyncio.timeout(BODY_S):
                return await request.read()
        except TimeoutError:
            raise Refused(errors.REQUEST_TIMEOUT) from None
        except (ConnectionError, web.RequestPayloadError, RuntimeError) as error:
            # aiohttp raises RuntimeError where the connection was closed before reading began. The
            # body keeps what it raised.
            _forget_frames(error)
            raise Refused(BODY_BROKEN) from None


class AdminServer:
    """Serves an application from `start` to `stop`.

    tls:  for connections to be wrapped in; None: plain HTTP
    most: the greatest number of connections
    """

    def __init__(
        self,
        app: web.Application,
        tls: ssl.SSLContext | None = None,
        most: int = MOST_CONNECTIONS,
    ) -> None:
        self.room = Room(most)
        self._runner = web.AppRunner(app, shutdown_timeout=_STOP_S)
        self._leaving = False
        app.on_response_prepare.append(self._hang_up)
        self._tls = tls
        self._sockets: Sequence[socket.socket] = ()
        self._accepting: list[asyncio.Task[None]] = []
        self._seldom = Seldom(_LOG_EVERY_S)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections at these bound sockets. `stop` closes them."""
        self._sockets = sockets
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        # Not as a middleware: aiohttp refuses some requests before it calls these.
        server.request_handler = partial(deliver, handler=server.request_handler)
        for listening in sockets:
            listening.listen(_BACKLOG)
            self._accepting.append(tasks.spawn(self._accept(listening), "admin listener"))

    @property
    def port(self) -> int:
        """The port of the first socket, once started."""
        return int(self._sockets[0].getsockname()[1])

    async def leave(self) -> None:
        """Accept no more connections: another process does. Waits a second for those that are open.

        Each is answered once more and then closed, and the client finds the other process.
        """
        self._leaving = True
        await self._stop_listening()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await self.room.is_empty()

    async def stop(self) -> None:
        """Stop listening and close all connections. Harmless when repeated or never started."""
        await self._stop_listening()
        await self._runner.cleanup()
        self.room.drop_all()

    async def _stop_listening(self) -> None:
        accepting, self._accepting = self._accepting, []
        for task in accepting:
            task.cancel()
        if accepting:
            await asyncio.wait(accepting)
        for listening in self._sockets:
            listening.close()

    async def _hang_up(self, _request: web.Request, response: web.StreamResponse) -> None:
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
                continue  # another process that has the socket was quicker
            except OSError as error:
                if self._seldom.left_out("accept", loop.time()) is not None:
                    _log.error("admin: connections cannot be accepted: %s", error.strerror)
                await asyncio.sleep(_PAUSE_S)
                continue
            self._welcome(accepted, address[0], loop)

    def _welcome(
        self, accepted: socket.socket, address: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        server = self._runner.server
        if server is None or not self.room.has_place(loop.time()):
            accepted.close()
            return
        connection = Connection(server, self.room, loop)
        self.room.entered(connection, address)
        opening = tasks.spawn(self._open(connection, accepted), "admin connection")
        connection.opening = opening
        opening.add_done_callback(lambda _: self._opened(connection, accepted))

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        # A failed handshake needs no line in the log: anybody can cause one.
        with suppress(OSError):
            loop = asyncio.get_running_loop()
            if self._tls is None:
                await loop.connect_accepted_socket(lambda: connection, accepted)
                return
            opened = loop.create_future()
            transport = TlsTransport(self._tls, connection, opened=opened)
            await loop.connect_accepted_socket(lambda: transport, accepted)
            try:
                async with asyncio.timeout(HEAD_S):
                    await opened
            finally:
                if not connection.is_made:
                    transport.abort()

    def _opened(self, connection: Connection, accepted: socket.socket) -> None:
        """The opening has ended, with or without success."""
        connection.opening = None
        if not connection.is_made:
            self.room.left(connection)
            accepted.close()


async def _is_readable(listening: socket.socket) -> None:
    """Wait until a connection can be accepted.

    Not loop.sock_accept: if that is cancelled just when it has accepted one, it is lost.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(listening, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(listening)


def _connection_of(request: web.Request) -> Connection:
    connection = request.protocol
    assert isinstance(connection, Connection), "the application is not served by AdminServer"
    return connection
