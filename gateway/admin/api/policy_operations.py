"""Policies: which are loaded, which were before, and what they mean for a request."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Body, Call, Operation, Parameter, Reply, Success, listed
from gateway.admin.api.reading import read_value
from gateway.admin.api.schemas import SCHEMAS
from gateway.manage.policy_changes import change_as_json
from gateway.manage.policy_history import load_as_json
from gateway.manage.problems import Fault, Invalid
from gateway.manage.reading import Reader, found, or_none, read_fields

_TAG: Final = "policies"


async def _policies(call: Call) -> Reply:
    # In a thread: `shown` also reads the folder, to compare it with the loaded policy.
    policies = call.management.policies
    candidates = policies.candidates()
    return Reply({**await asyncio.to_thread(policies.shown), "candidates": candidates})


async def _history(call: Call) -> Reply:
    return listed(list(map(load_as_json, await call.management.history.loads())))


async def _version(call: Call) -> Reply:
    policy = call.path["hash"]
    return Reply({"hash": policy, "texts": dict(await call.management.history.texts(policy))})


async def _changes(call: Call) -> Reply:
    history, policy = call.management.history, call.path["hash"]
    since = call.query["since"] or await history.before(policy)
    changes = await history.changes(since, policy)
    return Reply({"old": since, "new": policy, "changes": list(map(change_as_json, changes))})


async def _explain(call: Call) -> Reply:
    readers: dict[str, Reader] = {
        "method": partial(_text, "method"),
        "path": partial(_text, "path"),
        "key_id": or_none(partial(_text, "key_id")),
        "client_ip": or_none(partial(_text, "client_ip")),
        "host": or_none(partial(_text, "host")),
    }
    asked = read_fields(call.body, readers, "method", "path")
    explained = await call.management.explain.ask(
        asked["method"],
        asked["path"],
        asked.get("key_id"),
        asked.get("client_ip") or "127.0.0.1",
        asked.get("host") or "",
    )
    return Reply(explained)


def _text(at: str, value: object) -> str:
    """A field of the question, by its schema. An invalid value is not shown: it may be a key."""
    schema = SCHEMAS["Question"]["properties"][at]
    if isinstance(value, str) and read_value(schema, value) is not None:
        return value
    what = f"{len(value)} other characters" if isinstance(value, str) else found(value)
    raise Invalid(Fault(at, what, schema["description"]))


OPERATIONS: Final = (
    Operation(
        "GET",
        "/policies",
        "getPolicies",
        _TAG,
        "The loaded policies",
        _policies,
        (
            Success(
                200, "Plans and routes in words, and the state of the files on disk.", "Policies"
            ),
        ),
    ),
    Operation(
        "GET",
        "/policies/history",
        "listPolicyLoads",
        _TAG,
        "List which policies were loaded",
        _history,
        (Success(200, "All entries, the newest first.", "PolicyLoadList"),),
        description="The store keeps the last 50. A change that several gateways load has one "
        "entry, that of the first.",
    ),
    Operation(
        "GET",
        "/policies/history/{hash}",
        "getPolicyVersion",
        _TAG,
        "The files of a policy in the history",
        _version,
        (Success(200, "The texts of its files.", "PolicyVersion"),),
        parameters=(given.POLICY_HASH,),
    ),
    Operation(
        "GET",
        "/policies/history/{hash}/changes",
        "comparePolicies",
        _TAG,
        "What differs between two policies in the history",
        _changes,
        (Success(200, "The differences in effect, the most important first.", "PolicyChanges"),),
        parameters=(
            given.POLICY_HASH,
            Parameter(
                "since",
                "query",
                given.POLICY_HASH.schema,
                "The hash of the other policy; default: the one before it.",
            ),
        ),
        refusals=(409,),
    ),
    Operation(
        "POST",
        "/explain",
        "explain",
        _TAG,
        "What would happen to a request",
        _explain,
        (Success(200, "The rules in words, and what would happen now.", "Explanation"),),
        description="Counts nothing, and sends nothing to an upstream.",
        body=Body("Question"),
    ),
)
