"""Routes in front of MCP servers, over real sockets: what is forwarded, refused and answered."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.mcp.lists import MOST_BYTES
from gateway.domain.mcp.messages import HEADER_MISMATCH, INVALID, INVALID_PARAMS, UNREADABLE
from gateway.domain.policy import Timeouts
from gateway.errors import HEADER_REPEATED
from gateway.proxy import mcp_exchange
from gateway.proxy.whole_body import AT_ONCE_BYTES
from tests.kit.eventually import eventually
from tests.kit.keys import make_key
from tests.kit.upstream import Exchange, Script, build_response, reply
from tests.kit.wire import Header, Response, Wire, build_request
from tests.proxy.conftest import Bench, Start

ROUTES = """
routes:
  mcp:
    match: "* /mcp/**"
    upstream: api
    plan_limits: false
    mcp:
      max_body: 64KiB
      keepalive: 100ms
      tools:
        search: {permission: "scm:read", cost: 5, rate: 3/minute}
        erase: {permission: "scm:delete"}
        hidden: deny
        "*": allow
    limits:
      - {name: mcp, rate: 20/minute}
      - {name: mcp-connections, concurrency: 2, of: connections}
      - {name: mcp-in-flight, concurrency: 3}
      - {name: mcp-control, rate: 30/minute, of: messages}
  strict:
    match: "* /strict"
    upstream: api
    scopes: [tools:admin]
    mcp:
      limited_calls: result
      list: as-is
      tools: {search: allow, "*": deny}
    limits: [{name: strict, rate: 2/minute}]
  api: {match: "* /**", upstream: api}
