"""The API of integrations, watches and tests."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.domain.webhooks.events import Integration
from gateway.manage.views import moment
from gateway.manage.watches import view_as_json
from gateway.webhooks.answers import page_of, shown, shown_page
from gateway.webhooks.requests import PAGE, Call
from gateway.webhooks.routes import INTEGRATIONS, WATCH, WATCHES, Faces, Route
from gateway.webhooks.tester import tested_as_json


async def _integrations(faces: Faces, call: Call) -> web.Response:
    its = await faces.watches.integrations(call.account)
    before_us = call.before_us
    its = [each for each in its if not before_us or each.created_us < before_us]
    its.sort(key=lambda each: (each.created_us, each.id), reverse=True)
    return shown_page(page_of(its, call.limit, lambda each: each.created_us), _integration_as_json)


async def _list(faces: Faces, call: Call) -> web.Response:
    views = await faces.watches.list(call.account, call.path["integration"])
    return shown({"items": [view_as_json(view) for view in views], "next": None})


async def _create(faces: Faces, call: Call) -> web.Response:
    integration = call.path["integration"]
    view, secret = await faces.watches.create(call.actor, call.account, integration, call.body)
    location = f"{INTEGRATIONS}/{integration}/watches/{view.watch.id}"
    return shown({**view_as_json(view), "secret": secret}, 201, {"Location": location})


async def _show(faces: Faces, call: Call) -> web.Response:
    return shown(view_as_json(await faces.watches.get(call.account, *_ids(call))))


async def _edit(faces: Faces, call: Call) -> web.Response:
    view = await faces.watches.edit(call.actor, call.account, *_ids(call), call.body)
    return shown(view_as_json(view))


async def _remove(faces: Faces, call: Call) -> web.Response:
    await faces.watches.remove(call.actor, call.account, *_ids(call))
    return web.Response(status=204)


async def _rotate(faces: Faces, call: Call) -> web.Response:
    view, secret = await faces.watches.rotate(call.actor, call.account, *_ids(call))
    return shown({**view_as_json(view), "secret": secret})


async def _pause(faces: Faces, call: Call) -> web.Response:
    return shown(view_as_json(await faces.watches.pause(call.actor, call.account, *_ids(call))))


async def _resume(faces: Faces, call: Call) -> web.Response:
    return shown(view_as_json(await faces.watches.resume(call.actor, call.account, *_ids(call))))


async def _test(faces: Faces, call: Call) -> web.Response:
    return shown(tested_as_json(await faces.tester.test(call.account, call.body)))


def _ids(call: Call) -> tuple[str, str]:
    return call.path["integration"], call.path["watch"]


def _integration_as_json(integration: Integration) -> dict[str, object]:
    """As its account sees it: without its capture address, by which anyone can send events."""
    return {
        "id": integration.id,
        "provider": integration.kind,
        "name": integration.name,
        "paused": integration.is_paused,
        "created": moment(integration.created_us),
    }


ROUTES: Final = (
    Route("GET", INTEGRATIONS, _integrations, query=PAGE),
    Route("GET", WATCHES, _list),
    Route("POST", WATCHES, _create, has_body=True),
    Route("GET", WATCH, _show),
    Route("PATCH", WATCH, _edit, has_body=True),
    Route("DELETE", WATCH, _remove),
    Route("POST", WATCH + "/rotate-secret", _rotate),
    Route("POST", WATCH + "/pause", _pause),
    Route("POST", WATCH + "/resume", _resume),
    Route("POST", "/api/webhooks/test", _test, has_body=True, needs_turn=False),
)
