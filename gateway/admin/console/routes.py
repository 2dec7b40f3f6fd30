"""The console's paths, and which function answers each."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.console import (
    accounts,
    assets,
    audit,
    editing,
    keys,
    making,
    overview,
    policies,
    turning,
    warnings,
)
from gateway.admin.console import sign_in as signing
from gateway.admin.console.gate import guard


def add_console(app: web.Application) -> None:
    """Add the console's pages to an application, and whoever guards them."""
    app.middlewares.append(guard)
    app.router.add_get("/", _to_console)
    app.router.add_get("/console/static/{name}", assets.show)
    one = "/console/keys/{key_id:[0-9A-Za-z]+}"
    app.add_routes(
        [
            web.get("/console", overview.show),
            web.get("/console/", _to_console),
            web.get("/console/sign-in", signing.ask),
            web.post("/console/sign-in", signing.sign_in),
            web.post("/console/sign-out", signing.sign_out),
            web.get("/console/keys", keys.show_all),
            web.get("/console/keys/new", making.ask_new),
            web.post("/console/keys/new", making.create),
            web.get("/console/check/ip-ranges", making.check_ip_ranges),
            web.get(one, keys.show),
            web.get(f"{one}/edit", editing.ask),
            web.post(f"{one}/edit", editing.edit),
            web.get(f"{one}/rotate", making.ask_rotate),
            web.post(f"{one}/rotate", making.rotate),
            web.post(f"{one}/suspend", turning.suspend),
            web.post(f"{one}/resume", turning.resume),
            web.get(f"{one}/revoke", turning.ask_revoke),
            web.post(f"{one}/revoke", turning.revoke),
            web.post(f"{one}/limits/{{name}}/reset", turning.reset),
            web.get("/console/accounts", accounts.show_all),
            web.get("/console/accounts/{name}", accounts.ask),
            web.post("/console/accounts/{name}", accounts.put),
            web.get("/console/policies", policies.show),
            web.post("/console/policies", policies.explain),
            web.get("/console/warnings", warnings.show),
            web.get("/console/audit", audit.show),
        ]
    )


async def _to_console(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPSeeOther("/console")
