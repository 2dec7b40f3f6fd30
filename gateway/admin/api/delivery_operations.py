"""Events of an integration, and what became of them at its watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Body, Call, Operation, Parameter, Reply, Success, listed
from gateway.admin.api.webhook_parts import (
    DELIVERY_ID,
    EVENT_ID,
    INTEGRATION_ID,
    TAG,
    WATCH_ID,
    webhooks_of,
)
from gateway.domain.webhooks.deliveries import Filter, Page
from gateway.domain.webhooks.event_types import MOST_TYPE, PATTERN
from gateway.manage.deliveries import (
    FILTER_FIELDS,
    SPAN_FIELDS,
    STATES,
    delivery_as_json,
    event_as_json,
    event_view_as_json,
    read_filter,
    replayed_as_json,
)
from gateway.manage.reading import read_fields, read_moment_us
from gateway.manage.views import moment

T = TypeVar("T")

_EVENTS: Final = "/integrations/{id}/events"
_WATCH: Final = "/integrations/{id}/watches/{watch}"
_DELIVERY: Final = _WATCH + "/deliveries/{delivery}"
_BEFORE: Final = given.text(
    "before", "The `next` of the previous page: a time such as 2026-12-31T12:00:00Z.", 40
)
#: Those of FILTER_FIELDS.
_FILTER: Final = (
    Parameter(
        "type",
        "query",
        {"type": "string", "pattern": f"^{PATTERN}$", "maxLength": MOST_TYPE},
        "A type such as pull_request.merged, or pull_request.*: only of such events.",
    ),
    given.text("from", "Only from then on: 2026-12-31T12:00:00Z, or 2026-12-31 in UTC.", 40),
    given.text("to", "Only before then.", 40),
)


async def _events(call: Call) -> Reply:
    deliveries = webhooks_of(call).deliveries
    found = await deliveries.events(None, call.path["id"], call.query["count"], *_page(call))
    return _listed(found, event_as_json)


async def _event(call: Call) -> Reply:
    deliveries = webhooks_of(call).deliveries
    view = await deliveries.event(None, call.path["id"], call.path["event"])
    return Reply(event_view_as_json(view))


async def _dead(call: Call) -> Reply:
    deliveries, count = webhooks_of(call).deliveries, call.query["count"]
    found = await deliveries.dead(None, call.path["id"], count, *_page(call))
    return _listed(found, delivery_as_json)


async def _of_watch(call: Call) -> Reply:
    deliveries, count, state = (
        webhooks_of(call).deliveries,
        call.query["count"],
        call.query["state"],
    )
    states = () if state is None else (state,)
    found = await deliveries.of_watch(None, *_its(call), states, count, *_page(call))
    return _listed(found, delivery_as_json)


async def _delivery(call: Call) -> Reply:
    deliveries = webhooks_of(call).deliveries
    return Reply(
        delivery_as_json(await deliveries.delivery(None, *_its(call), call.path["delivery"]))
    )


async def _resend(call: Call) -> Reply:
    deliveries, its = webhooks_of(call).deliveries, _its(call)
    known = await deliveries.delivery(None, *its, call.path["delivery"])
    made = await deliveries.resend(call.actor, None, *its, known.event)
    return Reply({"delivery": made}, 202)


async def _replay(call: Call) -> Reply:
    deliveries = webhooks_of(call).deliveries
    values = read_fields(call.body, SPAN_FIELDS, *SPAN_FIELDS)
    done = await deliveries.replay(call.actor, None, *_its(call), values["from"], values["to"])
    return Reply(replayed_as_json(done), 202)


def _listed(page: Page[T], as_json: Callable[[T], object]) -> Reply:
    return listed(list(map(as_json, page)), moment(page.next_us or None))


def _its(call: Call) -> tuple[str, str]:
    return call.path["id"], call.path["watch"]


def _page(call: Call) -> tuple[int, Filter]:
    """Before when the entries of a page are, and which ones are wanted. Raises Invalid."""
    before, sent = call.query["before"], {name: call.query[name] for name in FILTER_FIELDS}
    return (
        0 if before is None else read_moment_us("before", before),
        read_filter({name: value for name, value in sent.items() if value is not None}),
    )


OPERATIONS: Final = (
    Operation(
        "GET",
        _EVENTS,
        "listEvents",
        TAG,
        "List the events of an integration",
        _events,
        (Success(200, "Events, the newest first.", "EventList"),),
        description="Those that are still kept, by when they were accepted. Large ones make a page "
        "shorter, and with `type` it is of the next 500: it may be empty though there are more. "
        "There are as long as `next` is not null.",
        parameters=(INTEGRATION_ID, *_FILTER, _BEFORE, given.COUNT),
    ),
    Operation(
        "GET",
        _EVENTS + "/{event}",
        "getEvent",
        TAG,
        "Describe an event and its deliveries",
        _event,
        (Success(200, "The event.", "EventWithDeliveries"),),
        parameters=(INTEGRATION_ID, EVENT_ID),
    ),
    Operation(
        "GET",
        "/integrations/{id}/dead-letters",
        "listDeadLetters",
        TAG,
        "List the deliveries of an integration that were given up",
        _dead,
        (Success(200, "Deliveries, the last one first.", "DeliveryList"),),
        description="By when they were given up. What is sent again is in it no more. With `type`, "
        "a page is of the next 500: it may be short or empty though there are more.",
        parameters=(INTEGRATION_ID, *_FILTER, _BEFORE, given.COUNT),
    ),
    Operation(
        "GET",
        _WATCH + "/deliveries",
        "listDeliveries",
        TAG,
        "List the deliveries of a watch",
        _of_watch,
        (Success(200, "Deliveries with their attempts, the newest first.", "DeliveryList"),),
        description="By when they were made. With `state` or `type`, a page is of the next 500 "
        "deliveries: it may be short or empty though there are more. There are as long as `next` "
        "is not null.",
        parameters=(
            INTEGRATION_ID,
            WATCH_ID,
            Parameter(
                "state",
                "query",
                {"type": "string", "enum": list(STATES)},
                "Only those in this state.",
            ),
            *_FILTER,
            _BEFORE,
            given.COUNT,
        ),
    ),
    Operation(
        "GET",
        _DELIVERY,
        "getDelivery",
        TAG,
        "Describe a delivery and its attempts",
        _delivery,
        (Success(200, "The delivery.", "Delivery"),),
        parameters=(INTEGRATION_ID, WATCH_ID, DELIVERY_ID),
    ),
    Operation(
        "POST",
        _DELIVERY + "/resend",
        "resendDelivery",
        TAG,
        "Deliver an event once more",
        _resend,
        (Success(202, "Another delivery is queued.", "Resent"),),
        description="Whatever became of this one. The event has the same id.",
        parameters=(INTEGRATION_ID, WATCH_ID, DELIVERY_ID),
        refusals=(409,),
    ),
    Operation(
        "POST",
        _WATCH + "/replay",
        "replayEvents",
        TAG,
        "Deliver the events of a time once more",
        _replay,
        (Success(202, "Deliveries are queued.", "Replayed"),),
        description="Those that are still kept and that the watch takes, at most 10,000 at once; "
        "live events go first. What still waits is left out. An account has one replay at a time.",
        parameters=(INTEGRATION_ID, WATCH_ID),
        body=Body("Replay"),
        refusals=(409,),
    ),
)
