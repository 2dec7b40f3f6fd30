"""The page of a watch, and its buttons: pause, resume, remove, replay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin.console import forms
from gateway.admin.console.gate import management_of, typed
from gateway.admin.console.render import page
from gateway.admin.console.webhook_parts import (
    address_of,
    filter_in,
    hosts_of,
    link,
    see,
    time_in,
    trail_to,
    watch_of,
    webhooks_of,
)
from gateway.admin.context import actor_of
from gateway.domain.webhooks.deliveries import Attempt, Delivery, Page
from gateway.domain.webhooks.schedule import is_success
from gateway.manage.deliveries import SPAN_FIELDS, STATES
from gateway.manage.problems import Invalid
from gateway.manage.reading import read_fields

_PAGE: Final = 50
_ENTRIES: Final = 10
#: The newest deliveries among which the last failure is looked for.
_FAILURES: Final = 20


async def show(request: web.Request) -> web.StreamResponse:
    return await _show(request, forms.Form({}, {}))


async def pause(request: web.Request) -> web.StreamResponse:
    _, its = await watch_of(request)
    await webhooks_of(request).watches.pause(actor_of(request), *its)
    raise see(address_of(*its[1:]), "watch-paused")


async def resume(request: web.Request) -> web.StreamResponse:
    _, its = await watch_of(request)
    await webhooks_of(request).watches.resume(actor_of(request), *its)
    raise see(address_of(*its[1:]), "watch-resumed")


async def ask_remove(request: web.Request) -> web.StreamResponse:
    """Removing is final, so the user confirms."""
    integration, its = await watch_of(request)
    view = await webhooks_of(request).watches.get(*its)
    return page(request, "watch_remove", view=view, trail=trail_to(integration, view.watch.id))


async def remove(request: web.Request) -> web.StreamResponse:
    integration, its = await watch_of(request)
    await webhooks_of(request).watches.remove(actor_of(request), *its)
    raise see(address_of(integration.id), "watch-removed")


async def replay(request: web.Request) -> web.StreamResponse:
    """Deliver the events of a time again; or show the page again, with the faults."""
    _, its = await watch_of(request)
    fields = await typed(request)
    given = {name: fields[name] for name in SPAN_FIELDS if fields.get(name)}
    try:
        from_us, to_us = _span(given)
        done = await webhooks_of(request).deliveries.replay(
            actor_of(request), None, *its[1:], from_us, to_us
        )
    except Invalid as problem:
        return await _show(request, forms.form(fields, problem.faults, tuple(SPAN_FIELDS)))
    following = 0 if done.complete else done.next_us
    query = {"replayed": done.count, "waiting": done.waiting, "on": following}
    raise web.HTTPSeeOther(f"{address_of(*its[1:])}?{urlencode(query)}")


def _span(given: dict[str, str]) -> tuple[int, int]:
    values = read_fields(given, SPAN_FIELDS, *SPAN_FIELDS)
    return values["from"], values["to"]


async def _show(request: web.Request, form: forms.Form) -> web.StreamResponse:
    """A watch: how it does, its record, its deliveries; `form` is that of a replay."""
    integration, its = await watch_of(request)
    webhooks = webhooks_of(request)
    view = await webhooks.watches.get(*its)
    state, before_us = request.query.get("state", ""), time_in(request, "before")
    states = (state,) if state in STATES else ()
    wanted, chosen = filter_in(request)
    found = Page[Delivery]()
    if not chosen.faults:
        found = await webhooks.deliveries.of_watch(
            *(None, *its[1:], states, _PAGE, before_us), wanted=wanted
        )
    log = await management_of(request).audit.page(None, _ENTRIES, subject=f"watch:{its[2]}")
    home = address_of(*its[1:])
    query = {**({"state": state} if states else {}), **chosen.fields}
    return page(
        request,
        "watch",
        status=422 if form.faults or chosen.faults else 200,
        its=integration,
        view=view,
        host=hosts_of([view])[view.watch.id],
        failure=await _last_failure(request, its) if view.health.state != "active" else None,
        deliveries=found,
        state=state if states else "",
        states={each: link(home, {"state": each, **chosen.fields}) for each in STATES},
        any_state=link(home, chosen.fields),
        chosen=chosen,
        is_further=bool(before_us),
        home=home,
        newest=link(home, query),
        next=link(home, {**query, "before": found.next_us}) if found.next_us else "",
        form=form,
        replayed=time_in(request, "replayed") if "replayed" in request.query else None,
        left_out=time_in(request, "waiting"),
        replayed_until_us=time_in(request, "on"),
        entries=log.entries,
        trail=trail_to(integration),
    )


async def _last_failure(request: web.Request, its: tuple[str, str, str]) -> Attempt | None:
    """The last failed attempt of its newest deliveries that did not succeed."""
    failed = await webhooks_of(request).deliveries.of_watch(
        None, *its[1:], ("waiting", "dead", "cancelled"), _FAILURES
    )
    return max(_failures(failed), key=lambda each: each.at_us, default=None)


def _failures(deliveries: Iterable[Delivery]) -> Iterable[Attempt]:
    attempts = (attempt for each in deliveries for attempt in each.attempts)
    return (attempt for attempt in attempts if not is_success(attempt.status))
