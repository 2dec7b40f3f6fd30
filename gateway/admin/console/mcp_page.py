"""MCP servers: the keys with open connections, and calls of tools."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.console.charts import chart
from gateway.admin.console.gate import management_of
from gateway.admin.console.render import page
from gateway.admin.console.usage_span import span_of
from gateway.admin.console.wording import WINDOWS
from gateway.manage.mcp import tool_rows, why_not


async def show(request: web.Request) -> web.StreamResponse:
    management = management_of(request)
    span = span_of(request)
    reports = await management.usage.of_tools(span.window)
    whole = management.usage.added(reports.values(), span.window)
    connected, keys = await management.connections.most()
    return page(
        request,
        "mcp",
        span=span,
        windows=WINDOWS,
        chart=chart("calls", span.window, whole.points),
        connected=connected,
        keys=keys,
        tools=tool_rows(reports),
        why_not=why_not,
    )
