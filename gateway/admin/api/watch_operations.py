"""Watches of an integration, for the operator, who acts for the integration's account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import BASE, Body, Call, Operation, Reply, Success, listed
from gateway.admin.api.webhook_parts import INTEGRATION_ID, TAG, WATCH_ID, webhooks_of
from gateway.manage.watches import WatchView, view_as_json

_PATH: Final = "/integrations/{id}/watches"
_ONE: Final = _PATH + "/{watch}"
_ETAG: Final = {"ETag": "The version of the watch, for If-Match."}
_SHOWN: Final = Success(200, "The watch.", "Watch", _ETAG)


async def _list(call: Call) -> Reply:
    found = await webhooks_of(call).watches.list(*await _its(call))
    return listed(list(map(view_as_json, found)))


async def _create(call: Call) -> Reply:
    watches = webhooks_of(call).watches
    account, integration = await _its(call)
    view, secret = await watches.create(call.actor, account, integration, call.body)
    location = f"{BASE}/integrations/{integration}/watches/{view.watch.id}"
    return _shown(view, 201, {"Location": location}, secret=secret)


async def _get(call: Call) -> Reply:
    watches = webhooks_of(call).watches
    return _shown(await watches.get(*await _its(call), call.path["watch"]))


async def _edit(call: Call) -> Reply:
    watches, its, watch = webhooks_of(call).watches, await _its(call), call.path["watch"]
    version = given.version_of(call)
    return _shown(await watches.edit(call.actor, *its, watch, call.body, version))


async def _rotate(call: Call) -> Reply:
    watches, its, watch = webhooks_of(call).watches, await _its(call), call.path["watch"]
    view, secret = await watches.rotate(call.actor, *its, watch, given.version_of(call))
    return _shown(view, secret=secret)


async def _pause(call: Call) -> Reply:
    watches, its, watch = webhooks_of(call).watches, await _its(call), call.path["watch"]
    return _shown(await watches.pause(call.actor, *its, watch, given.version_of(call)))


async def _resume(call: Call) -> Reply:
    watches, its, watch = webhooks_of(call).watches, await _its(call), call.path["watch"]
    return _shown(await watches.resume(call.actor, *its, watch, given.version_of(call)))


async def _delete(call: Call) -> Reply:
    watches, its, watch = webhooks_of(call).watches, await _its(call), call.path["watch"]
    await watches.remove(call.actor, *its, watch, given.version_of(call))
    return Reply(status=204)


def _shown(
    view: WatchView, status: int = 200, headers: Mapping[str, str] | None = None, **more: object
) -> Reply:
    """A watch, with these headers and further fields."""
    return Reply(
        {**view_as_json(view), **more}, status, {**given.etag(view.version), **(headers or {})}
    )


async def _its(call: Call) -> tuple[str, str]:
    """The account of the integration in the path, and its id."""
    integration = await webhooks_of(call).integrations.get(call.path["id"])
    return integration.account, integration.id


OPERATIONS: Final = (
    Operation(
        "GET",
        _PATH,
        "listWatches",
        TAG,
        "List the watches of an integration",
        _list,
        (Success(200, "Watches, the oldest first.", "WatchList"),),
        parameters=(INTEGRATION_ID,),
    ),
    Operation(
        "POST",
        _PATH,
        "createWatch",
        TAG,
        "Create a watch",
        _create,
        (
            Success(
                201,
                "The watch, with its secret, which is shown only once.",
                "NewWatch",
                {**_ETAG, "Location": "The path of the watch."},
            ),
        ),
        description="Events of these types are sent to the URL from now on.",
        parameters=(INTEGRATION_ID,),
        body=Body("WatchCreate"),
        refusals=(409,),
    ),
    Operation(
        "GET",
        _ONE,
        "getWatch",
        TAG,
        "Describe a watch",
        _get,
        (_SHOWN,),
        parameters=(INTEGRATION_ID, WATCH_ID),
    ),
    Operation(
        "PATCH",
        _ONE,
        "editWatch",
        TAG,
        "Change a watch",
        _edit,
        (_SHOWN,),
        description="Changes only the fields that are sent. What waits goes to the new URL, at the "
        "new rate.",
        parameters=(INTEGRATION_ID, WATCH_ID, given.IF_MATCH),
        body=Body("WatchChange"),
    ),
    Operation(
        "DELETE",
        _ONE,
        "deleteWatch",
        TAG,
        "Delete a watch",
        _delete,
        (Success(204, "The watch is deleted; what waits for it is cancelled."),),
        parameters=(INTEGRATION_ID, WATCH_ID, given.MAYBE_IF_MATCH),
    ),
    Operation(
        "POST",
        _ONE + "/rotate-secret",
        "rotateWatchSecret",
        TAG,
        "Give a watch another secret",
        _rotate,
        (Success(200, "The watch, with its secret, which is shown only once.", "NewWatch", _ETAG),),
        description="For 24 hours webhook-signature has the signature of the secret before as "
        "well; x-service-signature is of the new one at once.",
        parameters=(INTEGRATION_ID, WATCH_ID, given.MAYBE_IF_MATCH),
    ),
    *(
        Operation(
            "POST",
            f"{_ONE}/{name}",
            f"{name}Watch",
            TAG,
            summary,
            handler,
            (_SHOWN,),
            description=f"{what} Repeating it changes nothing.",
            parameters=(INTEGRATION_ID, WATCH_ID, given.MAYBE_IF_MATCH),
            refusals=(409,),
        )
        for name, summary, handler, what in (
            ("pause", "Pause a watch until it is resumed", _pause, "Its events wait meanwhile."),
            ("resume", "Resume a watch", _resume, "Also one that was disabled."),
        )
    ),
)