"""
PLANS = "plans:\n  enterprise: {rate: 6000/minute, burst: 10000}\n"
JSON = ("Content-Type", "application/json")
STREAM = ("Content-Type", "text/event-stream")
MANY = 65_536
OLD = ("MCP-Protocol-Version", "2025-11-25")


@dataclass
class Client:
    """An MCP client on one connection."""

    wire: Wire
    auth: Sequence[Header]
    path: str = "/mcp/tools"

    async def send(
        self, message: object, *headers: Header, method: str = "POST", media: Header = JSON
    ) -> Response:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        fields = [*self.auth, media, *headers]
        return await self.wire.request(method, self.path, fields, body)

    async def call(self, tool: str = "other", *headers: Header, at: int = 7) -> Response:
        return await self.send(request("tools/call", at, name=tool), *headers)


def request(method: str, at: int | str = 7, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": at, "method": method, "params": params}


def notification(method: str = "notifications/initialized") -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": method}


class Started:
    """A bench with MCP routes, and the clients that connect to it."""

    def __init__(self, bench: Bench, stack: AsyncExitStack) -> None:
        self.bench, self.upstream, self.gateway = bench, bench.upstream, bench.gateway
        self._stack = stack

    async def client(self, **fields: Any) -> Client:
        """A client with a key of its own."""
        key = await self.bench.mint(**{"permissions": {"scm": ("read",)}, **fields})
        return await self.another([("Authorization", f"Bearer {key}")])

    async def another(self, auth: Sequence[Header]) -> Client:
        """A client on another connection."""
        wire = await self._stack.enter_async_context(await self.bench.connect())
        return Client(wire, auth)


@pytest.fixture
async def mcp(start: Start) -> AsyncIterator[Started]:
    async with AsyncExitStack() as stack:
        yield Started(await start(files={"routes": ROUTES, "plans": PLANS}), stack)


def error(response: Response) -> dict[str, Any]:
    body = json.loads(response.body)
    assert body["jsonrpc"] == "2.0"
    assert response["Content-Type"] == "application/json"
    found: dict[str, Any] = {"id": body["id"], **body["error"]}
    return found


async def test_the_judged_bytes_are_forwarded(mcp: Started) -> None:
    """The body that was read, as it was; nothing else of it is changed."""
    client = await mcp.client()
    body = (
        b' {"jsonrpc": "2.0", "id" : 1.0e0'.replace(b"1.0e0", b"12") + b', "method":"tools/list"}\n'
    )
    response = await client.send(body, ("Mcp-Method", "tools/list"), ("Origin", "http://a.example"))
    assert response.status == 200
    received = mcp.upstream.requests[0]
    assert received.body == body
    assert received.maybe("Mcp-Method") == "tools/list"
    assert received.maybe("Origin") == "http://a.example"
    assert received.maybe("Accept-Encoding") == "identity"
    assert received.maybe("Host") == mcp.upstream.url.removeprefix("http://")


@pytest.mark.parametrize("cut", [0, 1, 40, 300])
async def test_however_a_body_arrives(mcp: Started, cut: int) -> None:
    """With its head, after it, or with the next request: each is decided by its own body."""
    client = await mcp.client()
    bodies = [
        json.dumps(request("tools/call", at, name="other", text="x" * size)).encode()
        for at, size in enumerate((0, 10, AT_ONCE_BYTES, 10))
    ]
    bodies.insert(2, b"{")
    fields = [*client.auth, JSON]
    sent = b"".join(build_request("POST", client.path, fields, body) for body in bodies)
    await client.wire.send(sent[: len(sent) - cut])
    if cut:
        await mcp.upstream.received(1)
        await client.wire.send(sent[len(sent) - cut :])
    answers = [await client.wire.read_response("POST") for _ in bodies]
    assert [answer.status for answer in answers] == [200, 200, 400, 200, 200]
    assert [each.body for each in mcp.upstream.requests] == bodies[:2] + bodies[3:]


@pytest.mark.parametrize(
    ("body", "status", "code", "message_id"),
    [
        (b"{", 400, UNREADABLE, None),
        (b"[]", 400, INVALID, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","Method":"x"}', 400, INVALID, None),
        (request("tools/call", "a"), 400, INVALID_PARAMS, "a"),
        ([request("ping")] * 33, 400, INVALID, None),
        (request("tools/call", 8, name="erase"), 200, 403, 8),
        (request("tools/call", 8, name="hidden"), 200, INVALID_PARAMS, 8),
        (request("tools/call", 8, name="x" * 65_536), 413, 413, None),
    ],
)
async def test_what_is_refused_does_not_reach_the_server(
    mcp: Started, body: object, status: int, code: int, message_id: object
) -> None:
    """It is an error of JSON-RPC with the id, if that was read; the connection stays usable."""
    client = await mcp.client()
    response = await client.send(body)
    found = error(response)
    assert (response.status, found["code"], found["id"]) == (status, code, message_id)
    assert response.maybe("X-RateLimit-Remaining") is not None
    assert mcp.upstream.requests == []
    if status != 413:
        assert (await client.call()).status == 200


async def test_a_refused_tool_names_the_permission(mcp: Started) -> None:
    """People and models read what is missing; a tool that is denied is as one that is not there."""
    client = await mcp.client()
    assert "scm:delete" in error(await client.call("erase"))["message"]
    assert "Unknown tool: hidden." in error(await client.call("hidden"))["message"]


async def test_a_refused_array(mcp: Started) -> None:
    """The call of the tool says why; the others, that they were refused because of it."""
    client = await mcp.client()
    messages = [request("tools/list", 1), request("tools/call", "b", name="hidden")]
    response = await client.send(messages)
    other, refused = json.loads(response.body)
    assert (response.status, other["id"], refused["id"]) == (200, 1, "b")
    assert "Unknown tool: hidden." in refused["error"]["message"]
    assert "hidden" not in other["error"]["message"]
    assert 'because of the message with the id "b"' in other["error"]["message"]
    assert mcp.upstream.requests == []


@pytest.mark.parametrize(
    ("headers", "media"),
    [
        ([], ("Content-Type", "text/plain")),
        ([], ("Content-Type", "application/json;charset=utf-16")),
        ([], ("Content-Type", "APPLICATION/X-WWW-FORM-URLENCODED")),
        ([("Content-Encoding", "gzip")], JSON),
    ],
)
async def test_other_media_types(mcp: Started, headers: list[Header], media: Header) -> None:
    """A server could read another message in them."""
    client = await mcp.client()
    response = await client.send(request("ping"), *headers, media=media)
    assert (response.status, error(response)["code"]) == (415, 415)
    assert mcp.upstream.requests == []
    odd = ("Content-Type", "APPLICATION/JSON; Charset=UTF-8")
    assert (await client.send(request("ping"), media=odd)).status == 200


@pytest.mark.parametrize(
    "header",
    [
        ("Mcp-Method", "tools/list"),
        ("Mcp-Name", "search"),
        ("Mcp-Name", "=?base64?c2VhcmNo?="),
        ("Mcp-Name", "=?base64?%%?="),
        ("MCP-Protocol-Version", "2025-11-25"),
    ],
)
async def test_headers_that_differ_from_the_body(mcp: Started, header: Header) -> None:
    """The body decides; a server that reads the header would run another tool."""
    client = await mcp.client()
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    body = request("tools/call", name="other", _meta=meta)
    response = await client.send(body, header)
    assert (response.status, error(response)["code"]) == (400, HEADER_MISMATCH)
    assert mcp.upstream.requests == []
    agreed = [("Mcp-Method", "tools/call"), ("Mcp-Name", "=?base64?b3RoZXI=?=")]
    assert (await client.send(body, *agreed, ("MCP-Protocol-Version", "2026-07-28"))).status == 200


@pytest.mark.parametrize(
    "name", ["Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Content-Type"]
)
async def test_a_header_that_comes_twice(mcp: Started, name: str) -> None:
    """It is refused as a message on this route, with the limits of the key; else as elsewhere."""
    client = await mcp.client()
    twice = [(name, "application/json"), (name.lower(), "application/json")]
    body = json.dumps(request("ping")).encode()
    response = await client.wire.request("POST", client.path, [*client.auth, *twice], body)
    found = error(response)
    assert (response.status, found["id"], found["code"]) == (400, None, 400)
    assert found["data"]["code"] == HEADER_REPEATED.code.lower()
    assert response["X-RateLimit-Limit"] == "20"
    await client.wire.read_end()
    other = await mcp.another(client.auth)
    response = await other.wire.request("POST", "/other", [*other.auth, *twice], body)
    assert response.json()["code"] == HEADER_REPEATED.code
    assert mcp.upstream.requests == []


async def test_what_counts(mcp: Started) -> None:
    """Tools at their cost; what must not be refused counts in the limit of messages alone."""
    client = await mcp.client()
    left = []
    for message in (
        request("tools/call", name="search"),
        request("tools/call", name="other"),
        request("initialize"),
        request("ping"),
        notification(),
        [request("tools/call", name="other"), request("ping"), request("tools/list")],
    ):
        response = await client.send(message)
        assert response.status == 200
        left.append(int(response["X-RateLimit-Remaining"]))
    # The first call of search leaves 2 of its own 3.
    assert left == [2, 14, 14, 14, 14, 12]


async def test_the_limit_of_messages(mcp: Started) -> None:
    """Free messages are bounded as well; the refusal has the id and the seconds."""
    client = await mcp.client()
    for _ in range(30):
        assert (await client.send(request("ping"))).status == 200
    response = await client.send(request("ping", "p"))
    found = error(response)
    assert (response.status, found["code"], found["id"]) == (429, 429, "p")
    retry = int(response["Retry-After"])
    assert found["message"] == (
        f"Rate limit exceeded: 30 messages per minute (mcp-control). Try again in {retry} seconds."
    )
    assert found["data"]["code"] == "rate_limit_exceeded"
    assert (found["data"]["limit"], found["data"]["retry_after"]) == ("mcp-control", retry)


async def test_the_end_of_a_session(mcp: Started) -> None:
    """A client over its rate can end it. A flood of ends is bounded by the limit of messages."""
    client = await mcp.client()
    mcp.upstream.script = answering(b"{}", JSON, ("Mcp-Session-Id", "s1"))
    sealed = (await client.send(request("initialize")))["Mcp-Session-Id"]
    mcp.upstream.script = answering(b"{}", JSON)
    calls = [(await client.call()).status for _ in range(21)]
    assert calls == [200] * 20 + [429]

    async def end(session: str) -> Response:
        headers = [*client.auth, OLD, ("Mcp-Session-Id", session)]
        return await client.wire.request("DELETE", client.path, headers)

    reached = len(mcp.upstream.requests)
    left = 30 - 1 - 20  # what is refused counts nowhere
    assert [(await end(sealed)).status for _ in range(left)] == [200] * left
    refused = await end(sealed)
    assert (refused.status, error(refused)["data"]["limit"]) == (429, "mcp-control")
    assert (await end("forged")).status == 404
    client.auth = []
    assert (await end(sealed)).status == 401
    assert len(mcp.upstream.requests) == reached + left


async def test_the_rate_of_a_tool(mcp: Started) -> None:
    """A tool's rate counts its calls; other tools go on."""
    client = await mcp.client()
    for _ in range(3):
        assert (await client.call("search")).status == 200
    response = await client.call("search")
    assert (response.status, error(response)["data"]["limit"]) == (429, "mcp/search")
    assert (await client.call("other")).status == 200


