"""Refusals for MCP clients: each has the id of its request, and says what to do."""

from __future__ import annotations

import json

import pytest

from gateway.domain.limits import LEASE_US, PERIODS_US, Limit
from gateway.domain.mcp.messages import Body, Fault, Message
from gateway.domain.mcp.refusals import limited_words, refusal_body
from gateway.errors import (
    COST_EXCEEDS_LIMIT,
    INSUFFICIENT_SCOPE,
    KEY_MISSING,
    MESSAGE_INVALID,
    RATE_LIMITED,
    STORE_UNAVAILABLE,
    TOOL_NOT_PERMITTED,
    TOOL_UNKNOWN,
    Refusal,
)

CALL = Message("request", b'"c"', "tools/call", "search")
LIST = Message("request", b"2", "tools/list")
NOTE = Message("notification", b"", "notifications/initialized")


@pytest.mark.parametrize(
    ("refusal", "body", "status", "message_id", "code"),
    [
        (KEY_MISSING, None, 401, None, 401),
        (INSUFFICIENT_SCOPE, None, 403, None, 403),
        (RATE_LIMITED, Body((CALL,)), 429, "c", 429),
        (COST_EXCEEDS_LIMIT, Body((CALL,)), 429, "c", 429),
        (RATE_LIMITED, Body((NOTE,)), 429, None, 429),
        (STORE_UNAVAILABLE, Body((LIST,)), 503, 2, 503),
        (TOOL_NOT_PERMITTED, Body((CALL,)), 200, "c", 403),
        (TOOL_UNKNOWN, Body((CALL,)), 200, "c", -32602),
    ],
)
def test_errors(
    refusal: Refusal, body: Body | None, status: int, message_id: object, code: int
) -> None:
    """The HTTP status is that of the refusal, unless the server itself would answer so."""
    answer = refusal_body(refusal, "words", {"a": 1}, body, None, as_result=False)
    read = json.loads(answer.body)
    assert (answer.status, read["id"], read["error"]["code"]) == (status, message_id, code)
    assert read["error"]["message"] == "words"
    assert read["error"]["data"] == {"code": refusal.code.lower(), "a": 1}


def test_a_body_that_cannot_be_read() -> None:
    """The code is that of the fault, and the id, if it was found."""
    fault = Fault(-32602, "why", b"7")
    answer = refusal_body(MESSAGE_INVALID, "words", {}, None, fault, as_result=False)
    read = json.loads(answer.body)
    assert (answer.status, read["id"], read["error"]["code"]) == (400, 7, -32602)


@pytest.mark.parametrize("refusal", [RATE_LIMITED, COST_EXCEEDS_LIMIT])
def test_as_a_result(refusal: Refusal) -> None:
    """A model reads the result of a call; another request gets an error, with 200 as well."""
    answer = refusal_body(refusal, "words", {}, Body((CALL,)), None, as_result=True)
    result = json.loads(answer.body)["result"]
    assert (answer.status, result["isError"]) == (200, True)
    assert result["content"] == [{"type": "text", "text": "words"}]
    answer = refusal_body(refusal, "words", {}, Body((LIST,)), None, as_result=True)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (200, 429)
    assert refusal_body(refusal, "", {}, Body((NOTE,)), None, as_result=True).status == 429
    assert refusal_body(KEY_MISSING, "", {}, Body((CALL,)), None, as_result=True).status == 401


@pytest.mark.parametrize(
    ("version", "kind"), [("", None), ("2025-11-25", None), ("2026-07-28", "complete")]
)
def test_the_type_of_a_result(version: str, kind: str | None) -> None:
    """From 2026-07-28 on a result says that it is complete; clients refuse one without."""
    call = Message("request", b"1", "tools/call", "search", version)
    answer = refusal_body(RATE_LIMITED, "words", {}, Body((call,)), None, as_result=True)
    assert json.loads(answer.body)["result"].get("resultType") == kind


def test_arrays() -> None:
    """Each request of an array gets its own answer; notifications get none."""
    body = Body((CALL, NOTE, LIST), is_array=True)
    answer = refusal_body(RATE_LIMITED, "words", {}, body, None, as_result=True)
    first, second = json.loads(answer.body)
    assert (first["id"], "result" in first) == ("c", True)
    assert (second["id"], "error" in second) == (2, True)


def test_an_array_with_a_refused_call() -> None:
    """Only calls of that tool are refused for it; the others learn which message is to blame."""
    again = Message("request", b"3", "tools/call", "search")
    body = Body((LIST, CALL, NOTE, again), is_array=True)
    answer = refusal_body(
        TOOL_UNKNOWN, "Unknown tool: search.", {"a": 1}, body, None, CALL, as_result=True
    )
    other, *refused = json.loads(answer.body)
    assert [each["id"] for each in refused] == ["c", 3]
    for each in refused:
        assert (each["error"]["code"], each["error"]["message"]) == (
            -32602,
            "Unknown tool: search.",
        )
    assert (other["id"], other["error"]["code"]) == (2, 424)
    assert other["error"]["message"] == (
        "The array of messages was refused as a whole, because of the message with the id "
        '"c". Send this request without it.'
    )
    assert other["error"]["data"] == {"code": TOOL_UNKNOWN.code.lower(), "a": 1}


def test_an_array_that_is_refused_for_another_reason() -> None:
    """A call was to be refused for its tool, but the answer is a failure: it is that of all."""
    body = Body((LIST, CALL), is_array=True)
    answer = refusal_body(STORE_UNAVAILABLE, "words", {}, body, None, CALL, as_result=False)
    assert [each["error"]["message"] for each in json.loads(answer.body)] == ["words"] * 2


@pytest.mark.parametrize(
    ("limit", "retry_s", "words"),
    [
        (
            Limit("mcp", "rate", 100, 60_000_000),
            12,
            "Rate limit exceeded: 100 requests per minute (mcp). Try again in 12 seconds.",
        ),
        (
            Limit("mcp-daily", "quota", 10_000, PERIODS_US["day"]),
            1,
            "Rate limit exceeded: 10000 requests per day (mcp-daily). Try again in 1 second.",
        ),
        (
            Limit("control", "rate", 9, 1_000_000, of="messages"),
            1,
            "Rate limit exceeded: 9 messages per second (control). Try again in 1 second.",
        ),
        (
            Limit("mcp/search", "rate", 1, 60_000_000),
            59,
            "Rate limit exceeded: 1 request per minute (mcp/search). Try again in 59 seconds.",
        ),
        (
            Limit("flight", "concurrency", 25, LEASE_US),
            1,
            "Rate limit exceeded: 25 concurrent requests (flight). Try again in 1 second.",
        ),
        (
            Limit("open", "connections", 5, LEASE_US),
            1,
            "Rate limit exceeded: 5 connections (open). Try again in 1 second.",
        ),
        (
            Limit("mcp", "rate", 3, 60_000_000),
            None,
            "Rate limit exceeded: 3 requests per minute (mcp). "
            "This request counts more than the limit ever admits.",
        ),
    ],
)
def test_words(limit: Limit, retry_s: int | None, words: str) -> None:
    """No client heeds Retry-After: the message says it all."""
    assert limited_words(limit, retry_s, 1) == words


def test_words_of_a_costly_call() -> None:
    """A client that has counted its calls learns why they were fewer."""
    limit = Limit("mcp", "rate", 100, 60_000_000)
    assert limited_words(limit, 9, 5) == (
        "Rate limit exceeded: 100 requests per minute (mcp); this request counts as 5. "
        "Try again in 9 seconds."
    )
