"""Integrations: connections of accounts with providers, and events that are published to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import (
    BASE,
    Body,
    Call,
    Operation,
    Parameter,
    Reply,
    Success,
    listed,
)
from gateway.admin.api.webhook_parts import INTEGRATION_ID, TAG, webhooks_of
from gateway.domain.webhooks.events import MOST_EVENT, Integration
from gateway.manage.audit_log import Actor
from gateway.manage.integrations import integration_as_json, integration_version

_ETAG: Final = {"ETag": "The version of the integration, for If-Match."}
_SHOWN: Final = Success(200, "The integration.", "Integration", _ETAG)
#: The most bytes of a published event, with what is around its data.
_MOST_BODY: Final = MOST_EVENT + 64 * 1024


async def _list(call: Call) -> Reply:
    known = await webhooks_of(call).integrations.list(call.query["account"])
    count, after = call.query["count"], call.query["after"]
    found = [each for each in known if after is None or each.id > after]
    more = found[count - 1].id if len(found) > count else None
    return listed(list(map(integration_as_json, found[:count])), more)


async def _create(call: Call) -> Reply:
    made, shown = await webhooks_of(call).integrations.create(call.actor, call.body)
    location = {"Location": f"{BASE}/integrations/{made.id}"}
    return _shown(made, 201, location, secret=shown.made)


async def _get(call: Call) -> Reply:
    return _shown(await webhooks_of(call).integrations.get(call.path["id"]))


async def _edit(call: Call) -> Reply:
    integrations = webhooks_of(call).integrations
    return _shown(await integrations.edit(*_change(call), call.body, given.version_of(call)))


async def _pause(call: Call) -> Reply:
    integrations = webhooks_of(call).integrations
    return _shown(await integrations.pause(*_change(call), given.version_of(call)))


async def _resume(call: Call) -> Reply:
    integrations = webhooks_of(call).integrations
    return _shown(await integrations.resume(*_change(call), given.version_of(call)))


async def _rotate_address(call: Call) -> Reply:
    integrations = webhooks_of(call).integrations
    return _shown(await integrations.rotate_address(*_change(call), given.version_of(call)))


async def _set_secrets(call: Call) -> Reply:
    integrations = webhooks_of(call).integrations
    changed, shown = await integrations.set_secrets(
        *_change(call), call.body, given.version_of(call)
    )
    return _shown(changed, secret=shown.made)


async def _delete(call: Call) -> Reply:
    force = call.query["force"] == "true"
    version = given.version_of(call)
    await webhooks_of(call).integrations.remove(*_change(call), force=force, version=version)
    return Reply(status=204)


async def _publish(call: Call) -> Reply:
    done = await webhooks_of(call).integrations.publish(call.path["id"], call.body)
    return Reply({"event": done.event, "deliveries": done.deliveries}, 202)


def _shown(
    its: Integration, status: int = 200, headers: Mapping[str, str] | None = None, **more: object
) -> Reply:
    """An integration, with these headers and further fields."""
    etag = given.etag(integration_version(its))
    return Reply({**integration_as_json(its), **more}, status, {**etag, **(headers or {})})


def _change(call: Call) -> tuple[Actor, str]:
    return call.actor, call.path["id"]


OPERATIONS: Final = (
    Operation(
        "GET",
        "/integrations",
        "listIntegrations",
        TAG,
        "List integrations",
        _list,
        (Success(200, "Integrations, by id.", "IntegrationList"),),
        parameters=(
            Parameter(
                "account",
                "query",
                {"type": "string", "pattern": given.NAME_PATTERN},
                "Only those of this account.",
            ),
            Parameter(
                "after",
                "query",
                INTEGRATION_ID.schema,
                "The `next` of the previous page.",
            ),
            given.COUNT,
        ),
    ),
    Operation(
        "POST",
        "/integrations",
        "createIntegration",
        TAG,
        "Create an integration",
        _create,
        (
            Success(
                201,
                "The integration, with the secret that was made for its provider.",
                "NewIntegration",
                {**_ETAG, "Location": "The path of the integration."},
            ),
        ),
        description="Its provider sends webhooks to the address in `capture`, signed with one of "
        "`secrets`. Without `secrets` one is made, and shown only once.",
        body=Body("IntegrationCreate"),
        refusals=(409,),
    ),
    Operation(
        "GET",
        "/integrations/{id}",
        "getIntegration",
        TAG,
        "Describe an integration",
        _get,
        (_SHOWN,),
        parameters=(INTEGRATION_ID,),
    ),
    Operation(
        "PATCH",
        "/integrations/{id}",
        "editIntegration",
        TAG,
        "Change an integration",
        _edit,
        (_SHOWN,),
        description="Changes only the fields that are sent.",
        parameters=(INTEGRATION_ID, given.IF_MATCH),
        body=Body("IntegrationChange"),
    ),
    Operation(
        "DELETE",
        "/integrations/{id}",
        "deleteIntegration",
        TAG,
        "Delete an integration",
        _delete,
        (Success(204, "The integration is deleted."),),
        description="Fails with 409 if it has watches.",
        parameters=(
            INTEGRATION_ID,
            given.MAYBE_IF_MATCH,
            Parameter(
                "force",
                "query",
                {"type": "string", "enum": ["true", "false"], "default": "false"},
                "true: with its watches, which cancels what waits for them.",
            ),
        ),
        refusals=(409,),
    ),
    *(
        Operation(
            "POST",
            f"/integrations/{{id}}/{name}",
            f"{name}Integration",
            TAG,
            summary,
            handler,
            (_SHOWN,),
            description=f"{what} Repeating it changes nothing.",
            parameters=(INTEGRATION_ID, given.MAYBE_IF_MATCH),
        )
        for name, summary, handler, what in (
            (
                "pause",
                "Pause an integration until it is resumed",
                _pause,
                "Its address answers 404, and nothing can be published. What waits is delivered.",
            ),
            ("resume", "Resume a paused integration", _resume, "It captures events again."),
        )
    ),
    Operation(
        "POST",
        "/integrations/{id}/rotate-address",
        "rotateIntegrationAddress",
        TAG,
        "Give an integration another capture address",
        _rotate_address,
        (_SHOWN,),
        description="The address before captures nothing any more.",
        parameters=(INTEGRATION_ID, given.MAYBE_IF_MATCH),
        refusals=(409,),
    ),
    Operation(
        "PUT",
        "/integrations/{id}/secret",
        "setIntegrationSecret",
        TAG,
        "Replace the secrets of an integration's provider",
        _set_secrets,
        (Success(200, "The integration, with the secret that was made.", "NewIntegration", _ETAG),),
        description="All secrets are replaced: send the one before as well while the provider "
        "changes to a new one. Without `secrets` one is made, and shown only once.",
        parameters=(INTEGRATION_ID, given.MAYBE_IF_MATCH),
        body=Body("SecretsChange"),
        refusals=(409,),
    ),
    Operation(
        "POST",
        "/integrations/{id}/events",
        "publishEvent",
        TAG,
        "Publish an event",
        _publish,
        (Success(202, "The event is kept, and its deliveries are queued.", "Published"),),
        description="For events of your own API. An `id` that was sent in the last 7 days is of "
        "the same event: it is not delivered again, and `deliveries` is 0. It has no entry in the "
        "audit log.",
        parameters=(INTEGRATION_ID,),
        body=Body("EventToPublish", most=_MOST_BODY),
        refusals=(409,),
    ),
)
