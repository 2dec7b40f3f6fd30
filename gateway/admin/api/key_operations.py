"""Keys: creating, reading and changing them, their usage and their limits."""

from __future__ import annotations

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
from gateway.admin.api.usage_operations import as_table, span_of
from gateway.domain import key_format, patterns
from gateway.domain.keys import KeyRecord
from gateway.domain.ports import KeyFilter
from gateway.manage.forms import read_overlap_us
from gateway.manage.keys import KeyView
from gateway.manage.limits import now_as_json
from gateway.manage.problems import Fault, Invalid
from gateway.manage.reading import found, read_before_us, read_fields
from gateway.manage.usage_export import about_key
from gateway.manage.usage_sums import (
    report_as_json,
)
from gateway.manage.views import key_as_json, moment, recorded, version_of

_TAG: Final = "keys"
_ETAG: Final = {"ETag": "The version of the key, for If-Match."}
_SHOWN: Final = Success(200, "The key.", "Key", _ETAG)
#: The default overlap of a rotation: 24 hours.
_OVERLAP_US: Final = 24 * 3_600_000_000

_FILTERS: Final = (
    given.text("text", "Part of the id, the name or the account, in any letter case."),
    Parameter(
        "status",
        "query",
        {"type": "string", "enum": ["valid", "suspended", "revoked", "expired"]},
        "A status: valid, suspended, revoked or expired.",
    ),
    Parameter(
        "plan",
        "query",
        {"type": "string", "pattern": given.NAME_PATTERN},
        "A plan's name, or an earlier one of it: keys may have either.",
    ),
    Parameter(
        "account",
        "query",
        {"type": "string", "pattern": given.NAME_PATTERN},
        "The name of an account.",
    ),
    Parameter(
        "environment",
        "query",
        {"type": "string", "pattern": f"^{key_format.ENVIRONMENT}$"},
        "The name of an environment.",
    ),
    Parameter(
        "scope",
        "query",
        {"type": "string", "pattern": f"^{patterns.SCOPE}$"},
        "A scope that the key has.",
    ),
    given.text(
        "expires_before",
        "A date, an RFC 3339 time, or a duration from now: keys that expire before; expired ones "
        "too.",
    ),
    Parameter(
        "after",
        "query",
        {"type": "string", "pattern": given.KEY_ID_PATTERN},
        "The `next` of the previous page.",
    ),
    given.COUNT,
)


async def _list(call: Call) -> Reply:
    query, before = call.query, call.query["expires_before"]
    wanted = KeyFilter(
        text=query["text"] or None,
        status=query["status"],
        plans=None if query["plan"] is None else frozenset({query["plan"]}),
        account=query["account"],
        environment=query["environment"],
        scope=query["scope"],
        expires_before_us=None if before is None else read_before_us(call.now_us, before),
    )
    page = await call.management.keys.page(wanted, query["after"], query["count"])
    return listed([_as_json(call, view) for view in page.keys], page.next)


async def _create(call: Call) -> Reply:
    keys = call.management.keys
    record, text = await keys.create(
        call.actor, keys.read_new(call.body), call.headers["Idempotency-Key"]
    )
    shown = key_as_json(record, call.now_us, None)
    headers = {"Location": f"{BASE}/keys/{record.id}", **_etag(record)}
    return Reply({**shown, "key": text}, 201, headers)


async def _get(call: Call) -> Reply:
    return await _shown(call)


async def _edit(call: Call) -> Reply:
    keys = call.management.keys
    change = keys.read_change(call.body)
    await keys.edit(call.actor, call.path["id"], change, _version(call))
    return await _shown(call)


async def _rotate(call: Call) -> Reply:
    overlap_us = read_fields(call.body, {"overlap": _read_overlap_us}).get("overlap", _OVERLAP_US)
    old, new, text = await call.management.keys.rotate(
        call.actor, call.path["id"], overlap_us, _version(call)
    )
    shown = key_as_json(new, call.now_us, None)
    headers = {"Location": f"{BASE}/keys/{new.id}", **_etag(new)}
    more = {"key": text, "replaces": old.id, "old_expires": moment(old.expires_us)}
    return Reply({**shown, **more}, 201, headers)


async def _suspend(call: Call) -> Reply:
    await call.management.keys.suspend(call.actor, call.path["id"], _version(call))
    return await _shown(call)


async def _resume(call: Call) -> Reply:
    await call.management.keys.resume(call.actor, call.path["id"], _version(call))
    return await _shown(call)


async def _revoke(call: Call) -> Reply:
    await call.management.keys.revoke(call.actor, call.path["id"], _version(call))
    return await _shown(call)


