"""Puts the operations at their paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.admin.api.operations import BASE, Operation
from gateway.admin.api.reading import read_call
from gateway.admin.api.table import OPERATIONS


def add_api(app: web.Application) -> None:
    """Have the application answer the API. That the token is right is for a middleware to see."""
    for operation in OPERATIONS:
        path, handler = f"{BASE}{operation.path}", _handler(operation)
        if operation.method == "GET":
            app.router.add_get(path, handler)  # with HEAD
        else:
            app.router.add_route(operation.method, path, handler)


def _handler(operation: Operation) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        reply = await operation.handler(await read_call(request, operation))
        if reply.body is None:
            return web.Response(status=reply.status, headers=reply.headers)
        return web.json_response(reply.body, status=reply.status, headers=reply.headers)

    return answer
