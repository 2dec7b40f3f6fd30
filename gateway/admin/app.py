"""The admin listener: metrics and probes, on an address of their own.

What is answered here needs no token: it says how the gateway fares and nothing about who uses it.
Both are asked of whoever built it, at each scrape and probe: the processes that do the work may be
others than this one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from gateway import errors
from gateway.admin.readiness import Readiness

_log = logging.getLogger(__name__)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: A probe or a scrape that hangs must not hold up the end of the process.
_STOP_S = 1.0


def build_admin(
    scrape: Callable[[str], Awaitable[tuple[bytes, str]]],
    readiness: Callable[[], Awaitable[Readiness]],
) -> web.Application:
    """The application that answers /metrics, /healthz and /readyz.

    scrape: an Accept header -> the exposition and its content type
    """

    async def show_metrics(request: web.Request) -> web.Response:
        body, content_type = await scrape(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def show_health(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def show_readiness(_request: web.Request) -> web.Response:
        now = await readiness()
        return web.json_response(
            {"ready": now.ready, "checks": dict(now.checks)}, status=200 if now.ready else 503
        )

    app = web.Application(middlewares=[_refuse_in_json])
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/healthz", show_health)
    app.router.add_get("/readyz", show_readiness)
    return app


@web.middleware
async def _refuse_in_json(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _refusal(errors.NOT_FOUND)
    except web.HTTPMethodNotAllowed as refused:
        return _refusal(errors.METHOD_NOT_ALLOWED, {"Allow": ", ".join(refused.allowed_methods)})
    except Exception:
        _log.exception("the admin listener failed at %s %s", request.method, request.path)
        return _refusal(errors.INTERNAL)


def _refusal(refusal: errors.Refusal, headers: Mapping[str, str] | None = None) -> web.Response:
    body = {"error": refusal.error, "message": refusal.message, "code": refusal.code}
    return web.json_response(body, status=refusal.status, headers=headers)


class AdminServer:
    """Serves an application on one address, from `start` to `stop`."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_S)

    async def start(self, host: str, port: int) -> None:
        """Listen. Port 0 takes a free one. Raises OSError where the address cannot be had."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except BaseException:
            await self._runner.cleanup()
            raise

    @property
    def port(self) -> int:
        """The port that is listened on, once started."""
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening and end what is open. Harmless when repeated, or never started."""
        await self._runner.cleanup()
