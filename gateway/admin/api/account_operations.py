"""Accounts: the plan of their keys, enabled services, limit overrides."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Body, Call, Operation, Parameter, Reply, Success, listed
from gateway.admin.refusals import VERSION_REQUIRED, Refused
from gateway.domain.keys import Account
from gateway.manage.views import account_as_json, version_of

_TAG: Final = "accounts"
_ETAG: Final = {"ETag": "The version of the account, for If-Match."}
_SHOWN: Final = Success(200, "The account.", "Account", _ETAG)


async def _list(call: Call) -> Reply:
    query = call.query
    page = await call.management.accounts.page(query["after"], query["count"], query["text"])
    return listed([account_as_json(account) for account in page.accounts], page.next)


async def _get(call: Call) -> Reply:
    return _shown(await call.management.accounts.get(call.path["name"]))


async def _put(call: Call) -> Reply:
    must_be_new = call.headers["If-None-Match"] is not None
    if not must_be_new and call.headers["If-Match"] is None:
        raise Refused(VERSION_REQUIRED)
    account = await call.management.accounts.put(
        call.actor,
        call.path["name"],
        call.body,
        given.version_in(call.headers["If-Match"]),
        must_be_new,
    )
    return _shown(account, 201 if must_be_new else 200)


def _shown(account: Account, status: int = 200) -> Reply:
    shown = account_as_json(account)
    return Reply(shown, status, given.etag(version_of(shown)))


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
        description="Sets the whole account: fields that are not sent are empty. Send If-Match to "
        "replace what you have read, or 'If-None-Match: *' to create an account.",
        parameters=(
            given.ACCOUNT_NAME,
            replace(given.IF_MATCH, required=False),
            given.IF_NONE_MATCH,
        ),
        body=Body("AccountChange"),
        refusals=(428,),
    ),
)
