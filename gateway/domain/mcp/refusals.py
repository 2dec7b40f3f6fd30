"""The bodies of refusals for MCP clients: errors of JSON-RPC, or results of a call that failed.

Clients that get an error without the id of their request wait for ever, and none heeds Retry-After:
so each has the id, where it was read, and names the seconds in its message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.domain.limits import Limit
from gateway.domain.mcp.messages import INVALID_PARAMS, LAST_STATEFUL, Body, Fault, Message
from gateway.domain.mcp.settings import CALL
from gateway.errors import (
    COST_EXCEEDS_LIMIT,
    MESSAGE_INVALID,
    RATE_LIMITED,
    TOOL_NOT_PERMITTED,
    TOOL_UNKNOWN,
    Refusal,
)

#: Answers of the server's kind: the request was read, and its answer is an error.
_ANSWERED: Final = frozenset((TOOL_NOT_PERMITTED, TOOL_UNKNOWN))
#: Those by a limit.
LIMITED: Final = frozenset((RATE_LIMITED, COST_EXCEEDS_LIMIT))
#: The code of requests that another message of their array is to blame for, as that of HTTP (424,
#: "Failed Dependency").
NOT_RUN: Final = 424


@dataclass(frozen=True, slots=True)
class Answer:
    """status: of HTTP; body: JSON"""

    status: int
    body: bytes


def refusal_body(
    refusal: Refusal,
    message: str,
    data: Mapping[str, Any],
    body: Body | None,
    fault: Fault | None,
    refused: Message | None = None,
    *,
    as_result: bool,
) -> Answer:
    """The answer to a refused request.

    message:   for people and models
    data:      further details
    body:      the messages; None: they were not read
    fault:     why they could not be read
    refused:   the call that is refused, if it is one for its tool
    as_result: a call that a limit refuses gets a result
    """
    code = refusal.status
    if fault is not None and refusal is MESSAGE_INVALID:
        code = fault.code
    elif refusal is TOOL_UNKNOWN:
        code = INVALID_PARAMS
    error = {"code": code, "message": message, "data": {"code": refusal.code.lower(), **data}}
    requests = () if body is None else body.requests
    if not requests:
        return Answer(refusal.status, _error(b"null" if fault is None else fault.id, error))
    is_result = as_result and refusal in LIMITED
    blamed = refused if refusal in _ANSWERED else None
    parts = [
        _result(each, message)
        if is_result and each.method == CALL
        else _error(each.id, error if _is_alike(each, blamed) else _of_others(error, blamed))
        for each in requests
    ]
    whole = b"[%b]" % b", ".join(parts) if body is not None and body.is_array else parts[0]
    return Answer(200 if is_result or refusal in _ANSWERED else refusal.status, whole)


def _is_alike(request: Message, blamed: Message | None) -> bool:
    """Is it refused itself, as it calls the same tool? None: all are."""
    return blamed is None or (request.method, request.name) == (blamed.method, blamed.name)


def _of_others(error: Mapping[str, Any], blamed: Message | None) -> dict[str, Any]:
    """The error of a request that is refused only because another one of its array is."""
    assert blamed is not None, "without it, all are refused themselves"
    message_id = blamed.id.decode("utf-8")
    text = (
        "The array of messages was refused as a whole, because of the message with the id "
        f"{message_id}. Send this request without it."
    )
    return {**error, "code": NOT_RUN, "message": text}


def limited_words(limit: Limit, retry_s: int | None, cost: int) -> str:
    """Why a limit refused a request, and when to try again. cost: of the request in this limit"""
    counts = f"; this request counts as {cost}" if cost > 1 else ""
    words = f"Rate limit exceeded: {_of_limit(limit)} ({limit.name}){counts}."
    if retry_s is None:
        return f"{words} This request counts more than the limit ever admits."
    return f"{words} Try again in {retry_s} second{'' if retry_s == 1 else 's'}."


def _of_limit(limit: Limit) -> str:
    """A limit for people: "100 requests per minute"."""
    if limit.is_leased:
        return f"{limit.amount} {limit.rules.unit_words}"
    of = limit.of.removesuffix("s") if limit.amount == 1 else limit.of
    return f"{limit.amount} {of} per {limit.unit}"


def _error(message_id: bytes, error: Mapping[str, Any]) -> bytes:
    return _answer(message_id, b"error", error)


def _result(request: Message, message: str) -> bytes:
    result: dict[str, Any] = {"content": [{"type": "text", "text": message}], "isError": True}
    if request.version > LAST_STATEFUL:
        # Required from 2026-07-28 on: clients refuse a result without it.
        result["resultType"] = "complete"
    return _answer(request.id, b"result", result)


def _answer(message_id: bytes, name: bytes, value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value).encode("ascii")
    return b'{"jsonrpc": "2.0", "id": %b, "%b": %b}' % (message_id, name, text)
