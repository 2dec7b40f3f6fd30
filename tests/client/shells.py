"""Both clients behind one face, for tests of what they have in common.

`Threads` has a Client, `Tasks` an AsyncClient and a loop for it. A test calls either without
knowing which.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from random import Random
from types import ModuleType
from typing import Any

import httpx
from gateway_client import AsyncClient, Client, Limits

from gateway.domain.key_format import mint

#: Always the same, as it is in the names of tests.
KEY, KEY_ID = mint("production", Random(7).randrange)
#: The part of the key that is secret.
SECRET = KEY.rpartition("_")[2]


class Threads:
    """A Client. http: the classes of httpx that it is over"""

    name = "sync"
    Transport = httpx.HTTPTransport

    def __init__(self, **arguments: Any) -> None:
        self.client = Client(**arguments)

    @property
    def limits(self) -> Limits | None:
        return self.client.limits

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the client."""
        return getattr(self.client, method)(*arguments, **named)

    def request(self, method: str, path: str, **named: Any) -> httpx.Response:
        answer = self.call("request", method, path, **named)
        assert isinstance(answer, httpx.Response)
        return answer

    def batch(self, *arguments: Any, **named: Any) -> Iterator[Any]:
        return self.client.batch(*arguments, **named)

    @staticmethod
    def stream(parts: list[bytes | Exception]) -> Any:
        """A body that can be read once. An exception in it is raised."""
        return map(_part, parts)

    def close(self) -> None:
        self.client.close()


class Tasks:
    """An AsyncClient. It is made without a running loop, as programs do."""

    name = "async"
    Transport = httpx.AsyncHTTPTransport

    def __init__(self, **arguments: Any) -> None:
        self.client = AsyncClient(**arguments)
        self._runner = asyncio.Runner()

    @property
    def limits(self) -> Limits | None:
        return self.client.limits

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self._runner.run(getattr(self.client, method)(*arguments, **named))

    def request(self, method: str, path: str, **named: Any) -> httpx.Response:
        answer = self.call("request", method, path, **named)
        assert isinstance(answer, httpx.Response)
        return answer

    def batch(self, *arguments: Any, **named: Any) -> Iterator[Any]:
        answers = self.client.batch(*arguments, **named)
        try:
            while True:
                try:
                    yield self._runner.run(_next(answers))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(answers.aclose())

    @staticmethod
    def stream(parts: list[bytes | Exception]) -> Any:
        return _stream(parts)

    def close(self) -> None:
        try:
            self._runner.run(self.client.close())
        finally:
            self._runner.close()


async def _next(answers: AsyncIterator[Any]) -> Any:
    return await anext(answers)


async def _stream(parts: list[bytes | Exception]) -> AsyncIterator[bytes]:
    for part in parts:
        yield _part(part)


def _part(part: bytes | Exception) -> bytes:
    if isinstance(part, Exception):
        raise part
    return part


Shell = Threads | Tasks
Open = Callable[..., Shell]
OpenBoth = Callable[..., tuple[Threads, Tasks]]


class Replaced:
    """A module of which some names are others, for one of the modules that import it."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class Clock:
    """What the clients take for the time, and how long they would have waited between attempts.

    waits:         in seconds; no time passes
    on_wait:       called at each of them
    on_wait_async: the same, for an AsyncClient alone
    now_s:         of the monotonic clock; the test moves it
    """

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.on_wait: Callable[[], object] = lambda: None
        self.on_wait_async: Callable[[], Awaitable[object]] | None = None
        self.now_s = 1000.0

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.on_wait()

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)
        if self.on_wait_async is not None:
            await self.on_wait_async()

    def monotonic(self) -> float:
        return self.now_s
