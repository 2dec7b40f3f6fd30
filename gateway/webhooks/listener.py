"""Serves the courier's application at a socket.

aiohttp's own answer to a request that it cannot parse, and its log line, would quote the request.

Any local process can connect. A connection is trusted once it has sent a request with the token;
until then its time is bounded, and so is the number of such connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from typing import Final

from aiohttp import web

from gateway import errors, tasks
from gateway.manage.refusals import UNREADABLE, told
from gateway.observe.log_throttle import LogThrottle
from gateway.webhooks.answers import refused
from gateway.webhooks.requests import request_id_of

log = logging.getLogger("gateway")

#: The longest request line and header field. Workers have bounds of their own.
_MOST_LINE: Final = 32 * 1024
#: How long answers may take when it is stopped: a test delivery in progress.
_STOP_S: Final = 15.0

#: Connections that the kernel accepts while the courier is busy.
_BACKLOG: Final = 1_024
#: How long a connection may take until it has sent a request with the token, and how long it may be
#: idle after one. Workers close theirs before: after `proxy.upstream_pool.IDLE_S`.
STRANGER_S: Final = 10.0
IDLE_S: Final = 75.0
#: The most connections that have not sent the token. Beyond it the oldest are closed.
MOST_STRANGERS: Final = 256
#: How often this is looked after. A connection that is younger may be a worker's: it is not closed.
TICK_S: Final = 0.25

_throttle: Final = LogThrottle()


class Connection(web.RequestHandler):
    """One connection. is_of_worker: it has sent a request with the token"""

    __slots__ = ("_strangers", "is_of_worker")

    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, strangers: Strangers
    ) -> None:
        self.is_of_worker = False
        self._strangers = strangers
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=IDLE_S,
            access_log=None,  # type: ignore[arg-type]  # None is "no log" everywhere in aiohttp
            max_line_size=_MOST_LINE,
            max_field_size=_MOST_LINE,
            # A provider signs the bytes that it sends.
            auto_decompress=False,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._strangers.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._strangers.remove(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close it without an answer."""
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that cannot be parsed."""
        if (suppressed := _throttle.suppressed("unreadable", time.monotonic())) is not None:
            more = f" ({suppressed} such requests were suppressed)" if suppressed else ""
            log.warning("a request to the courier failed: %s%s", type(exc).__name__, more)
        refusal = UNREADABLE if status < 500 else errors.INTERNAL
        answer = refused(told(refusal), request_id_of(request))
        answer.headers["Server"] = "gateway"
        return answer


class Strangers:
    """The connections that have not sent the token, the oldest first, and since when."""

    def __init__(self) -> None:
        self._since_s: dict[Connection, float] = {}

    def __len__(self) -> int:
        return len(self._since_s)

    def add(self, connection: Connection) -> None:
        self._since_s[connection] = time.monotonic()

    def remove(self, connection: Connection) -> None:
        self._since_s.pop(connection, None)

    async def run(self) -> None:
        """Close those that are too old or too many, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self.check(time.monotonic())

    def check(self, now_s: float) -> None:
        for known in [each for each in self._since_s if each.is_of_worker]:
            self.remove(known)
        for connection in list(self._due(now_s)):
            self.remove(connection)
            connection.abort()

    def _due(self, now_s: float) -> Iterator[Connection]:
        too_many = len(self._since_s) - MOST_STRANGERS
        for number, (connection, since_s) in enumerate(self._since_s.items()):
            age_s = now_s - since_s
            if age_s < (TICK_S if number < too_many else STRANGER_S):
                return
            yield connection


class CourierListener:
    """The HTTP listener of one courier."""

    def __init__(self, application: web.Application) -> None:
        self._runner = web.AppRunner(application, shutdown_timeout=_STOP_S)
        self._accepting: asyncio.Server | None = None
        self.strangers = Strangers()
        self._watch: asyncio.Task[None] | None = None

    async def start(self, at: socket.socket) -> None:
        """Accept connections at this bound socket."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        loop = asyncio.get_running_loop()
        self._accepting = await loop.create_server(
            lambda: Connection(server, loop, self.strangers), sock=at, backlog=_BACKLOG
        )
        self._watch = tasks.spawn(self.strangers.run(), "connections of strangers")

    async def stop(self) -> None:
        """Accept no more, and end when all requests in progress are answered."""
        if self._accepting is not None:
            self._accepting.close()
        try:
            await self._runner.cleanup()
        finally:
            await tasks.end(self._watch)
