"""MCP servers: calls of tools, and the keys that have connections open."""

from __future__ import annotations

from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Call, Operation, Parameter, Reply, Success, listed
from gateway.manage.mcp import MOST_LISTED, SHOWN, connected_as_json, tool_as_json, tool_rows
from gateway.manage.usage_reports import read_span

_TAG: Final = "mcp"


async def _tools(call: Call) -> Reply:
    query = call.query
    window = read_span(query["window"], query["from"], query["to"], call.now_us)
    reports = await call.management.usage.of_tools(window)
    return listed([tool_as_json(*row) for row in tool_rows(reports)])


async def _connections(call: Call) -> Reply:
    connections, key_id = call.management.connections, call.query["key_id"]
    if key_id is not None:
        found = [await connections.of_key(key_id)]
    else:
        found, _ = await connections.most(call.query["count"])
    return listed(list(map(connected_as_json, found)))


OPERATIONS: Final = (
    Operation(
        "GET",
        "/mcp/tools",
        "listToolCalls",
        _TAG,
        "Calls of MCP tools",
        _tools,
        (Success(200, "Routes by name, the tool with the most calls first.", "ToolCallsList"),),
        description="Of all keys and gateways. Tools that the policies do not name are `other`.",
        parameters=given.WINDOW_OR_DATES,
    ),
    Operation(
        "GET",
        "/mcp/connections",
        "listConnections",
        _TAG,
        "The keys with the most MCP connections open",
        _connections,
        (Success(200, "Keys, the one with the most connections first.", "ConnectedKeyList"),),
        description="A key is known if it is among the 100 with the most connections at one "
        "worker. The limits are exact, over all workers and gateways.",
        parameters=(
            Parameter(
                "key_id",
                "query",
                {"type": "string", "pattern": given.KEY_ID_PATTERN, "example": "7h3k9m2p4q6r"},
                "Only this key, also if it has no connection open.",
            ),
            Parameter(
                "count",
                "query",
                {"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": SHOWN},
                f"How many, up to {MOST_LISTED}.",
            ),
        ),
        refusals=(404,),
    ),
)
