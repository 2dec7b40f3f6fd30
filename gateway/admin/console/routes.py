"""The console's paths and their handlers."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.console import (
    account_pages,
    assets,
    audit_page,
    delivery_pages,
    integration_forms,
    integration_pages,
    key_forms,
    key_pages,
    mcp_page,
    overview_page,
    policies_page,
    policy_version_page,
    warnings_page,
    watch_forms,
    watch_pages,
)
from gateway.admin.console import sign_in as signing
from gateway.admin.console.gate import guard
from gateway.admin.console.webhook_parts import BASE


def add_console(app: web.Application) -> None:
    """Add the console's pages to an application, and the middleware that guards them."""
    app.middlewares.append(guard)
    app.router.add_get("/", _to_console)
    app.router.add_get("/console/static/{name}", assets.show)
    one = "/console/keys/{key_id:[0-9A-Za-z]+}"
    app.add_routes(
        [
            web.get("/console", overview_page.show),
            web.get("/console/", _to_console),
            web.get("/console/sign-in", signing.ask),
            web.post("/console/sign-in", signing.sign_in),
            web.post("/console/sign-out", signing.sign_out),
            web.get("/console/keys", key_pages.show_all),
            web.get("/console/keys/new", key_forms.ask_new),
            web.post("/console/keys/new", key_forms.create),
            web.get("/console/check/ip-ranges", key_forms.check_ip_ranges),
            web.get(one, key_pages.show),
            web.get(f"{one}/edit", key_forms.ask_edit),
            web.post(f"{one}/edit", key_forms.edit),
            web.get(f"{one}/rotate", key_forms.ask_rotate),
            web.post(f"{one}/rotate", key_forms.rotate),
            web.post(f"{one}/suspend", key_pages.suspend),
            web.post(f"{one}/resume", key_pages.resume),
            web.get(f"{one}/revoke", key_pages.ask_revoke),
            web.post(f"{one}/revoke", key_pages.revoke),
            web.post(f"{one}/limits/{{name}}/reset", key_pages.reset),
            web.get("/console/accounts", account_pages.show_all),
            web.get("/console/accounts/{name}", account_pages.ask),
            web.post("/console/accounts/{name}", account_pages.put),
            web.post("/console/accounts/{name}/suspend", account_pages.suspend),
            web.post("/console/accounts/{name}/resume", account_pages.resume),
            web.get("/console/accounts/{name}/delete", account_pages.ask_delete),
            web.post("/console/accounts/{name}/delete", account_pages.delete),
            web.get("/console/policies", policies_page.show),
            web.post("/console/policies", policies_page.explain),
            web.get("/console/policies/{policy:[0-9a-f]{16}}", policy_version_page.show),
            web.get("/console/mcp", mcp_page.show),
            web.get("/console/warnings", warnings_page.show),
            web.get("/console/audit", audit_page.show),
        ]
    )
    _add_webhooks(app)


def _add_webhooks(app: web.Application) -> None:
    one = f"{BASE}/{{id:[0-9A-Za-z_-]+}}"
    watch = f"{one}/watches/{{watch:[0-9A-Za-z_-]+}}"
    delivery = f"{watch}/deliveries/{{delivery:[0-9A-Za-z_:-]+}}"
    app.add_routes(
        [
            web.get(BASE, integration_pages.show_all),
            web.get(f"{BASE}/new", integration_forms.ask_new),
            web.post(f"{BASE}/new", integration_forms.create),
            web.get(one, integration_pages.show),
            web.get(f"{one}/edit", integration_forms.ask_edit),
            web.post(f"{one}/edit", integration_forms.edit),
            web.post(f"{one}/pause", integration_pages.pause),
            web.post(f"{one}/resume", integration_pages.resume),
            web.get(f"{one}/address", integration_pages.ask_address),
            web.post(f"{one}/address", integration_pages.rotate_address),
            web.get(f"{one}/secret", integration_forms.ask_secret),
            web.post(f"{one}/secret", integration_forms.set_secret),
            web.get(f"{one}/remove", integration_pages.ask_remove),
            web.post(f"{one}/remove", integration_pages.remove),
            web.get(f"{one}/events/{{event:[0-9A-Za-z_-]+}}", delivery_pages.show_event),
            web.get(f"{one}/watches/new", watch_forms.ask_new),
            web.post(f"{one}/watches/new", watch_forms.create),
            web.get(watch, watch_pages.show),
            web.get(f"{watch}/edit", watch_forms.ask_edit),
            web.post(f"{watch}/edit", watch_forms.edit),
            web.get(f"{watch}/rotate", watch_forms.ask_rotate),
            web.post(f"{watch}/rotate", watch_forms.rotate),
            web.post(f"{watch}/pause", watch_pages.pause),
            web.post(f"{watch}/resume", watch_pages.resume),
            web.get(f"{watch}/remove", watch_pages.ask_remove),
            web.post(f"{watch}/remove", watch_pages.remove),
            web.post(f"{watch}/replay", watch_pages.replay),
            web.get(delivery, delivery_pages.show),
            web.post(f"{delivery}/resend", delivery_pages.resend),
        ]
    )


async def _to_console(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPSeeOther("/console")
