"""A relay that adds a key to each request, for clients that cannot send one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

#: Of one connection, or made by each side itself.
NOT_PASSED = ("connection", "keep-alive", "transfer-encoding", "content-length")

SESSION = "Mcp-Session-Id"


@asynccontextmanager
async def relay(
    port: int, key: str = "", *, breaks_at: str = "", spoils_at: str = ""
) -> AsyncIterator[int]:
    """Pass requests to this port of 127.0.0.1, with the key; yields the relay's port.

    Everything else is passed as it is, answers as they arrive. If the client leaves, the request
    to the other side is closed.

    breaks_at: in a body, this ends the connection without an answer
    spoils_at: in a body, this spoils the id of its session in all later requests
    """
    spoiled: set[str] = set()
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        auto_decompress=False, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
    ) as client:

        async def handle(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            if breaks_at and breaks_at.encode() in body and request.transport is not None:
                request.transport.abort()
                return web.Response()
            headers = [
                (name, value)
                for name, value in request.headers.items()
                if name.lower() not in NOT_PASSED
            ]
            session = request.headers.get(SESSION, "")
            if session in spoiled:
                headers = [pair for pair in headers if pair[0].lower() != SESSION.lower()]
                headers.append((SESSION, f"{session}0"))
            elif session and spoils_at and spoils_at.encode() in body:
                spoiled.add(session)
            if key:
                headers.append(("Authorization", f"Bearer {key}"))
            async with client.request(
                request.method,
                f"http://127.0.0.1:{port}{request.raw_path}",
                headers=headers,
                data=body,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                allow_redirects=False,
            ) as answer:
                response = web.StreamResponse(status=answer.status, reason=answer.reason)
                for name, value in answer.headers.items():
                    if name.lower() not in NOT_PASSED:
                        response.headers.add(name, value)
                with contextlib.suppress(ConnectionResetError):  # the client has left
                    await response.prepare(request)
                    async for part in answer.content.iter_any():
                        await response.write(part)
                    await response.write_eof()
                return response

        application = web.Application(client_max_size=16 << 20)
        application.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()
