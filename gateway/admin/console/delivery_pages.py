"""The page of an event, the page of one of its deliveries, and delivering it again."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.console.render import page
from gateway.admin.console.webhook_parts import (
    address_of,
    hosts_of,
    integration_of,
    json_text,
    see,
    trail_to,
    watch_of,
    webhooks_of,
)
from gateway.admin.context import actor_of
from gateway.manage.deliveries import EventView
from gateway.manage.problems import NotThere


async def show_event(request: web.Request) -> web.StreamResponse:
    """An event, with what is delivered and what became of it."""
    its, webhooks = await integration_of(request), webhooks_of(request)
    view = await webhooks.deliveries.event(None, its.id, request.match_info["event"])
    watches = await webhooks.watches.list(its.account, its.id)
    text, is_cut = json_text(view.event.body)
    return page(
        request,
        "event",
        its=its,
        view=view,
        hosts=hosts_of(watches),
        text=text,
        is_cut=is_cut,
        trail=trail_to(its),
    )


async def show(request: web.Request) -> web.StreamResponse:
    """A delivery: its attempts, and what is delivered."""
    integration, its = await watch_of(request)
    webhooks = webhooks_of(request)
    delivery = await webhooks.deliveries.delivery(None, *its[1:], request.match_info["delivery"])
    watch = await webhooks.watches.get(*its)
    event = await _event(request, integration.id, delivery.event)
    text, is_cut = json_text(event.event.body) if event else ("", False)
    return page(
        request,
        "delivery",
        its=integration,
        view=watch,
        delivery=delivery,
        event=event.event if event else None,
        text=text,
        is_cut=is_cut,
        trail=trail_to(integration, watch.watch.id),
    )


async def resend(request: web.Request) -> web.StreamResponse:
    """Deliver the event once more, and show that delivery."""
    _, its = await watch_of(request)
    deliveries = webhooks_of(request).deliveries
    known = await deliveries.delivery(None, *its[1:], request.match_info["delivery"])
    made = await deliveries.resend(actor_of(request), None, *its[1:], known.event)
    raise see(address_of(*its[1:], made), "resent")


async def _event(request: web.Request, integration: str, event: str) -> EventView | None:
    """None: it is not kept any more."""
    try:
        return await webhooks_of(request).deliveries.event(None, integration, event)
    except NotThere:
        return None
