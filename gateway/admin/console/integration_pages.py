"""Integrations: their list, the page of one, and its buttons: pause, new address, remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin.console.forms import Form
from gateway.admin.console.gate import management_of, typed
from gateway.admin.console.render import page
from gateway.admin.console.webhook_parts import (
    BASE,
    address_of,
    filter_in,
    hosts_of,
    integration_of,
    link,
    see,
    time_in,
    trail_to,
    webhooks_of,
)
from gateway.admin.context import READINESS, actor_of
from gateway.domain.webhooks.deliveries import Delivery, Page
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.manage.deliveries import EventView
from gateway.manage.problems import Conflict

_PAGE: Final = 50
#: An event has up to 50 deliveries, of which the page shows the states.
_EVENTS: Final = 20
_ENTRIES: Final = 10


async def show_all(request: web.Request) -> web.StreamResponse:
    """Integrations by id, and how many couriers run; or that this gateway has no webhooks."""
    webhooks = management_of(request).webhooks
    text = request.query.get("text", "").strip()
    after = request.query.get("after", "")
    known = [] if webhooks is None else await webhooks.integrations.list()
    found = [each for each in known if _has(each, text.lower()) and each.id > after]
    query = {"text": text, "after": found[_PAGE - 1].id} if len(found) > _PAGE else {}
    return page(
        request,
        "integrations",
        is_off=webhooks is None,
        couriers=(await request.app[READINESS]()).checks.get("couriers"),
        integrations=found[:_PAGE],
        text=text,
        is_further=bool(after),
        next=f"{BASE}?{urlencode(query)}" if query else None,
    )


async def show(request: web.Request) -> web.StreamResponse:
    """One integration: its watches, its events with their deliveries, its dead letters."""
    its, webhooks = await integration_of(request), webhooks_of(request)
    events_before, dead_before = time_in(request, "before"), time_in(request, "dead")
    wanted, chosen = filter_in(request)
    events, dead = Page[EventView](), Page[Delivery]()
    if not chosen.faults:
        asked = (None, its.id, _EVENTS)
        events = await webhooks.deliveries.event_views(*asked, events_before, wanted)
        dead = await webhooks.deliveries.dead(*asked, dead_before, wanted)
    watches = await webhooks.watches.list(its.account, its.id)
    log = await management_of(request).audit.page(None, _ENTRIES, subject=f"integration:{its.id}")
    home = address_of(its.id)
    return page(
        request,
        "integration",
        status=422 if chosen.faults else 200,
        its=its,
        kind=KINDS[its.kind],
        watches=watches,
        hosts=hosts_of(watches),
        chosen=chosen,
        newest=link(home, chosen.fields),
        events=events,
        older=_older(home, chosen.fields, "before", events.next_us),
        dead=dead,
        older_dead=_older(home, chosen.fields, "dead", dead.next_us),
        is_further=bool(events_before),
        is_further_dead=bool(dead_before),
        entries=log.entries,
    )


async def pause(request: web.Request) -> web.StreamResponse:
    its = await webhooks_of(request).integrations.pause(actor_of(request), request.match_info["id"])
    raise see(address_of(its.id), "integration-paused")


async def resume(request: web.Request) -> web.StreamResponse:
    its = await webhooks_of(request).integrations.resume(
        actor_of(request), request.match_info["id"]
    )
    raise see(address_of(its.id), "integration-resumed")


async def ask_address(request: web.Request) -> web.StreamResponse:
    """The address before captures nothing any more, so the user confirms."""
    its = await integration_of(request)
    return page(request, "integration_address", its=its, trail=trail_to(its))


async def rotate_address(request: web.Request) -> web.StreamResponse:
    its = await webhooks_of(request).integrations.rotate_address(
        actor_of(request), request.match_info["id"]
    )
    raise see(address_of(its.id), "address-rotated")


async def ask_remove(request: web.Request) -> web.StreamResponse:
    """Removing is final, so the user types the integration's name."""
    return await _remove_form(request, await integration_of(request), Form({}, {}))


async def remove(request: web.Request) -> web.StreamResponse:
    """Remove the integration, if its name was typed; with its watches, if that was chosen."""
    its, fields = await integration_of(request), await typed(request)
    if fields.get("name", "") != its.name:
        fault = f"Found another name, expected {its.name}."
        return await _remove_form(request, its, Form(fields, {"name": (fault,)}))
    force = fields.get("watches") == "yes"
    try:
        await webhooks_of(request).integrations.remove(actor_of(request), its.id, force=force)
    except Conflict:
        fault = "It has watches. Choose to remove them, or do it before."
        return await _remove_form(request, its, Form(fields, {"watches": (fault,)}))
    raise see(BASE, "integration-removed")


async def _remove_form(request: web.Request, its: Integration, form: Form) -> web.StreamResponse:
    return page(
        request,
        "integration_remove",
        status=422 if form.faults else 200,
        its=its,
        form=form,
        watches=len(await webhooks_of(request).watches.list(its.account, its.id)),
        trail=trail_to(its),
    )


def _older(home: str, query: Mapping[str, str], name: str, next_us: int) -> str:
    """The address of the next page of a list; "": there is none."""
    return link(home, {**query, name: next_us}) if next_us else ""


def _has(its: Integration, text: str) -> bool:
    return any(text in each.lower() for each in (its.name, its.account, its.kind, its.id))
