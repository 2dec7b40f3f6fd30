"""The API of events and deliveries: what became of them, and once more."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.domain.webhooks.raw_bodies import as_kept
from gateway.manage.deliveries import (
    SPAN_FIELDS,
    delivery_as_json,
    event_as_json,
    event_view_as_json,
    replayed_as_json,
)
from gateway.manage.reading import read_fields
from gateway.webhooks.answers import page_as_json, shown, shown_as_kept, shown_page
from gateway.webhooks.requests import DELIVERIES, FILTERED, Call
from gateway.webhooks.routes import INTEGRATIONS, WATCH, Faces, Route

_EVENTS: Final = INTEGRATIONS + "/{integration}/events"
_DELIVERIES: Final = WATCH + "/deliveries"
_DELIVERY: Final = _DELIVERIES + "/{delivery}"


async def _events(faces: Faces, call: Call) -> web.Response:
    found = await faces.deliveries.events(
        call.account, call.path["integration"], call.limit, call.before_us, call.wanted
    )
    return shown_as_kept(page_as_json(found, lambda each: event_as_json(each, as_kept)))


async def _event(faces: Faces, call: Call) -> web.Response:
    its, event = call.path["integration"], call.path["event"]
    found = await faces.deliveries.event(call.account, its, event)
    return shown_as_kept(event_view_as_json(found, as_kept))


async def _list(faces: Faces, call: Call) -> web.Response:
    states = call.query.get("state", ())
    found = await faces.deliveries.of_watch(
        call.account, *_watch(call), states, call.limit, call.before_us, call.wanted
    )
    return shown_page(found, delivery_as_json)


async def _show(faces: Faces, call: Call) -> web.Response:
    delivery = call.path["delivery"]
    found = await faces.deliveries.delivery(call.account, *_watch(call), delivery)
    return shown(delivery_as_json(found))


async def _dead(faces: Faces, call: Call) -> web.Response:
    found = await faces.deliveries.dead(
        call.account, call.path["integration"], call.limit, call.before_us, call.wanted
    )
    return shown_page(found, delivery_as_json)


async def _resend(faces: Faces, call: Call) -> web.Response:
    integration, watch = _watch(call)
    known = await faces.deliveries.delivery(call.account, integration, watch, call.path["delivery"])
    made = await faces.deliveries.resend(call.actor, call.account, integration, watch, known.event)
    location = _DELIVERY.format(integration=integration, watch=watch, delivery=made)
    return shown({"id": made, "event": known.event, "watch": watch}, 202, {"Location": location})


async def _replay(faces: Faces, call: Call) -> web.Response:
    given = read_fields(call.body, SPAN_FIELDS, *SPAN_FIELDS)
    made = await faces.deliveries.replay(
        call.actor, call.account, *_watch(call), given["from"], given["to"]
    )
    return shown(replayed_as_json(made), 202)


def _watch(call: Call) -> tuple[str, str]:
    return call.path["integration"], call.path["watch"]


ROUTES: Final = (
    Route("GET", _EVENTS, _events, query=FILTERED),
    Route("GET", _EVENTS + "/{event}", _event),
    Route("GET", _DELIVERIES, _list, query=DELIVERIES),
    Route("GET", _DELIVERY, _show),
    Route("POST", _DELIVERY + "/resend", _resend),
    Route("POST", WATCH + "/replay", _replay, has_body=True),
    Route("GET", INTEGRATIONS + "/{integration}/dead-letters", _dead, query=FILTERED),
)
