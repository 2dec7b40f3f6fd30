"""Serves the courier's application at a socket.

aiohttp's own answer to a request that it cannot parse, and its log line, would quote the request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import Final

from aiohttp import web

from gateway import errors
from gateway.manage.refusals import UNREADABLE, told
from gateway.observe.log_throttle import LogThrottle
from gateway.webhooks.answers import refused
from gateway.webhooks.requests import request_id_of

log = logging.getLogger("gateway")

#: The longest request line and header field. Workers have bounds of their own.
_MOST_LINE: Final = 32 * 1024
#: How long answers may take when it is stopped: a test delivery in progress.
_STOP_S: Final = 15.0

_throttle: Final = LogThrottle()


class _Connection(web.RequestHandler):
    __slots__ = ()

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None is "no log" everywhere in aiohttp
            max_line_size=_MOST_LINE,
            max_field_size=_MOST_LINE,
            # A provider signs the bytes that it sends.
            auto_decompress=False,
        )

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


class CourierListener:
    """The HTTP listener of one courier."""

    def __init__(self, application: web.Application) -> None:
        self._runner = web.AppRunner(application, shutdown_timeout=_STOP_S)
        self._accepting: asyncio.Server | None = None

    async def start(self, at: socket.socket) -> None:
        """Accept connections at this bound socket."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        loop = asyncio.get_running_loop()
        self._accepting = await loop.create_server(lambda: _Connection(server, loop), sock=at)

    async def stop(self) -> None:
        """Accept no more, and end when all requests in progress are answered."""
        if self._accepting is not None:
            self._accepting.close()
        await self._runner.cleanup()
