"""Headers of an MCP request agree with its body, or the request is refused."""

from __future__ import annotations

import pytest

from gateway.domain.mcp.agreement import METHOD, NAME, VERSION, Headers, disagreement, read_headers
from gateway.domain.mcp.messages import HEADER_MISMATCH, Body, Message

CALL = Message("request", b"7", "tools/call", "suche é", "2026-07-28")
OLD = Message("request", b"7", "tools/call", "search")


@pytest.mark.parametrize(
    ("message", "headers"),
    [
        (CALL, {}),
        (CALL, {VERSION: "2026-07-28", METHOD: "tools/call"}),
        (CALL, {NAME: "=?base64?c3VjaGUgw6k=?="}),
        (OLD, {VERSION: "2025-11-25", NAME: "search"}),
        (OLD, {NAME: "=?base64?c2VhcmNo?="}),
        (Message("notification", b"", "notifications/initialized"), {VERSION: "2025-06-18"}),
    ],
)
def test_they_agree(message: Message, headers: dict[str, str]) -> None:
    """A name may be encoded; a message of an older version does not name its version."""
    assert disagreement(Body((message,)), read_headers(lambda name: headers.get(name, ""))) is None


@pytest.mark.parametrize(
    ("message", "headers"),
    [
        (CALL, {VERSION: "2025-11-25"}),
        (CALL, {METHOD: "tools/list"}),
        (CALL, {METHOD: "Tools/call"}),
        (CALL, {NAME: "suche"}),
        (CALL, {NAME: "=?base64?c3VjaGU=?="}),
        (CALL, {NAME: "=?base64?%%%?="}),
        (CALL, {NAME: "=?base64?/w==?="}),
        (OLD, {NAME: "SEARCH"}),
        (Message("request", b"7", "tools/list"), {NAME: "search"}),
    ],
)
def test_they_differ(message: Message, headers: dict[str, str]) -> None:
    """The fault has the message's id, and not what was sent."""
    found = disagreement(Body((message,)), read_headers(lambda name: headers.get(name, "")))
    assert found is not None
    (name,) = headers
    assert (found.code, found.id) == (HEADER_MISMATCH, b"7")
    assert found.message == f"The header {name} differs from the body."


def test_arrays() -> None:
    """A header names one message: with an array it is refused."""
    body = Body((OLD, OLD), is_array=True)
    assert disagreement(body, Headers("", "", "")) is None
    assert disagreement(body, Headers("2025-03-26", "", "")) is None
    assert disagreement(body, Headers("", "tools/call", "")) is not None
    assert disagreement(body, Headers("", "", "search")) is not None
