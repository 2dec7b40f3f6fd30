"""An admin listener with test paths, and clients that are slow or idle."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from gateway.admin.connection import read_body
from gateway.admin.guard import refuse_in_json
from gateway.admin.listener import AdminServer
from gateway.runtime.sockets import bind
from tests.kit.eventually import eventually
from tests.kit.raw_client import RawClient

#: More than two kernels buffer of an unread answer.
LARGE = bytes(32 * 1024 * 1024)
SLOW_HEAD = b"GET /now HTTP/1.1\r\nHost: a\r\nX-Slow: "


class Scene:
    """A server with test paths. gate: what "/held" waits for; held: how many wait there"""

    def __init__(self, most: int, tls: ssl.SSLContext | None) -> None:
        self.gate = asyncio.Event()
        self.held = self.done = 0
        self.clients: list[RawClient] = []
        app = web.Application(middlewares=[refuse_in_json], client_max_size=65_536)
        app.router.add_get("/now", self._now)
        app.router.add_get("/held", self._hold)
        app.router.add_post("/held", self._hold)
        app.router.add_get("/large", self._large)
        app.router.add_post("/echo", self._echo)
        self.server = AdminServer(app, None if tls is None else lambda: tls, most)

    @property
    def port(self) -> int:
        return self.server.port

    async def _now(self, _request: web.Request) -> web.Response:
        return web.Response(text="now")

    async def _hold(self, _request: web.Request) -> web.Response:
        self.held += 1
        try:
            await self.gate.wait()
            self.done += 1
        finally:
            self.held -= 1
        return web.Response(text="held")

    async def _large(self, _request: web.Request) -> web.Response:
        return web.Response(body=LARGE)

    async def _echo(self, request: web.Request) -> web.Response:
        return web.Response(body=await read_body(request))

    async def client(self) -> RawClient:
        """A connection, closed at the end."""
        self.clients.append(client := await RawClient.connect(self.port))
        return client

    async def slow_client(self, head: bytes = SLOW_HEAD) -> RawClient:
        """A client that has sent a part of a request, and was accepted."""
        known = len(self.server.connections)
        client = await self.client()
        await client.send(head)
        most = self.server.connections.most
        await eventually(
            lambda: len(self.server.connections) >= min(known + 1, most), "it is accepted"
        )
        return client


@asynccontextmanager
async def serving(most: int = 16, tls: ssl.SSLContext | None = None) -> AsyncIterator[Scene]:
    scene = Scene(most, tls)
    await scene.server.start(bind("127.0.0.1", 0, 1)[0])
    try:
        yield scene
    finally:
        scene.gate.set()
        await scene.server.stop()
        for client in scene.clients:
            client.close()


async def read_to_end(client: RawClient) -> bytes:
    """Read until the other end closes, or resets."""
    try:
        return await client.read_to_end()
    except ConnectionResetError:
        return b"reset"


async def all_closed(scene: Scene) -> None:
    await eventually(lambda: len(scene.server.connections) == 0, "no connection is open")
