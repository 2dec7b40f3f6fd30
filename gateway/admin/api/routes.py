"""All operations of the API: adds their routes, and builds the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from importlib.metadata import version
from typing import Any, Final

from aiohttp import web

from gateway.admin.api import (
    account_operations,
    audit_operations,
    delivery_operations,
    integration_operations,
    key_operations,
    mcp_operations,
    policy_operations,
    usage_operations,
    watch_operations,
)
from gateway.admin.api.openapi import build_document
from gateway.admin.api.operations import BASE, Call, Operation, Reply, Success
from gateway.admin.api.reading import read_call


async def _show(_call: Call) -> Reply:
    return Reply(document())


OPERATIONS: Final = (
    *key_operations.OPERATIONS,
    *account_operations.OPERATIONS,
    *usage_operations.OPERATIONS,
    *mcp_operations.OPERATIONS,
    *integration_operations.OPERATIONS,
    *watch_operations.OPERATIONS,
    *delivery_operations.OPERATIONS,
    *policy_operations.OPERATIONS,
    *audit_operations.OPERATIONS,
    Operation(
        "GET",
        "/openapi.json",
        "getDocument",
        "document",
        "This document",
        _show,
        (Success(200, "An OpenAPI 3.1 document.", "Document"),),
    ),
)


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document of all operations."""
    return build_document(OPERATIONS, version("rate-limiting-gateway"))


def add_api(app: web.Application) -> None:
    """Add the routes of the API to the application. A middleware checks the token."""
    for operation in OPERATIONS:
        path, handler = f"{BASE}{operation.path}", _handler(operation)
        if operation.method == "GET":
            app.router.add_get(path, handler)  # with HEAD
        else:
            app.router.add_route(operation.method, path, handler)


def _handler(operation: Operation) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        reply = await operation.handler(await read_call(request, operation))
        if reply.csv is not None:
            return web.Response(text=reply.csv, content_type="text/csv", headers=reply.headers)
        if reply.body is None:
            return web.Response(status=reply.status, headers=reply.headers)
        return web.json_response(reply.body, status=reply.status, headers=reply.headers)

    return answer
