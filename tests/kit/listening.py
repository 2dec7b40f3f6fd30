"""Servers for tests: on a free port; stopping one ends its connections."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from tests.kit.ports import free_port


class Listening(ABC):
    """Listens on `port` of `host` within its `async with`, or from `start` to `stop`."""

    def __init__(self) -> None:
        self.host = "127.0.0.1"
        self.port = free_port()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end; cancelled when the server is stopped."""

    async def start(self) -> None:
        """Listen; after a stop, on the same port as before."""
        self._server = await asyncio.start_server(self._connected, self.host, self.port)

    async def stop(self) -> None:
        """Stop listening and drop every connection; may be repeated."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self.serve(reader, writer)
        finally:
            self._tasks.discard(task)


@asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[int]:
    """A server that sends the same to all data; gives its port. b"": nothing. Clients end first."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(reply)
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await listening.wait_closed()