async def test_a_refused_call_as_a_result(mcp: Started) -> None:
    """For clients that lose their transport on a 429; other requests get an error with 200."""
    client = await mcp.client(scopes=("tools:admin",))
    client.path = "/strict"
    for _ in range(2):
        assert (await client.call("search")).status == 200
    response = await client.call("search")
    body = json.loads(response.body)
    assert response.status == 200
    assert (body["id"], body["result"]["isError"]) == (7, True)
    assert "2 requests per minute (strict)" in body["result"]["content"][0]["text"]
    assert response.maybe("Retry-After") is not None
    listed = await client.send(request("tools/list"))
    assert (listed.status, error(listed)["code"]) == (200, 429)
    both = await client.send([request("tools/call", 1, name="search"), request("tools/list", 2)])
    assert [part["id"] for part in json.loads(both.body)] == [1, 2]


async def test_without_access(mcp: Started) -> None:
    """The body is not read: the id is null. A challenge would make clients ask for a sign-in."""
    client = await mcp.client()
    client.path = "/strict"
    response = await client.call("search")
    assert (response.status, error(response)["id"], error(response)["code"]) == (403, None, 403)
    assert response.maybe("WWW-Authenticate") is None
    client.auth = []
    response = await client.call("search")
    assert (response.status, error(response)["code"]) == (401, 401)
    assert response["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS"])
