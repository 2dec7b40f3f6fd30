"""Accounts: the plan of their keys, enabled services, limit overrides, status."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Body, Call, Operation, Parameter, Reply, Success, listed
from gateway.admin.refusals import VERSION_REQUIRED
from gateway.manage.account_removal import remove_account
from gateway.manage.accounts import view_as_json
from gateway.manage.limits import now_as_json
from gateway.manage.refusals import Refused

_TAG: Final = "accounts"
_ETAG: Final = {"ETag": "The version of the account, for If-Match."}
_SHOWN: Final = Success(200, "The account.", "Account", _ETAG)


async def _list(call: Call) -> Reply:
    query = call.query
    page = await call.management.accounts.page(
        query["after"], query["count"], query["text"], query["implicit"]
    )
    return listed(list(map(view_as_json, page.accounts)), page.next)


async def _get(call: Call) -> Reply:
    return await _shown(call)


async def _limits(call: Call) -> Reply:
    await call.management.accounts.view(call.path["name"])
    limits = await call.management.limits.of_account(call.path["name"])
    return listed(list(map(now_as_json, limits)))


async def _put(call: Call) -> Reply:
    must_be_new = call.headers["If-None-Match"] is not None
    if not must_be_new and call.headers["If-Match"] is None:
        raise Refused(VERSION_REQUIRED)
    await call.management.accounts.put(
        call.actor,
        call.path["name"],
        call.body,
        given.version_in(call.headers["If-Match"]),
        must_be_new,
    )
    return await _shown(call, 201 if must_be_new else 200)


async def _edit(call: Call) -> Reply:
    version = given.version_in(call.headers["If-Match"])
    await call.management.accounts.edit(call.actor, call.path["name"], call.body, version)
    return await _shown(call)


async def _suspend(call: Call) -> Reply:
    version = given.version_in(call.headers["If-Match"])
    await call.management.accounts.suspend(call.actor, call.path["name"], version)
    return await _shown(call)


async def _resume(call: Call) -> Reply:
    version = given.version_in(call.headers["If-Match"])
    await call.management.accounts.resume(call.actor, call.path["name"], version)
    return await _shown(call)


async def _delete(call: Call) -> Reply:
    management = call.management
    await remove_account(
        management.accounts,
        management.keys,
        call.actor,
        call.path["name"],
        revokes=call.query["force"] == "true",
        version=given.version_in(call.headers["If-Match"]),
    )
    return Reply(status=204)


async def _shown(call: Call, status: int = 200) -> Reply:
    """The account as it is now, with changes that others may have made meanwhile."""
    view = await call.management.accounts.view(call.path["name"])
    return Reply(view_as_json(view), status, given.etag(view.version))


OPERATIONS: Final = (
    Operation(
        "GET",
        "/accounts",
        "listAccounts",
        _TAG,
        "List accounts",
        _list,
        (Success(200, "Accounts, by name.", "AccountList"),),
        parameters=(
            given.text("text", "Part of the name, in any letter case."),
            Parameter(
                "after",
                "query",
                {"type": "string", "pattern": given.NAME_PATTERN},
                "The `next` of the previous page.",
            ),
            Parameter(
                "implicit",
                "query",
                {"type": "string", "enum": ["none", "named", "all"], "default": "none"},
                "Accounts without a record that are listed too: none; named: those that keys were "
                "given; all: also those that keys have because none was given. Unless it is none, "
                "all keys are read, and `keys` is counted.",
            ),
            given.COUNT,
        ),
    ),
    Operation(
        "GET",
        "/accounts/{name}",
        "getAccount",
        _TAG,
        "Describe an account",
        _get,
        (_SHOWN,),
        description="Also one that has no record, only keys: its first change creates the record.",
        parameters=(given.ACCOUNT_NAME,),
    ),
    Operation(
        "GET",
        "/accounts/{name}/limits",
        "listAccountLimits",
        _TAG,
        "Effective limits of an account",
        _limits,
        (Success(200, "Every limit of its keys.", "AccountLimitList"),),
        description="The limits of a key of the account that has no plan and no limits of its own. "
        "`remaining` and `reset_after` are null for limits that each key has for itself. Counts in "
        "no limit.",
        parameters=(given.ACCOUNT_NAME,),
    ),
    Operation(
        "PUT",
        "/accounts/{name}",
        "putAccount",
        _TAG,
        "Create or replace an account",
        _put,
        (_SHOWN, replace(_SHOWN, status=201, description="The new account.")),
        description="Sets the whole account, but not its status: fields that are not sent are "
        "empty. Send If-Match to replace what you have read, or 'If-None-Match: *' to create an "
        "account.",
        parameters=(
            given.ACCOUNT_NAME,
            replace(given.IF_MATCH, required=False),
            given.IF_NONE_MATCH,
        ),
        body=Body("AccountChange"),
        refusals=(428,),
    ),
    Operation(
        "PATCH",
        "/accounts/{name}",
        "editAccount",
        _TAG,
        "Change an account",
        _edit,
        (_SHOWN,),
        description="Changes only the fields that are sent; null clears the plan. An account "
        "without a record gets one, if it has keys. Every worker applies it within a second.",
        parameters=(given.ACCOUNT_NAME, given.IF_MATCH),
        body=Body("AccountChange"),
    ),
    *(
        Operation(
            "POST",
            f"/accounts/{{name}}/{name}",
            f"{name}Account",
            _TAG,
            summary,
            handler,
            (_SHOWN,),
            description=f"{what} Repeating it changes nothing.",
            parameters=(given.ACCOUNT_NAME, given.MAYBE_IF_MATCH),
        )
        for name, summary, handler, what in (
            (
                "suspend",
                "Suspend an account until it is resumed",
                _suspend,
                "All of its keys are refused within a second, and their long answers end.",
            ),
            (
                "resume",
                "Resume a suspended account",
                _resume,
                "Its keys are as they would be without the suspension.",
            ),
        )
    ),
    Operation(
        "DELETE",
        "/accounts/{name}",
        "deleteAccount",
        _TAG,
        "Delete an account",
        _delete,
        (Success(204, "The account is deleted."),),
        description="Fails with 409 if it has keys that are not revoked, or integrations.",
        parameters=(
            given.ACCOUNT_NAME,
            Parameter(
                "force",
                "query",
                {"type": "string", "enum": ["true", "false"], "default": "false"},
                "true: revoke its keys and remove its integrations first, which is final.",
            ),
            given.MAYBE_IF_MATCH,
        ),
        refusals=(409,),
    ),
)
