"""An ASGI application that receives webhooks: `Receiver`."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from gateway_client.webhooks.answers import Answer
from gateway_client.webhooks.endpoint import MOST_BODY, Endpoint
from gateway_client.webhooks.handling import Call, Handle, Steps, attempt, is_async
from gateway_client.webhooks.seen import AsyncSeenStore, SeenStore
from gateway_client.webhooks.signatures import Form
from gateway_client.webhooks.verification import DEFAULT_BRAND, DEFAULT_FORMS, TOLERANCE_S

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Receiver:
    """Answers 200 once an event is handled, and has the sender send it again if it is not.

    secrets, tolerance, forms, brand: as of `verify`
    handle:   called with each event. It is awaited; one that is not async runs in a thread. Be
              quick: the sender waits 15 s
    seen:     drops events that were handled before; None: the handler does that itself. Its methods
              are called as `handle` is
    max_body: bytes; more is answered 413
    clock:    Unix seconds

    Mount it at any path. It needs asyncio. It has no timeout for a body that does not arrive: that
    is a setting of the server.
    """

    def __init__(
        self,
        secrets: str | Sequence[str],
        handle: Handle,
        *,
        seen: SeenStore | AsyncSeenStore | None = None,
        tolerance: float = TOLERANCE_S,
        forms: Sequence[Form] = DEFAULT_FORMS,
        brand: str = DEFAULT_BRAND,
        max_body: int = MOST_BODY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._endpoint = Endpoint.of(
            secrets, handle, seen, tolerance, forms, brand, max_body, clock
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            answer = await self._answer(scope, receive)
            if answer is not None:
                await _send(answer, send)
        elif scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            raise ValueError(f"found a scope of type {scope['type']!r}, expected 'http'")

    async def _answer(self, scope: Message, receive: Receive) -> Answer | None:
        """None: the client is gone."""
        headers = _decoded(scope["headers"])
        claim = self._endpoint.opened(scope["method"], headers)
        if isinstance(claim, Answer):
            return claim
        body = await self._body(headers, receive)
        if not isinstance(body, bytes):
            return body
        event = self._endpoint.read(claim, body)
        return event if isinstance(event, Answer) else await _run(self._endpoint.handled(event))

    async def _body(
        self, headers: list[tuple[str, str]], receive: Receive
    ) -> bytes | Answer | None:
        """The whole body; None: the client is gone. Nothing more is received beyond the bound."""
        for name, value in headers:
            if name == "content-length":
                length = self._endpoint.bounded(value)
                if isinstance(length, Answer):
                    return length
        found = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            found += message.get("body", b"")
            if len(found) > self._endpoint.most_body:
                return self._endpoint.too_large
            if not message.get("more_body", False):
                return bytes(found)


def _decoded(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


async def _run(steps: Steps) -> Answer:
    """Make the calls, one after the other.

    If this is cancelled, as at a server's end, nobody knows how far the handler has come: the claim
    of the event stays until it ends by itself.
    """
    try:
        call = next(steps)
        while True:
            result, error = await _attempt(call)
            call = steps.send(result) if error is None else steps.throw(error)
    except StopIteration as end:
        return cast(Answer, end.value)


async def _attempt(call: Call) -> tuple[object, Exception | None]:
    """What `attempt` says, without holding up others."""
    if is_async(call.function):
        result, error = attempt(call)
    else:
        result, error = await asyncio.to_thread(attempt, call)
    if not inspect.isawaitable(result):
        return result, error
    try:
        return await result, None
    except Exception as failure:
        return None, failure


async def _send(answer: Answer, send: Send) -> None:
    headers = [
        (name.lower().encode("ascii"), value.encode("ascii")) for name, value in answer.headers
    ]
    # ASGI 2.4: `send` raises OSError if the client is gone.
    with suppress(OSError):
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


async def _live(receive: Receive, send: Send) -> None:
    """There is nothing to start or to end."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