async def test_other_methods(mcp: Started, method: str) -> None:
    """Streamable HTTP has three."""
    client = await mcp.client()
    response = await client.send(request("ping"), method=method)
    assert (response.status, response["Allow"]) == (405, "POST, GET, DELETE")
    assert mcp.upstream.requests == []


def answering(body: bytes, *headers: Header) -> Script:
    return reply(200, body, headers)


async def test_sessions_are_sealed(mcp: Started) -> None:
    """A client gets another id than the server gave, and the server gets its own again."""
    client = await mcp.client()
    mcp.upstream.script = answering(b"{}", JSON, ("Mcp-Session-Id", "s.1"))
    sealed = (await client.send(request("initialize")))["Mcp-Session-Id"]
    assert sealed.startswith("s.1.")
    mcp.upstream.script = answering(b"{}", JSON)
    for method in ("POST", "GET", "DELETE"):
        await client.wire.send(
            build_request(
                method,
                client.path,
                [*client.auth, JSON, OLD, ("mcp-session-id", sealed)],
                json.dumps(request("ping")).encode() if method == "POST" else None,
            )
        )
        assert (await client.wire.read_response(method)).status == 200
        assert mcp.upstream.requests[-1].maybe("Mcp-Session-Id") == "s.1"


async def test_sessions_of_others(mcp: Started) -> None:
    """Another key's id, a changed one, and the server's own reach no server."""
    client, other = await mcp.client(), await mcp.client()
    mcp.upstream.script = answering(b"{}", JSON, ("Mcp-Session-Id", "s1"))
    sealed = (await client.send(request("initialize")))["Mcp-Session-Id"]
    for sender, session in (
        (other, sealed),
        (client, sealed[:-1] + ("A" if sealed[-1] != "A" else "B")),
        (client, "s1"),
        (client, "x" * 2_000),
    ):
        response = await sender.send(request("ping", 3), OLD, ("Mcp-Session-Id", session))
        assert (response.status, error(response)["id"]) == (404, 3)
    assert len(mcp.upstream.requests) == 1
    # From 2026-07-28 on there are no sessions: the header means nothing.
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    response = await client.send(request("ping", _meta=meta), ("Mcp-Session-Id", "s1"))
    assert response.status == 200
    assert mcp.upstream.requests[-1].maybe("Mcp-Session-Id") is None


TOOLS = b'{"jsonrpc":"2.0","id":7,"result":{"tools":[%b]}}'
LISTED = TOOLS % b'{"name":"search"},{"name":"erase"},{"name":"hidden"},{"name":"other"}'
FILTERED = TOOLS % b'{"name":"search"},{"name":"other"}'


