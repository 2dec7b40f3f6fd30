"""One connection of the admin listener: its bounds and deadlines.

- Everything that a client does has a deadline: the TLS handshake, sending a request's head, sending
  its body, and reading the answer.
- What a client sends ahead is bounded in bytes: a head, and what follows an unanswered request.
- An answered request is freed immediately. aiohttp's exceptions are raised through frames that hold
  both the exception and the request, which makes cycles. The garbage collector counts objects, not
  bytes: it may leave gigabytes of large heads. So `deliver` and `handle_error` break the cycles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, cast

from aiohttp import StreamReader, hdrs, web
from aiohttp.web_protocol import _ErrInfo

from gateway import errors
from gateway.admin.connections import Connections, Event, State
from gateway.admin.headers import HEADERS
from gateway.admin.refusals import ErrorResponse, refusal
from gateway.admin.request_id import HEADER as REQUEST_ID
from gateway.admin.request_id import request_id_of
from gateway.manage.refusals import BODY_BROKEN, UNREADABLE, Refused

_log = logging.getLogger("gateway")

#: For a TLS handshake, and for the whole head of a request, from the start of the connection or the
#: end of the previous answer.
HEAD_S: Final = 10.0
#: For a whole body: 7 KB a second of 64 KiB, as most have at most, and 110 KB of an event.
BODY_S: Final = 10.0
#: For reading a whole answer: a megabyte of metrics at 35 KB a second.
WRITE_S: Final = 30.0
#: How long the rest of a refused body is read and discarded, so that the client can read the
#: refusal before the connection is reset.
_LINGER_S: Final = 1.0
#: A browser behind a proxy sends 30 fields, of 8 KiB at most.
_MOST_FIELDS: Final = 64
#: The whole head. A browser sends 1 KiB; cookies of other servers on the same host and headers of
#: proxies may add 20.
_MOST_HEAD_BYTES: Final = 32 * 1024
#: What may arrive while a request is queued, beside its body. Browsers and probes wait for each
#: answer.
_MOST_AHEAD_BYTES: Final = 128 * 1024
#: Of an unread body, twice as much is buffered.
_BODY_BUFFER_BYTES: Final = 32 * 1024
#: More than any URL of the console. aiohttp's router is quadratic in the number of slashes: a path
#: of 8 KiB took 3.5 ms.
_MOST_LINE_BYTES: Final = 4_096
#: A control character, which the parser refuses anywhere in a head.
_NEVER_IN_A_HEAD: Final = b"\0"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """A client's connection."""

    __slots__ = (
        "_ahead_bytes",
        "_body",
        "_connections",
        "_deadline",
        "_error_docs",
        "_head_bytes",
        "_is_head_too_large",
        "_transport",
        "opening",
        "reading",
        "state",
    )

    def __init__(
        self,
        server: web.Server,
        connections: Connections,
        loop: asyncio.AbstractEventLoop,
        error_docs: Callable[[], str | None],
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None is "no log" everywhere in aiohttp
            keepalive_timeout=HEAD_S,
            lingering_time=_LINGER_S,
            max_line_size=_MOST_LINE_BYTES,
            max_headers=_MOST_FIELDS,
            read_bufsize=_BODY_BUFFER_BYTES,
            # A compressed body may expand a thousandfold, and bodies have 64 KiB at most.
            auto_decompress=False,
        )
        self.state = State.WAITING
        self._connections = connections
        self._error_docs = error_docs
        self._transport: asyncio.Transport | None = None
        #: Of the head that is being received, at least: counted from the end of a piece of data.
        self._head_bytes = 0
        #: Received while requests are queued.
        self._ahead_bytes = 0
        #: The body of the newest request.
        self._body: StreamReader | None = None
        self._is_head_too_large = False
        #: For reading an answer that `deliver` does not send.
        self._deadline: asyncio.TimerHandle | None = None
        #: The task that opens the connection, TLS handshake included; None: it is done.
        self.opening: asyncio.Task[None] | None = None
        #: The task of a handler that only reads; cancelled when the client disconnects.
        self.reading: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's have another base class
        # So that `deliver` waits until the kernel has taken everything. Not high=0: a TLS transport
        # pauses at that many buffered bytes, so it would never resume.
        self._transport.set_write_buffer_limits(high=1, low=0)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Parse data in small pieces, so that at most a head's size is parsed beyond the bound."""
        if len(data) <= _MOST_HEAD_BYTES:
            self._parse(data)
            return
        for start in range(0, len(data), _MOST_HEAD_BYTES):
            self._parse(data[start : start + _MOST_HEAD_BYTES])

    def _parse(self, data: bytes) -> None:
        if self._is_head_too_large:
            return
        waiting = len(self._messages)
        # The body of the only queued request waits in the socket: aiohttp stops reading it.
        is_held = waiting == 1 and self._body is not None and not self._body.is_eof()
        if not is_held:
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
            # aiohttp then takes the rest of the head for an unread body, and waits for _LINGER_S
            # before it closes, so that the client can read the refusal.
            self._body = StreamReader(self, _BODY_BUFFER_BYTES, loop=self._loop)
            self._messages[-1] = newest, self._body

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._is_head_too_large and self._body is not None:
            self._body.feed_eof()
        self._body = None  # it holds the connection, as the deadline does
        if self._deadline is not None:
            self._deadline.cancel()
        self._connections.step(self, Event.CLOSES)
        if self.reading is not None:
            self.reading.cancel()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that aiohttp cannot parse, or to an error outside middlewares.

        aiohttp's own answer and log line would quote the malformed line, which may contain the
        admin token.
        """
        if self._is_head_too_large:
            response = refusal(errors.HEADERS_TOO_LARGE, HEADERS)
        elif status < 500:
            response = refusal(UNREADABLE, HEADERS)
        else:
            _log.error(
                "the admin listener failed: %s (request %s)",
                *(type(exc).__name__, request_id_of(request)),
            )
            response = refusal(errors.INTERNAL, HEADERS)
        response.headers["Server"] = "gateway"
        self.identify(request, response)
        response.force_close()
        # aiohttp sends it without `deliver`, so without its deadline.
        self._deadline = self._loop.call_later(WRITE_S, self.drop)
        return response

    def identify(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Write the request's id into an answer's head, and into the body of an error."""
        request_id = request_id_of(request)
        response.headers[REQUEST_ID] = request_id
        if isinstance(response, ErrorResponse):
            response.complete(request_id, self._error_docs())

    @property
    def is_made(self) -> bool:
        """The connection has been opened."""
        return self._transport is not None

    def drop(self) -> None:
        """Close it now, discarding unsent data. Idempotent."""
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    @contextmanager
    def working(self) -> Iterator[None]:
        """While a handler works on a request: the connection is not closed to make room."""
        self._connections.step(self, Event.WORKS)
        try:
            yield
        finally:
            self._connections.step(self, Event.WAITS)

    @contextmanager
    def cancelled_when_lost(self) -> Iterator[None]:
        """Cancel the current task when the client disconnects."""
        self.reading = asyncio.current_task()
        try:
            yield
        finally:
            self.reading = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within `working`, while the handler only waits: the connection may be closed."""
        self._connections.step(self, Event.WAITS)
        try:
            yield
        finally:
            self._connections.step(self, Event.WORKS)


async def deliver(request: web.BaseRequest, handler: Handler) -> web.StreamResponse:
    """Call the application and send its answer; close the connection if that takes too long.

    Raises no HTTPException: aiohttp's frames would hold it, and it would hold them.
    """
    assert isinstance(request, web.Request)
    connection = _connection_of(request)
    # A change and its entry in the audit log are completed even if the client disconnects. Reading
    # may take long, and is useless then.
    is_reading = request.method in {hdrs.METH_GET, hdrs.METH_HEAD}
    lost = connection.cancelled_when_lost() if is_reading else nullcontext()
    with connection.working(), lost:
        answer = await _answer(request, handler)
    connection.identify(request, answer)
    try:
        async with asyncio.timeout(WRITE_S):
            await answer.prepare(request)
            await answer.write_eof()
    except (TimeoutError, ConnectionError):
        connection.drop()
    return answer


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    if _head_bytes(request) > _MOST_HEAD_BYTES:
        answer = refusal(errors.HEADERS_TOO_LARGE, HEADERS)
        answer.force_close()
        return answer
    try:
        return await handler(request)
    except web.HTTPExpectationFailed as raised:
        _forget_frames(raised)
        return refusal(errors.EXPECTATION_FAILED)
    except web.HTTPException as raised:
        _forget_frames(raised)
        return _response(raised)
    finally:
        # The router's 404 and 405, which the request itself holds.
        if request.match_info.http_exception is not None:
            _forget_frames(request.match_info.http_exception)


def _response(raised: web.HTTPException) -> web.Response:
    """The same answer, but not an exception."""
    response = web.Response(
        status=raised.status, reason=raised.reason, headers=raised.headers, body=raised.body
    )
    response.cookies.update(raised.cookies)
    return response


def _forget_frames(error: BaseException) -> None:
    """Release the frames of an exception, which may hold the exception."""
    error.__traceback__ = None


def _head_bytes(request: web.Request) -> int:
    fields = sum(len(name) + len(value) for name, value in request.raw_headers)
    return len(request.raw_path) + fields


def waiting(request: web.Request) -> AbstractContextManager[None]:
    """While this request only waits: its connection may be closed to make room for another."""
    return _connection_of(request).waiting()


async def read_body(request: web.Request) -> bytes:
    """The whole body. Raises Refused if it is late or malformed, HTTPRequestEntityTooLarge."""
    with waiting(request):
        try:
            async with asyncio.timeout(BODY_S):
                return await request.read()
        except TimeoutError:
            raise Refused(errors.REQUEST_TIMEOUT) from None
        except (ConnectionError, web.RequestPayloadError, RuntimeError) as error:
            # aiohttp raises RuntimeError if the connection was closed before reading began. The
            # body keeps the exception.
            _forget_frames(error)
            raise Refused(BODY_BROKEN) from None


def _connection_of(request: web.Request) -> Connection:
    connection = request.protocol
    assert isinstance(connection, Connection), "the application is not served by AdminServer"
    return connection
