"""The admin listener: metrics and probes, the admin API and the console, on an address of its own.

Metrics and probes need no token: they say how the gateway fares and nothing about who uses it. Both
are asked of whoever built it, at each scrape and probe: the processes that do the work may be
others than this one. All else needs the admin token, or a session that was opened with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from aiohttp import web

from gateway.admin.access import Access
from gateway.admin.api.routes import add_api
from gateway.admin.console.routes import add_console
from gateway.admin.context import ACCESS, CLOCK, MANAGEMENT, now_s
from gateway.admin.guard import (
    MOST_BODY_BYTES,
    harden,
    host_guard,
    refuse_in_json,
    require_token,
)
from gateway.admin.readiness import Readiness
from gateway.manage.management import Management

#: A probe or a scrape that hangs must not hold up the end of the process.
_STOP_S = 1.0


@dataclass(frozen=True, slots=True)
class Desk:
    """What the API and the console need.

    management: None: there is no store that this process could ask
    names:      by which the listener may be reached, beside addresses and localhost
    clock:      of attempts and sessions
    """

    access: Access
    management: Management | None
    names: Collection[str] = ()
    clock: Callable[[], float] = now_s


def build_admin(
    scrape: Callable[[str], Awaitable[tuple[bytes, str]]],
    readiness: Callable[[], Awaitable[Readiness]],
    desk: Desk,
) -> web.Application:
    """The application of the whole listener.

    scrape: an Accept header -> the exposition and its content type
    """
    app = web.Application(
        middlewares=[refuse_in_json, host_guard(desk.names), require_token],
        client_max_size=MOST_BODY_BYTES,
    )
    app.on_response_prepare.append(harden)
    app[ACCESS] = desk.access
    app[CLOCK] = desk.clock
    if desk.management is not None:
        app[MANAGEMENT] = desk.management
    _add_probes(app, scrape, readiness)
    add_api(app)
    add_console(app)
    return app


def _add_probes(
    app: web.Application,
    scrape: Callable[[str], Awaitable[tuple[bytes, str]]],
    readiness: Callable[[], Awaitable[Readiness]],
) -> None:
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

    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/healthz", show_health)
    app.router.add_get("/readyz", show_readiness)


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