def chunked(*parts: bytes, media: Header) -> Script:
    """A script that sends these chunks, each when the one before was read."""

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        name, value = media
        await exchange.write(
            f"HTTP/1.1 200 OK\r\n{name}: {value}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for part in parts:
            await exchange.write(b"%x\r\n%b\r\n" % (len(part), part))
        await exchange.write(b"0\r\n\r\n")

    return script


@pytest.mark.parametrize(
    "script",
    [
        answering(LISTED, JSON),
        chunked(LISTED, media=JSON),
        chunked(*(bytes([byte]) for byte in LISTED), media=JSON),
        answering(b"event: message\ndata: " + LISTED + b"\n\n", STREAM),
        chunked(b"event: message\nda", b"ta: " + LISTED + b"\n", b"\n", media=STREAM),
    ],
)
async def test_lists_are_filtered(mcp: Started, script: Script) -> None:
    """In JSON and in event streams, however they arrive."""
    client = await mcp.client()
    mcp.upstream.script = script
    response = await client.send(request("tools/list"))
    body = response.body
    if response["Content-Type"] == "text/event-stream":
        assert response["X-Accel-Buffering"] == "no"
        event, data, *_ = body.split(b"\n")
        assert event == b"event: message"
        body = data.removeprefix(b"data: ")
    assert body == FILTERED
    mcp.upstream.script = answering(LISTED, JSON)
    assert (await client.call()).body == LISTED


@pytest.mark.parametrize("media", [JSON, STREAM])
@pytest.mark.parametrize("whole", [True, False])
async def test_fields_of_filtered_lists(mcp: Started, media: Header, whole: bool) -> None:
    """What describes the server's bytes is no part of a list that was filtered."""
    client = await mcp.client()
    body = LISTED if media == JSON else b"data: " + LISTED + b"\n\n"
    described = [("ETag", '"a"'), ("Content-Digest", "x"), ("Cache-Control", "public")]

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        lines = "".join(f"{name}: {value}\r\n" for name, value in [media, *described])
        length = len(body) if whole else None
        framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        await exchange.write(f"HTTP/1.1 200 OK\r\n{lines}{framing}\r\n\r\n".encode())
        await exchange.write(body if whole else b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    mcp.upstream.script = script
    listed = await client.send(request("tools/list"))
    assert b"erase" not in listed.body
    assert [listed.maybe(name) for name, _ in described] == [None, None, "private"]
    called = await client.call()
    assert [(name, called.maybe(name)) for name, _ in described] == described


async def test_interim_responses_have_no_session(mcp: Started) -> None:
    """The server's own id is nobody's but its own, wherever it says it."""
    client = await mcp.client()

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\nmcp-session-id: s1\r\n\r\n")
        await exchange.write(build_response(200, b"{}", [JSON, ("Mcp-Session-Id", "s1")]))

    mcp.upstream.script = script
    response = await client.send(request("initialize"))
    assert [dict(each.headers) for each in response.interim] == [{"Link": "x"}]
    assert response["Mcp-Session-Id"].startswith("s1.")


async def test_sessions_among_white_space(mcp: Started) -> None:
    """To read a session id takes no longer for the white space in it, of which there may be 60 KB.

    An id with white space is none: the client gets no session.
    """
    client = await mcp.client()
    odd = b"mcp-session-id: a%bb\r\n" % (b" " * 60_000)

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.write(b"HTTP/1.1 103 Early Hints\r\n%b\r\n" % odd * 16)
        await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n%b\r\n{}" % odd)

    mcp.upstream.script = script
    begun_s = time.thread_time()
    response = await client.send(request("initialize"))
    assert time.thread_time() - begun_s < 1
    assert [dict(each.headers) for each in response.interim] == [{}] * 16
    assert (response.status, response.maybe("Mcp-Session-Id")) == (200, None)
    mcp.upstream.script = answering(b"{}", JSON, ("Mcp-Session-Id", " \ts.1 \t"))
    assert (await client.send(request("initialize")))["Mcp-Session-Id"].startswith("s.1.")


async def test_scripts_of_other_origins(start: Start) -> None:
    """With `cors`, browsers may send and read the headers of MCP, beside what is configured."""
    origin = "https://app.example.com"
    cors = f"    cors: {{origins: ['{origin}'], headers: [Authorization, X-Mine]}}\n"
    scopes = "    scopes: [tools:admin]\n"
    bench = await start(files={"routes": ROUTES.replace(scopes, scopes + cors), "plans": PLANS})
    async with await bench.connect() as wire:
        asking = [("Origin", origin), ("Access-Control-Request-Method", "POST")]
        preflight = await wire.request("OPTIONS", "/strict", asking)
        assert preflight.status == 204
        assert preflight["Access-Control-Allow-Headers"].split(", ") == [
            *("Authorization", "X-Mine", "Last-Event-ID", "Mcp-Method", "Mcp-Name"),
            *("MCP-Protocol-Version", "Mcp-Session-Id"),
        ]
        refused = await wire.request("POST", "/strict", [*bench.auth, ("Origin", origin)], b"")
        exposed = refused["Access-Control-Expose-Headers"].split(", ")
        assert {"Mcp-Session-Id", "Retry-After"} <= set(exposed)


async def test_lists_in_continued_streams_are_filtered(mcp: Started) -> None:
    """A client may lose the stream with its list and go on in another; other events stay."""
    client = await mcp.client()
    other = b'id: 5\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n'
    mcp.upstream.script = answering(other + b"id: 6\ndata: " + LISTED + b"\n\n", STREAM)
    resumed = await client.send(b"", ("Last-Event-ID", "4"), method="GET")
    assert resumed.body == other + b"id: 6\ndata: " + FILTERED + b"\n\n"


@pytest.mark.parametrize("media", [JSON, STREAM])
async def test_a_long_list_leaves_its_connection_usable(
    mcp: Started, monkeypatch: pytest.MonkeyPatch, media: Header
) -> None:
    """The client reads slowly what remains of a list when its server has sent all.

    The list is longer than the buffers of the sockets.
    """
    monkeypatch.setattr(mcp_exchange, "MOST_BYTES", 4 * 1024 * 1024)
    client = await mcp.client()
    other = b'{"name":"other","description":"%b"},' % (b"x" * 1_000)
    listed = TOOLS % (other * 3_000 + b'{"name":"erase"}')
    if media == STREAM:
        listed = b"data: " + listed + b"\n\n"
    mcp.upstream.script = answering(listed, media)
    assert b"erase" not in (await client.send(request("tools/list"))).body
    mcp.upstream.script = answering(b"{}", JSON)
    assert (await client.call()).body == b"{}"
    assert {each.connection for each in mcp.upstream.requests} == {0}


async def test_no_websockets(mcp: Started) -> None:
    """Nothing in a tunnel could be read: a handshake is an ordinary GET."""
    client = await mcp.client()
    mcp.upstream.script = answering(b"{}", JSON)
    handshake = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]
    response = await client.wire.request("GET", client.path, [*client.auth, *handshake])
    assert response.status == 200
    assert mcp.upstream.requests[-1].maybe("Upgrade") is None


def listed(size: int) -> bytes:
    """An answer of this size with two tools, one of which the key may not call."""
    tools = b'{"name":"other","description":"%b"},{"name":"erase"}'
    return TOOLS % (tools % (b"x" * (size - len(TOOLS % (tools % b"")))))


def in_parts(whole: bytes) -> Script:
    """Answers with it, in chunks."""
    return chunked(*(whole[at : at + MANY] for at in range(0, len(whole), MANY)), media=JSON)


async def test_lists_that_cannot_be_filtered(mcp: Started) -> None:
    """They are passed on as they are, and counted."""
    client = await mcp.client()
    long = listed(MOST_BYTES + 1)
    for script, expected in (
        (answering(b"no json", JSON), b"no json"),
        (answering(LISTED, ("Content-Type", "text/plain")), LISTED),
        (answering(b"zipped", JSON, ("Content-Encoding", "gzip")), b"zipped"),
        (in_parts(long), long),
    ):
        mcp.upstream.script = script
        assert (await client.send(request("tools/list"))).body == expected
    assert mcp.gateway.metrics.mcp._unfiltered == 4


async def test_the_largest_list_is_filtered(mcp: Started) -> None:
    """One of the largest size loses the tool that the key may not call."""
    client = await mcp.client()
    mcp.upstream.script = in_parts(listed(MOST_BYTES))
    response = await client.send(request("tools/list"))
    assert [tool["name"] for tool in response.json()["result"]["tools"]] == ["other"]
    assert mcp.gateway.metrics.mcp._unfiltered == 0


async def test_streams_are_kept_alive(mcp: Started) -> None:
    """A silent stream gets comments between events, and never within one."""
    client = await mcp.client()
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            b"data: 1\n\n"
        )
        await go_on.wait()
        await exchange.write(b"data: 2\n")
        await exchange.ended()

    mcp.upstream.script = script
    await client.wire.send(build_request("GET", client.path, [*client.auth, OLD]))
    head = await client.wire.read_head()
    assert head["X-Accel-Buffering"] == "no"
    seen = b""
    while seen.count(b": keep-alive") < 2:
        seen += await client.wire.read_some()
    go_on.set()
    while b"data: 2" not in seen:
        seen += await client.wire.read_some()
    comments = seen.count(b": keep-alive")
    for _ in range(30):
        await asyncio.sleep(0)
    assert seen.count(b": keep-alive") == comments


