"""The demo's MCP server: both tools, in each revision, and what is wrong with a message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gateway.cli.demo_mcp import PATH, STATELESS, VERSIONS
from gateway.cli.demo_upstream import SERVER, build_demo_upstream

Client = TestClient[web.Request, web.Application]

STATEFUL = [version for version in VERSIONS if version != STATELESS]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with TestClient(TestServer(build_demo_upstream())) as client:
        yield client


async def posted(client: Client, message: object, **headers: str) -> tuple[int, Any]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await client.post(PATH, json=message, headers=given)
    assert answer.headers["Server"] == SERVER
    return answer.status, await answer.json() if answer.status != 202 else await answer.read()


def request(method: str, params: Mapping[str, object] | None = None) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}


def called(name: str, **arguments: object) -> dict[str, object]:
    return request("tools/call", {"name": name, "arguments": arguments})


async def begun(client: Client, version: str = STATEFUL[0]) -> tuple[dict[str, Any], str]:
    """The result of initialize, and the session."""
    answer = await client.post(PATH, json=request("initialize", {"protocolVersion": version}))
    assert answer.status == 200
    return (await answer.json())["result"], answer.headers["Mcp-Session-Id"]


@pytest.mark.parametrize("version", STATEFUL)
async def test_a_session(client: Client, version: str) -> None:
    """It has the version that was asked for, and ends with DELETE."""
    result, session = await begun(client, version)
    assert result["protocolVersion"] == version
    assert result["serverInfo"]["name"] == "gateway-demo"
    own = {"Mcp_Session_Id": session, "MCP_Protocol_Version": version}
    notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert await posted(client, notification, **own) == (202, b"")
    status, answer = await posted(client, request("tools/list"), **own)
    assert status == 200
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["search_code", "create_ticket"]
    deletion = {"Mcp-Session-Id": session}
    assert (await client.delete(PATH, headers=deletion)).status == 204
    assert (await client.delete(PATH, headers=deletion)).status == 404
    status, answer = await posted(client, request("ping"), **own)
    assert (status, answer["error"]["message"]) == (404, "Session not found")


@pytest.mark.parametrize("asked", [STATELESS, "2024-11-05", 5])
async def test_initialize_with_another_version(client: Client, asked: object) -> None:
    """The newest one that has sessions is offered."""
    status, answer = await posted(client, request("initialize", {"protocolVersion": asked}))
    assert (status, answer["result"]["protocolVersion"]) == (200, STATEFUL[0])


async def test_without_sessions(client: Client) -> None:
    """From 2026-07-28 on a server is asked what it has, and each result is complete."""
    own = {"MCP_Protocol_Version": STATELESS}
    _, answer = await posted(client, request("server/discover"), **own)
    assert answer["result"]["supportedVersions"] == list(VERSIONS)
    _, answer = await posted(client, called("search_code", query="DEF"), **own)
    assert answer["result"]["resultType"] == "complete"
    assert len(answer["result"]["structuredContent"]["matches"]) == 3
    assert (await client.get(PATH, headers={"MCP-Protocol-Version": STATELESS})).status == 405


async def test_tools(client: Client) -> None:
    """A search has lines with their places; a ticket has a number of its own."""
    _, answer = await posted(client, called("search_code", query="today"))
    matches = answer["result"]["structuredContent"]["matches"]
    assert [(each["file"], each["line"]) for each in matches] == [
        ("billing/limits.py", 1),
        ("billing/limits.py", 2),
    ]
    tickets = [await posted(client, called("create_ticket", title="x")) for _ in range(2)]
    ids = [answer["result"]["structuredContent"]["id"] for _, answer in tickets]
    assert len(set(ids)) == 2


@pytest.mark.parametrize("arguments", [{}, {"query": 5}, {"query": ""}, {"query": "x" * 201}])
async def test_wrong_arguments(client: Client, arguments: dict[str, object]) -> None:
    """The result says what is expected: models read results."""
    _, answer = await posted(client, called("search_code", **arguments))
    assert answer["result"]["isError"]
    (content,) = answer["result"]["content"]
    assert content["text"] == "'query' must be a text of 1 to 200 characters"


@pytest.mark.parametrize(
    ("message", "message_id", "code"),
    [
        (5, None, -32600),
        ([], None, -32600),
        ({"id": 1, "method": "ping"}, 1, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, 1, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, 1, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/drop"}, 1, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}, 1, -32602),
        (called("drop_ticket"), 7, -32602),
        (request("tools/call", {"name": "search_code", "arguments": 5}), 7, -32602),
    ],
)
async def test_wrong_messages(
    client: Client, message: object, message_id: object, code: int
) -> None:
    """An error of JSON-RPC, with the message's id if it has one."""
    status, answer = await posted(client, message)
    assert (status, answer["id"], answer["error"]["code"]) == (200, message_id, code)


async def test_an_unknown_version(client: Client) -> None:
    """The error names those that are known."""
    _, answer = await posted(client, request("ping"), MCP_Protocol_Version="1999-01-01")
    assert answer["error"]["code"] == -32022
    assert all(version in answer["error"]["message"] for version in VERSIONS)


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000])
async def test_no_json(client: Client, body: bytes) -> None:
    """As the specification says, with status 400."""
    answer = await client.post(PATH, data=body)
    assert (answer.status, (await answer.json())["error"]["code"]) == (400, -32700)


async def test_several_messages(client: Client) -> None:
    """The requests in an array are answered; one with notifications alone has no answer."""
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    response = {"jsonrpc": "2.0", "id": 1, "result": {}}
    _, answers = await posted(client, [request("ping"), notification, response])
    assert answers == [{"jsonrpc": "2.0", "id": 7, "result": {}}]
    assert await posted(client, [notification]) == (202, b"")


async def test_a_stream_is_open_until_its_client_leaves(client: Client) -> None:
    """It has no events. One of an unknown session is refused."""
    _, session = await begun(client)
    answer = await client.get(PATH, headers={"Mcp-Session-Id": session})
    assert (answer.status, answer.content_type) == (200, "text/event-stream")
    answer.close()
    answer = await client.get(PATH, headers={"Mcp-Session-Id": "other"})
    assert answer.status == 404


async def test_the_oldest_sessions_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that never end theirs use a bounded amount of memory."""
    monkeypatch.setattr("gateway.cli.demo_mcp._MOST_SESSIONS", 2)
    sessions = [(await begun(client))[1] for _ in range(3)]
    statuses = [
        (await posted(client, request("ping"), Mcp_Session_Id=session))[0] for session in sessions
    ]
    assert statuses == [404, 200, 200]


async def test_the_end_of_the_server_ends_streams() -> None:
    """Nobody waits for them."""
    async with TestClient(TestServer(build_demo_upstream())) as client:
        answer = await client.get(PATH)
        assert answer.status == 200
        await client.server.close()
        assert await answer.content.read() == b""