async def _usage(call: Call) -> Reply:
    report = await call.management.usage.of_key(call.path["id"], span_of(call))
    view = await call.management.keys.get(call.path["id"])
    return as_table(call, [(about_key(view.record), report)]) or Reply(report_as_json(report))


async def _limits(call: Call) -> Reply:
    return listed([now_as_json(one) for one in await call.management.limits.now(call.path["id"])])


async def _reset(call: Call) -> Reply:
    await call.management.limits.reset(call.actor, call.path["id"], call.path["name"])
    return Reply(status=204)


async def _shown(call: Call) -> Reply:
    """The key as it is now, with changes that others may have made meanwhile."""
    view = await call.management.keys.get(call.path["id"])
    return Reply(_as_json(call, view), headers=_etag(view.record))


def _etag(record: KeyRecord) -> dict[str, str]:
    return given.etag(version_of(recorded(record)))


def _as_json(call: Call, view: KeyView) -> dict[str, object]:
    return key_as_json(view.record, call.now_us, view.used_us)


def _version(call: Call) -> str | None:
    return given.version_in(call.headers["If-Match"])


def _read_overlap_us(value: object) -> int:
    if not isinstance(value, str):
        raise Invalid(Fault("overlap", found(value), "a duration such as 24h"))
    return read_overlap_us(value)


OPERATIONS: Final = (
    Operation(
        "GET",
        "/keys",
        "listKeys",
        _TAG,
        "List keys",
        _list,
        (Success(200, "Keys, the newest first.", "KeyList"),),
        parameters=_FILTERS,
    ),
    Operation(
        "POST",
        "/keys",
        "createKey",
        _TAG,
        "Create a key",
        _create,
        (
            Success(
                201,
                "The key, with its text, which is shown only once.",
                "MadeKey",
                {**_ETAG, "Location": "The path of the key."},
            ),
        ),
        parameters=(given.IDEMPOTENCY_KEY,),
        body=Body("NewKey"),
        refusals=(409,),
    ),
    Operation(
        "GET",
        "/keys/{id}",
        "getKey",
        _TAG,
        "Describe a key",
        _get,
        (_SHOWN,),
        parameters=(given.KEY_ID,),
    ),
    Operation(
        "PATCH",
        "/keys/{id}",
        "editKey",
        _TAG,
        "Change a key",
        _edit,
        (_SHOWN,),
        description="Changes only the fields that are sent; null clears the expiry or the plan. "
        "Every worker applies it within a second.",
        parameters=(given.KEY_ID, given.IF_MATCH),
        body=Body("KeyChange"),
        refusals=(409,),
    ),
    Operation(
        "POST",
        "/keys/{id}/rotate",
        "rotateKey",
        _TAG,
        "Rotate a key",
        _rotate,
        (
            Success(
                201,
                "The successor, with its text, which is shown only once.",
                "RotatedKey",
                {**_ETAG, "Location": "The path of the successor."},
            ),
        ),
        description="The old key stays valid for the overlap; both share their limits.",
        parameters=(given.KEY_ID, given.MAYBE_IF_MATCH),
        body=Body("Rotation", required=False),
        refusals=(409,),
    ),
    *(
        Operation(
            "POST",
            f"/keys/{{id}}/{name}",
            f"{name}Key",
            _TAG,
            summary,
            handler,
            (_SHOWN,),
            description=f"{what} Repeating it changes nothing.".strip(),
            parameters=(given.KEY_ID, given.MAYBE_IF_MATCH),
            refusals=(409,),
        )
        for name, summary, handler, what in (
            ("suspend", "Suspend a key until it is resumed", _suspend, ""),
            ("resume", "Resume a suspended key", _resume, ""),
            ("revoke", "Revoke a key", _revoke, "This is final."),
        )
    ),
    Operation(
        "GET",
        "/keys/{id}/usage",
        "getKeyUsage",
        _TAG,
        "Usage of a key",
        _usage,
        (Success(200, "Requests by time, outcome and route.", "Usage", is_csv=True),),
        parameters=(given.KEY_ID, *given.SPAN),
    ),
    Operation(
        "GET",
        "/keys/{id}/limits",
        "listKeyLimits",
        _TAG,
        "Limits of a key, and their remaining units",
        _limits,
        (Success(200, "Every limit that is counted for the key or its account.", "LimitList"),),
        description="Counts in no limit.",
        parameters=(given.KEY_ID,),
    ),
    Operation(
        "POST",
        "/keys/{id}/limits/{name}/reset",
        "resetKeyLimit",
        _TAG,
        "Reset a limit of a key",
        _reset,
        (Success(204, "The limit is reset, on every worker."),),
        parameters=(given.KEY_ID, given.LIMIT_NAME),
        refusals=(409,),
    ),
)