@pytest.mark.usefixtures("no_ticks")
async def test_comments_are_no_events_of_the_server(mcp: Started) -> None:
    """A stream whose server is silent for too long ends, whatever the client gets meanwhile."""
    client = await mcp.client()

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            b"data: 1\n\n"
        )
        await exchange.ended()

    mcp.upstream.script = script
    await client.wire.send(build_request("GET", client.path, [*client.auth, OLD]))
    await client.wire.read_head()
    seen = b""
    while b"data: 1" not in seen:
        seen += await client.wire.read_some()
    (conn,) = mcp.gateway._context.connections
    now, limit_s = asyncio.get_running_loop().time(), Timeouts().stream_s
    for passed_s in (0.0, limit_s / 2, limit_s - 1):
        conn.check_deadline(now + passed_s)
        assert conn.exchange is not None
    while seen.count(b": keep-alive") < 2:
        seen += await client.wire.read_some()
    conn.check_deadline(now + limit_s)
    assert conn.exchange is None


@pytest.mark.parametrize("pieces", [1, 3, 1_000])
@pytest.mark.parametrize("length", [b"", b"Content-Length: 200\r\n"])
async def test_an_endpoint_past_the_route(mcp: Started, pieces: int, length: bytes) -> None:
    """A stream of the transport of 2024-11-05 that names a path of another route is closed."""
    event = b"event: endpoint\ndata: /messages/?session_id=1\n\n"

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%b\r\n: hello\n\n" % length
        )
        for at in range(0, len(event), pieces):
            await exchange.write(event[at : at + pieces])
        await exchange.ended()

    client = await mcp.client()
    mcp.upstream.script = script
    await client.wire.send(build_request("GET", client.path, [*client.auth, OLD]))
    assert (await client.wire.read_head()).status == 200
    rest = b""
    while more := await client.wire.read_some():
        rest += more
    assert b": hello" in rest
    assert b"endpoint" not in rest
    assert b"session_id" not in rest


async def test_an_endpoint_of_the_route(mcp: Started) -> None:
    """A stream whose endpoint is a path of its route is passed on: its messages are read there."""
    event = b"event: endpoint\ndata: messages?session_id=1\n\n"
    client = await mcp.client()
    mcp.upstream.script = reply(200, event, [STREAM])
    response = await client.wire.request("GET", client.path, [*client.auth, OLD])
    assert response.body == event


