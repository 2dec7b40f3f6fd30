"""What operators see of MCP servers: open connections of keys, and calls of tools."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.domain import key_format
from tests.end_to_end.conftest import Serve, Site
from tests.kit.command import run_aside
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.upstream import Exchange, ScriptedUpstream
from tests.kit.wire import Wire, bearer, build_request, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROUTES = """
routes:
  mcp:
    match: "* /mcp/**"
    upstream: api
    plan_limits: false
    mcp: {tools: {search: {rate: 2/minute}, hidden: deny, "*": allow}}
    limits: [{name: sessions, concurrency: 5, of: connections}]
"""
JSON = ("Content-Type", "application/json")


async def answer(exchange: Exchange) -> None:
    """A stream that stays open for GET, and a short answer to all else."""
    if exchange.request.method != "GET":
        await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        return
    await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
    await exchange.ended()
    raise ConnectionError


async def command(gateway: ServedGateway, store: str, *words: str) -> Any:
    """The JSON of `gateway mcp`."""
    shared = "--store", store, "--policies", str(gateway.policies)
    done = await run_aside("mcp", *shared, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def of_api(gateway: ServedGateway, path: str) -> list[dict[str, Any]]:
    headers = [("Host", "127.0.0.1")]
    found = await fetch(
        gateway.admin_port, f"/admin/v1/mcp/{path}", key=gateway.admin_token, headers=headers
    )
    assert found.status == 200
    items: list[dict[str, Any]] = found.json()["items"]
    return items


async def test_over_two_gateways(serve: Serve, site: Site) -> None:
    """Connections of a key at all workers of two gateways, and calls of both; then their end."""
    key = await site.key()
    parsed = key_format.parse(key.encode())
    assert parsed is not None
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(ScriptedUpstream(answer))
        gateways = [
            await serve("--workers", workers, upstream=upstream.url, routes=ROUTES)
            for workers in ("2", "1")
        ]
        wires = []
        for gateway in (*gateways, gateways[0]):
            wires.append(wire := await Wire.connect(gateway.port))
            stack.push_async_callback(wire.close)
            await wire.send(build_request("GET", "/mcp/x", bearer(key)))
            assert (await wire.read_head()).status == 200

        async def sees(gateway: ServedGateway, opened: int) -> bool:
            found = {one["id"]: one for one in await of_api(gateway, "connections")}
            one = found.get(parsed.id)
            seen = 0 if one is None else one["limits"][0]["open"]
            return seen == opened and (one is None or not opened or one["reported"] == opened)

        for gateway in gateways:
            await eventually(lambda at=gateway: sees(at, 3), "the three are known")
        shown = await command(gateways[0], site.store, "--key", parsed.id)
        assert [limit["open"] for limit in shown["connections"][0]["limits"]] == [3]
        for wire in wires:
            await wire.close()
        await eventually(lambda: sees(gateways[1], 0), "none is open")
        for number, tool in enumerate(("search", "search", "search", "hidden", "made-up")):
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}
            await gateways[number % 2].fetch(
                "/mcp/x", key=key, method="POST", headers=[JSON], body=json.dumps(call).encode()
            )
        expected = {
            "search": {"admitted": 2, "limited:mcp/search": 1},
            "hidden": {"refused:tool_unknown": 1},
            "other": {"admitted": 1},
        }

        async def are_counted() -> bool:
            found = await of_api(gateways[0], "tools")
            return {one["tool"]: one["totals"] for one in found} == expected

        await eventually(are_counted, "the calls at both gateways are counted")
        shown = await command(gateways[1], site.store, "--window", "1h")
        assert {one["tool"]: one["totals"] for one in shown["tools"]} == expected
