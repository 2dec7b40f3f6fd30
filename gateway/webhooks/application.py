"""The courier's HTTP application: watches, events and deliveries of customers, and captures.

It is reached by workers of the gateway, on loopback. To anyone else it answers 404 with no body,
whatever is asked for: a local process learns nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from gateway import errors
from gateway.domain.ports import StoreDown
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.manage.deliveries import Deliveries
from gateway.manage.refusals import BODIES_FULL, told, told_of
from gateway.manage.watches import Watches
from gateway.observe.log_throttle import LogThrottle
from gateway.webhooks.answers import refused
from gateway.webhooks.bodies import MOST_ASKED, BodiesFull, BodyBudget
from gateway.webhooks.capture import Capture
from gateway.webhooks.delivery_routes import ROUTES as DELIVERY_ROUTES
from gateway.webhooks.listener import Connection
from gateway.webhooks.requests import (
    Call,
    caller_of,
    is_of_worker,
    read_json,
    read_path,
    read_query,
    request_id_of,
)
from gateway.webhooks.routes import Faces, Handler, Route
from gateway.webhooks.sender import Sender
from gateway.webhooks.tester import Tester
from gateway.webhooks.turns import Turns
from gateway.webhooks.watch_routes import ROUTES as WATCH_ROUTES

log = logging.getLogger("gateway")

_ROUTES: Final = (*WATCH_ROUTES, *DELIVERY_ROUTES)
#: What is captured needs no key; everything else is of an account.
_CAPTURES: Final = "/hooks/"

_throttle: Final = LogThrottle()

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ApplicationDeps:
    """What the application needs.

    token:    that workers send
    sender:   of test deliveries; it has to be open while the application is served
    master:   the key of which the secrets of watches are derived
    settings: those of now
    """

    token: str = field(repr=False)
    watches: Watches
    deliveries: Deliveries
    capture: Capture
    sender: Sender
    master: bytes = field(repr=False)
    clock_us: Callable[[], int]
    settings: Callable[[], WebhookSettings]


def build_application(deps: ApplicationDeps) -> web.Application:
    """The application of one courier."""
    application = web.Application(middlewares=[_guard(deps.token)])
    application.on_response_prepare.append(_plain)
    tester = Tester(
        deps.watches, deps.sender, deps.master, lambda: deps.settings().names, deps.clock_us
    )
    faces = Faces(deps.watches, deps.deliveries, tester)
    turns = Turns()
    # Not that of captures, whose senders need no key.
    bodies = BodyBudget(MOST_ASKED)
    router = application.router
    router.add_post(_CAPTURES + "{capture}", deps.capture.serve)
    for route in _ROUTES:
        serve = _serving(route, faces, turns, bodies)
        if route.method == "GET":
            router.add_get(route.path, serve)  # with HEAD
        else:
            router.add_route(route.method, route.path, serve)
    return application


def _serving(route: Route, faces: Faces, turns: Turns, bodies: BodyBudget) -> Serve:
    handler: Handler = route.handler

    async def serve(request: web.Request) -> web.StreamResponse:
        actor, account = caller_of(request)
        path = read_path(request)
        query = read_query(request, route.query)
        if not route.has_body:
            return await handle(Call(actor, account, path, query), account)
        with bodies.body(account) as held:
            body = await read_json(request, held)
            return await handle(Call(actor, account, path, query, body), account)

    async def handle(call: Call, account: str) -> web.StreamResponse:
        if not route.needs_turn:
            return await handler(faces, call)
        async with turns.of(account):
            return await handler(faces, call)

    return serve


def _guard(token: str) -> Callable[..., Awaitable[web.StreamResponse]]:
    @web.middleware
    async def guard(request: web.Request, handler: Serve) -> web.StreamResponse:
        """Serve workers only; turn errors into answers."""
        if not is_of_worker(request, token):
            answer = web.Response(status=404)
            answer.force_close()
            return answer
        if isinstance(request.protocol, Connection):
            request.protocol.is_of_worker = True
        request_id = request_id_of(request)
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            return refused(
                told(errors.METHOD_NOT_ALLOWED), request_id, sorted(error.allowed_methods)
            )
        except BodiesFull:
            return refused(told(BODIES_FULL), request_id)
        except web.HTTPNotFound:
            return refused(told(errors.NOT_FOUND), request_id)
        except web.HTTPException:
            raise
        except Exception as error:
            return _failed(error, request, request_id)

    return guard


def _failed(error: Exception, request: web.Request, request_id: str) -> web.Response:
    known = told_of(error)
    resource = request.match_info.route.resource
    # The route and not the path, which may be a capture address.
    where = f"{request.method} {'' if resource is None else resource.canonical}"
    if isinstance(error, StoreDown):
        _warn(where, error)
    if known is None:
        log.error("%s failed (request %s)", where, request_id, exc_info=error)
        known = told(errors.INTERNAL)
    return refused(known, request_id)


def _warn(where: str, error: StoreDown) -> None:
    if (suppressed := _throttle.suppressed("store", time.monotonic())) is not None:
        more = f" ({suppressed} such requests were suppressed)" if suppressed else ""
        log.warning("%s cannot be answered: %s%s", where, error, more)


async def _plain(_request: web.Request, response: web.StreamResponse) -> None:
    # What the server is built with is nobody's business; secrets are in some answers.
    response.headers["Server"] = "gateway"
    response.headers["Cache-Control"] = "no-store"