async def test_connections_are_counted(mcp: Started) -> None:
    """A session counts once, whatever it has open; one that has nothing open does not."""
    client = await mcp.client()
    release = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        body = await exchange.read_body()
        if b"initialize" in body:
            number = len(mcp.upstream.requests)
            await exchange.write(
                build_response(200, b"{}", [JSON, ("Mcp-Session-Id", f"s{number}")])
            )
            return
        await release.wait()
        await exchange.write(build_response(200, b"{}", [JSON]))

    mcp.upstream.script = script
    sessions = [(await client.send(request("initialize")))["Mcp-Session-Id"] for _ in range(3)]
    opened: list[asyncio.Task[Response]] = []

    async def open_call(session: str) -> asyncio.Task[Response]:
        other = await mcp.another(client.auth)
        before = len(mcp.upstream.requests)
        task = asyncio.create_task(other.call("other", OLD, ("Mcp-Session-Id", session)))
        await eventually(
            lambda: task.done() or len(mcp.upstream.requests) > before, "it is decided"
        )
        opened.append(task)
        return task

    for session in (sessions[0], sessions[0], sessions[1]):
        assert not (await open_call(session)).done()
    # A third session, and a fourth request: the limits of connections and of requests.
    refused = await (await open_call(sessions[2]))
    assert (refused.status, error(refused)["data"]["limit"]) == (429, "mcp-connections")
    refused = await (await open_call(sessions[0]))
    assert (refused.status, error(refused)["data"]["limit"]) == (429, "mcp-in-flight")
    # What must not be refused is not.
    assert (await client.send(request("initialize"))).status == 200
    release.set()
    assert [(await task).status for task in opened] == [200, 200, 200, 429, 429]
    assert (await client.call("other", OLD, ("Mcp-Session-Id", sessions[2]))).status == 200
    assert mcp.gateway.metrics.mcp._connections[("mcp",)] == 0


async def test_a_server_that_left_ends_its_sessions(mcp: Started) -> None:
    """Its sessions are unknown, so that clients initialize new ones."""
    client = await mcp.client()
    mcp.upstream.script = answering(b"{}", JSON, ("Mcp-Session-Id", "s1"))
    sealed = (await client.send(request("initialize")))["Mcp-Session-Id"]
    pools = mcp.gateway._context.pools
    servers = pools._upstreams["api"]
    kept, servers.pools = servers.pools, ()
    response = await client.send(request("ping"), OLD, ("Mcp-Session-Id", sealed))
    assert (response.status, error(response)["code"]) == (404, 404)
    servers.pools = kept
    response = await client.send(request("ping"), OLD, ("Mcp-Session-Id", sealed))
    assert response.status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/.well-known/oauth-protected-resource/mcp/tools"),
        ("GET", "/mcp/.well-known/openid-configuration"),
        ("POST", "/register"),
    ],
)
async def test_clients_that_look_for_oauth(mcp: Started, method: str, path: str) -> None:
    """They get a 404 in JSON, which is no failed authentication; with a key, what is there."""
    client = await mcp.client()
    left = set()
    for _ in range(3):
        response = await client.wire.request(method, path, [], b"{}" if method == "POST" else None)
        assert (response.status, response["Content-Type"]) == (404, "application/json")
        assert response.maybe("WWW-Authenticate") is None
        assert "has no OAuth. Send a valid API key" in response.body.decode()
        left.add(response["X-RateLimit-Remaining"])
    assert len(left) == 1
    assert mcp.gateway.metrics._auth_failures == {}
    if not path.startswith("/mcp"):
        body = b"{}" if method == "POST" else None
        assert (await client.wire.request(method, path, client.auth, body)).status == 200


async def calls(mcp: Started) -> dict[tuple[str, str], int]:
    """The calls of tools on all routes, by tool and outcome, as far as they are in the store."""
    usage, found = mcp.gateway._store.usage, dict[tuple[str, str], int]()
    for route in await usage.mcp_routes():
        for bucket in await usage.read(f"mcp:{route}", "day", 0, 2**40):
            for counted, number in bucket.counts.items():
                found[counted] = found.get(counted, 0) + number
    return found


async def test_calls_of_tools_are_counted(mcp: Started) -> None:
    """By tool and by what became of them; names that clients made up are one."""
    client = await mcp.client()
    for tool in ("search", "search", "search", "search", "erase", "hidden", "made-up", "<b>"):
        await client.call(tool)
    await client.send([request("tools/call", 1, name="other"), request("ping", 2)])
    mcp.upstream.script = reply(500, b"")
    await client.call("other")
    expected = {
        ("search", "admitted:2xx"): 3,
        ("search", "limited:mcp/search"): 1,
        ("erase", "refused:tool_not_permitted"): 1,
        ("hidden", "refused:tool_unknown"): 1,
        ("other", "admitted:2xx"): 3,
        ("other", "failed:5xx"): 1,
    }

    async def are_written() -> bool:
        return await calls(mcp) == expected

    await eventually(are_written, "all calls are in the store")


