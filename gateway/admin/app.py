"""The application of the admin listener: metrics and probes, the admin API and the console.

Metrics and probes need no token: they describe the gateway's state and not its users. They come
from callables, since other processes may do the work; simultaneous requests share one answer
(`rounds`). Everything else needs the admin token, or a session opened with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.admin.access import Access
from gateway.admin.api.routes import add_api
from gateway.admin.connection import waiting
from gateway.admin.console.routes import add_console
from gateway.admin.context import (
    ACCESS,
    CLOCK,
    ERROR_DOCS,
    MANAGEMENT,
    PROXY,
    READINESS,
    SESSIONS,
    now_s,
)
from gateway.admin.guard import (
    METRICS,
    MOST_BODY_BYTES,
    host_guard,
    refuse_in_json,
    require_token,
)
from gateway.admin.headers import harden
from gateway.admin.readiness import Readiness
from gateway.admin.rounds import Rounds
from gateway.admin.sessions import Sessions
from gateway.domain.policy import AdminProxy
from gateway.manage.management import Management
from gateway.observe.exposition import format_of

#: If a fresh answer takes longer than this, a readiness probe gets one of the last second.
_STALE_AFTER_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class AdminDeps:
    """What the API and the console need.

    management: None: this process has no store to manage
    names:      host names of the listener, beside addresses and localhost
    proxy:      the proxies in front of it, by the loaded policy
    error_docs: the page that describes errors, by the loaded policy; None: there is none
    clock:      for wrong tokens and sessions
    """

    access: Access
    sessions: Sessions
    management: Management | None
    names: Collection[str] = ()
    proxy: Callable[[], AdminProxy] = AdminProxy
    error_docs: Callable[[], str | None] = lambda: None
    clock: Callable[[], float] = now_s


def build_admin(
    scrape: Callable[[str], Awaitable[tuple[bytes, str]]],
    readiness: Callable[[], Awaitable[Readiness]],
    deps: AdminDeps,
) -> web.Application:
    """The application of the whole listener.

    scrape: an Accept header -> the exposition and its content type
    """
    app = web.Application(
        middlewares=[refuse_in_json, host_guard(deps.names), require_token],
        client_max_size=MOST_BODY_BYTES,
    )
    app.on_response_prepare.append(harden)
    app[ACCESS] = deps.access
    app[SESSIONS] = deps.sessions
    app[PROXY] = deps.proxy
    app[ERROR_DOCS] = deps.error_docs
    app[CLOCK] = deps.clock
    if deps.management is not None:
        app[MANAGEMENT] = deps.management
    _add_probes(app, scrape, readiness)
    add_api(app)
    add_console(app)
    return app


def _add_probes(
    app: web.Application,
    scrape: Callable[[str], Awaitable[tuple[bytes, str]]],
    readiness: Callable[[], Awaitable[Readiness]],
) -> None:
    scrapes = Rounds(scrape)

    async def ask_readiness(_: None) -> Readiness:
        return await readiness()

    probes = Rounds(ask_readiness, _STALE_AFTER_S)
    app[READINESS] = lambda: probes.get(None)

    async def show_metrics(request: web.Request) -> web.Response:
        # Shared by format, not by header: there are nine formats, and any number of headers.
        kind = format_of(request.headers.get("Accept", ""))
        with waiting(request):
            body, content_type = await scrapes.get(kind)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def show_health(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def show_readiness(request: web.Request) -> web.Response:
        with waiting(request):
            now = await probes.get(None)
        return web.json_response(
            {"ready": now.ready, "checks": dict(now.checks)}, status=200 if now.ready else 503
        )

    app.router.add_get(METRICS, show_metrics)
    app.router.add_get("/healthz", show_health)
    app.router.add_get("/readyz", show_readiness)
