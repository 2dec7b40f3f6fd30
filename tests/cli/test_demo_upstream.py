"""The demo's upstream answers every shipped route, and refuses invalid requests clearly."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gateway.cli.demo_upstream import SERVER, build_demo_upstream

Client = TestClient[web.Request, web.Application]

WATCHES = "/api/v1/integrations/int_1/watches"


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with TestClient(TestServer(build_demo_upstream())) as client:
        yield client


async def answered(answer: aiohttp.ClientResponse) -> tuple[int, Any]:
    assert answer.content_type == "application/json"
    assert answer.headers["Server"] == SERVER
    return answer.status, await answer.json()


async def test_connectors_are_a_list(client: Client) -> None:
    """Each connector has an id, a kind, a name and a status."""
    status, body = await answered(await client.get("/v1/connectors"))
    assert status == 200
    assert body["connectors"]
    for connector in body["connectors"]:
        assert set(connector) == {"id", "kind", "name", "status"}


@pytest.mark.parametrize(("path", "subject"), [("users", "users"), ("a/b", "a/b"), ("", "")])
async def test_a_search_says_what_was_searched(client: Client, path: str, subject: str) -> None:
    """The results include the rest of the path and the query."""
    status, body = await answered(await client.get(f"/api/search/{path}?q=open"))
    assert (status, body["in"], body["query"]) == (200, subject, "open")
    assert len(body["results"]) == 3


async def test_a_batch_has_a_result_for_each_id(client: Client) -> None:
    """In the order of the ids, repeated ones included."""
    status, body = await answered(
        await client.post("/api/tickets/batch", json={"ids": ["b", "a", "b"]})
    )
    assert status == 200
    assert body == {"results": [{"id": each, "kind": "tickets"} for each in ("b", "a", "b")]}


BAD_BODIES = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xff", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b"[]", "not a JSON object"),
    (b"{}", "'ids'"),
    (b'{"ids": "a"}', "'ids'"),
    (b'{"ids": []}', "'ids'"),
    (b'{"ids": ["a", 1]}', "'ids'"),
]


@pytest.mark.parametrize(("sent", "complaint"), BAD_BODIES)
async def test_a_bad_batch_is_refused(client: Client, sent: bytes, complaint: str) -> None:
    """400, and the message says what is wrong with it."""
    status, body = await answered(await client.post("/api/tickets/batch", data=sent))
    assert (status, body["error"]) == (400, "bad_request")
    assert complaint in body["message"]


async def test_a_body_beyond_bounds_is_refused(client: Client) -> None:
    """This refusal is JSON, too."""
    status, body = await answered(
        await client.post("/api/x/batch", data=io.BytesIO(b" " * 2_000_000))
    )
    assert (status, body["error"]) == (413, "content_too_large")


async def test_a_webhook_test_is_accepted(client: Client) -> None:
    """202: the event is on its way."""
    status, body = await answered(await client.post("/api/webhooks/test"))
    assert (status, body["status"]) == (202, "accepted")
    assert body["event"].startswith("evt_")


async def test_a_watch_is_created(client: Client) -> None:
    """201 with the requested fields, an id, and the integration it belongs to."""
    sent = {"url": "https://example.com/hook", "events": ["ticket.*", "pull_request.opened"]}
    status, body = await answered(await client.post(WATCHES, json=sent))
    assert status == 201
    assert body.pop("id").startswith("wat_")
    assert body == {"integration": "int_1", **sent}


BAD_WATCHES = [
    ({"events": ["a"]}, "'url'"),
    ({"url": 1, "events": ["a"]}, "'url'"),
    ({"url": "http://example.com", "events": ["a"]}, "'url'"),
    ({"url": "https://", "events": ["a"]}, "'url'"),
    ({"url": "https://[::1", "events": ["a"]}, "'url'"),
    ({"url": "https://example.com"}, "'events'"),
    ({"url": "https://example.com", "events": "a"}, "'events'"),
    ({"url": "https://example.com", "events": []}, "'events'"),
]


@pytest.mark.parametrize(("sent", "complaint"), BAD_WATCHES)
async def test_a_bad_watch_is_refused(
    client: Client, sent: dict[str, object], complaint: str
) -> None:
    """400, and the message names the field."""
    status, body = await answered(await client.post(WATCHES, json=sent))
    assert status == 400
    assert complaint in body["message"]


async def test_slow_waits_as_long_as_asked(client: Client) -> None:
    """The answer has the time waited."""
    assert await answered(await client.get("/slow?seconds=0.01")) == (200, {"waited_seconds": 0.01})


@pytest.mark.parametrize("seconds", ["-1", "61", "nan", "inf", "soon", ""])
async def test_slow_refuses_what_it_cannot_wait(client: Client, seconds: str) -> None:
    """The bounds are in the message."""
    status, body = await answered(await client.get(f"/slow?seconds={seconds}"))
    assert status == 400
    assert body["message"] == "'seconds' must be a number from 0 to 60"


async def test_a_stream_sends_its_events(client: Client) -> None:
    """Server-sent events, numbered from 1, and then the end."""
    answer = await client.get("/stream?events=3&interval=0")
    assert (answer.status, answer.content_type) == (200, "text/event-stream")
    assert answer.headers["Server"] == SERVER
    expected = "".join(f'id: {each}\ndata: {{"event": {each}}}\n\n' for each in (1, 2, 3))
    assert await answer.text() == expected


async def test_a_stream_sends_each_event_at_its_time(client: Client) -> None:
    """The first event arrives although the second is a minute later."""
    answer = await client.get("/stream?events=2&interval=60")
    assert await answer.content.readuntil(b"\n\n") == b'id: 1\ndata: {"event": 1}\n\n'
    answer.close()


@pytest.mark.parametrize("query", ["events=1001", "events=x", "interval=61", "interval=-1"])
async def test_a_stream_beyond_bounds_is_refused(client: Client, query: str) -> None:
    """The refusal comes before any event."""
    status, _ = await answered(await client.get(f"/stream?{query}"))
    assert status == 400


async def test_whoami_shows_the_identity_it_was_given(client: Client) -> None:
    """The gateway's headers are in the answer, others are not."""
    sent = {"X-Gateway-Key-Id": "7h3k", "x-gateway-plan": "free", "X-Other": "1"}
    status, body = await answered(await client.get("/whoami", headers=sent))
    identity = {name.lower(): value for name, value in body["identity"].items()}
    assert (status, identity) == (200, {"x-gateway-key-id": "7h3k", "x-gateway-plan": "free"})


async def test_anything_else_is_not_found(client: Client) -> None:
    """404 in JSON, with the requested path."""
    status, body = await answered(await client.get("/nowhere"))
    assert (status, body["error"]) == (404, "not_found")
    assert "/nowhere" in body["message"]


async def test_another_method_is_not_allowed(client: Client) -> None:
    """405, with the allowed methods."""
    answer = await client.post("/whoami")
    status, body = await answered(answer)
    assert (status, body["error"]) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "GET, HEAD"