async def test_a_call_that_its_client_leaves_is_counted(mcp: Started) -> None:
    """With the reason, as its request is."""
    client = await mcp.client()
    reached = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        reached.set()
        await exchange.ended()
        raise ConnectionError

    mcp.upstream.script = script
    body = json.dumps(request("tools/call", name="search")).encode()
    await client.wire.send(build_request("POST", client.path, [*client.auth, JSON], body))
    await reached.wait()
    await client.wire.close()

    async def is_written() -> bool:
        return await calls(mcp) == {("search", "failed:client_gone"): 1}

    await eventually(is_written, "the call is in the store")


@pytest.mark.parametrize(
    ("header", "meta", "version"),
    [
        (OLD, {}, "2025-11-25"),
        (None, {}, None),
        (None, {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, "2026-07-28"),
    ],
)
async def test_the_version_in_the_access_log(
    start: Start, tmp_path: Path, header: Header | None, meta: dict[str, str], version: str | None
) -> None:
    """Messages name it from 2026-07-28 on, headers before; many clients omit it at first."""
    log = tmp_path / "access.log"
    files = {"routes": ROUTES, "plans": PLANS, "log": "access_log: {fields: [mcp_version]}\n"}
    bench = await start(files=files, access_log=str(log))
    async with await bench.connect() as wire:
        client = Client(wire, bench.auth)
        headers = [] if header is None else [header]
        assert (await client.send(request("ping", _meta=meta), *headers)).status == 200
    await eventually(lambda: bool(log.read_text()), "a line in the access log")
    assert json.loads(log.read_text()) == {"mcp_version": version}


async def test_connections_of_a_key_are_known(mcp: Started) -> None:
    """While its streams are open, whatever their number."""
    client = await mcp.client()
    assert client.auth
    key_id = client.auth[0][1].split("_")[2]

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"
        )
        await exchange.ended()
        raise ConnectionError

    mcp.upstream.script = script
    others = [client, await mcp.another(client.auth)]
    for number, each in enumerate(others, 1):
        await each.wire.send(build_request("GET", each.path, [*each.auth, OLD]))
        assert (await each.wire.read_head()).status == 200
        assert mcp.gateway.metrics.mcp.connected == {key_id: number}
    for each in others:
        await each.wire.close()
    await eventually(lambda: not mcp.gateway.metrics.mcp.connected, "all are closed")


async def test_a_client_that_registers_with_a_wrong_key(start: Start) -> None:
    """mcp-remote shows this answer in place of the 401: it says that a valid key is needed."""
    routes = 'routes:\n  mcp: {match: "* /mcp/**", upstream: api, mcp: {tools: {"*": allow}}}\n'
    bench = await start(files={"routes": routes, "plans": PLANS})
    key, _ = make_key(secrets.randbelow)
    async with await bench.connect() as wire:
        auth = [("Authorization", f"Bearer {key}")]
        response = await wire.request("POST", "/register", auth, b"{}")
        assert (response.status, json.loads(response.body)["code"]) == (404, "NOT_FOUND")
        assert "has no OAuth. Send a valid API key" in response.body.decode()
        response = await wire.request("POST", "/registers", auth, b"{}")
        assert "has no OAuth" not in response.body.decode()


CROWDED = """
routes:
  mcp: {match: "* /mcp", upstream: api, mcp: {}}
  counted: {match: "* /counted", upstream: api, cost: {json: ., max: 50, bytes: 256KiB}}
"""


@pytest.mark.parametrize("path", ["/mcp", "/counted"])
async def test_a_body_for_which_there_is_no_room(start: Start, path: str) -> None:
    """The largest gets 503 and is closed, although it was there before; the others are served."""
    bench = await start(
        files={"routes": CROWDED, "plans": PLANS}, bounds={"memory_bytes": 300 * 1024}
    )
    bench.upstream.script = answering(b"{}", JSON)
    body = json.dumps(request("ping") if path == "/mcp" else [1, 2]).encode().ljust(200_000)
    sent = build_request("POST", path, [*bench.auth, JSON], body)
    async with AsyncExitStack() as stack:
        large, small = [await stack.enter_async_context(await bench.connect()) for _ in range(2)]
        for wire, size in ((large, 180_000), (small, 150_000)):
            await wire.send(sent[:size])
        refused = await large.read_response("POST")
        assert (refused.status, refused["Retry-After"], refused.closes) == (503, "1", True)
        if path == "/mcp":
            found = error(refused)
            assert (found["id"], found["code"]) == (None, 503)
            assert found["data"]["retry_after"] == 1
        await large.send(sent[180_000:])  # it is still read, so that no reset loses the answer
        await large.read_end()
        await small.send(sent[150_000:])
        assert (await small.read_response("POST")).status == 200
    assert [each.body for each in bench.upstream.requests] == [body]
    assert bench.gateway.metrics._shed == 1
