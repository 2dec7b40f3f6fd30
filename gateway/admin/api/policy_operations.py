"""Policies: which are loaded, and what they mean for a request."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from gateway.admin.api.operations import Body, Call, Operation, Reply, Success
from gateway.admin.api.reading import read_value
from gateway.admin.api.schemas import SCHEMAS
from gateway.manage.problems import Fault, Invalid
from gateway.manage.reading import Reader, found, or_none, read_fields

_TAG: Final = "policies"


async def _policies(call: Call) -> Reply:
    # In a thread: it also reads the folder, to compare it with the loaded policy.
    return Reply(await asyncio.to_thread(call.management.policies.shown))


async def _explain(call: Call) -> Reply:
    readers: dict[str, Reader] = {
        "method": partial(_text, "method"),
        "path": partial(_text, "path"),
        "key_id": or_none(partial(_text, "key_id")),
        "client_ip": or_none(partial(_text, "client_ip")),
    }
    asked = read_fields(call.body, readers, "method", "path")
    explained = await call.management.explain.ask(
        asked["method"], asked["path"], asked.get("key_id"), asked.get("client_ip") or "127.0.0.1"
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
