"""`AsyncClient`: the same as `Client`, for asyncio."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Any

import httpx

from gateway_client import calls
from gateway_client.bodies import Body
from gateway_client.errors import ApiError
from gateway_client.limits import Limits
from gateway_client.pacing import Pause, Ticket
from gateway_client.retries import Wait
from gateway_client.session import Came, Session
from gateway_client.settings import read_settings


class AsyncClient:
    """A client of the API behind the gateway. Tasks of one event loop may share it, and its pace.

    Its arguments and methods are those of `Client`; `http` is for httpx.AsyncClient.
    """

    def __init__(
        self,
        *,
        pace: bool = False,
        on_low: Callable[[Limits], object] | None = None,
        http: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self._settings = read_settings(**settings)
        self._session = Session(self._settings, pace=pace, on_low=on_low)
        self._options = calls.http_options(self._settings, http)
        self._open()

    def _open(self) -> None:
        self._http = httpx.AsyncClient(**self._options)
        #: Set, and replaced, when a request has ended.
        self._changed = asyncio.Event()
        #: As of `Client`.
        self._process = os.getpid()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    @property
    def limits(self) -> Limits | None:
        """The limits that the last answer reported; None: none has so far."""
        return self._session.limits

    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        **body_and_params: Any,
    ) -> httpx.Response:
        """As `Client.request`."""
        calls.check_headers(headers)
        return await self._send(method, path, headers, body_and_params)

    async def health(self) -> dict[str, Any]:
        """As `Client.health`."""
        return calls.object_of(await self.request("GET", calls.HEALTH))

    async def verify(self) -> dict[str, Any]:
        """As `Client.verify`."""
        return calls.object_of(await self.request("GET", calls.VERIFY))

    async def connectors(self) -> Any:
        """As `Client.connectors`."""
        return calls.json_of(await self.request("GET", calls.CONNECTORS))

    async def watch(self, integration: str, url: str, events: Sequence[str]) -> dict[str, Any]:
        """As `Client.watch`."""
        body = calls.watch_body(url, events)
        both = calls.both_key_headers(self._settings)
        return calls.object_of(
            await self._send("POST", calls.watches_path(integration), both, {"json": body})
        )

    async def batch(
        self, path: str, ids: Sequence[str], *, size: int = calls.BATCH
    ) -> AsyncIterator[Any]:
        """As `Client.batch`."""
        batches = calls.Batches(ids, size)
        while batches.next:
            try:
                answer = await self.request("POST", path, json={"ids": batches.next})
            except ApiError as error:
                batches.refused(error)
            else:
                batches.sent()
                yield calls.json_of(answer)

    async def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None,
        body_and_params: Mapping[str, Any],
    ) -> httpx.Response:
        if self._process != os.getpid():
            self._open()
        request = calls.request_of(
            self._http, self._settings, method, path, headers, body_and_params
        )
        for attempt in count():
            came = await self._attempt(request)
            todo = self._session.decide(request, came, attempt)
            if not isinstance(todo, Wait):
                return calls.result_of(request, came, todo)
            await asyncio.sleep(todo.seconds)
        raise AssertionError("not reached")

    async def _attempt(self, request: httpx.Request) -> Came:
        ticket = await self._wait_for_pace(request)
        came: Came | None = None
        ends_s = time.monotonic() + self._settings.timeout_s
        try:
            came = await self._received(await self._http.send(request, stream=True), ends_s)
        except httpx.RequestError as error:
            came = error
        finally:
            low = self._session.ended(ticket, came, time.monotonic())
            self._changed.set()
            self._changed = asyncio.Event()
        if low is not None:
            self._session.warn(low)
        return came

    async def _received(self, response: httpx.Response, ends_s: float) -> httpx.Response:
        """With its body. Raises httpx.RequestError and UnexpectedAnswer."""
        body = Body(response, self._settings.max_answer_bytes, ends_s)
        try:
            async for part in response.aiter_bytes():
                if not body.is_wanted(part, time.monotonic()):
                    break
        finally:
            await response.aclose()
        body.keep()
        return response

    async def _wait_for_pace(self, request: httpx.Request) -> Ticket | None:
        while isinstance(found := self._session.ask(request, time.monotonic()), Pause):
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                # Not wait_for, which before Python 3.12 can lose a cancellation.
                await asyncio.wait({changed}, timeout=found.seconds)
            finally:
                changed.cancel()
        return found
