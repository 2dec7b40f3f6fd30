"""Servers for tests: on a free port; stopping one ends its connections."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from tests.kit.ports import free_port


class Listening(ABC):
    """Listens on `port` of `host` within its `async with`, or from `start` to `stop`."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.host = host
        self.port = free_port() if port is None else port
        self.tls = tls
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which is closed afterwards; cancelled when the server is stopped.

        It may fail as the other end closes.
        """

    async def start(self) -> None:
        """Listen; after a stop, on the same port as before."""
        self._server = await asyncio.start_server(
            self._connected, self.host, self.port, ssl=self.tls
        )

    async def stop(self) -> None:
        """Stop listening and drop every connection; may be repeated."""
        if self._server is not None:
            self._server.close()
            self._server = None
        ended = dict(self._open)
        for writer, task in ended.items():
            task.cancel()
            writer.transport.abort()
        closed = (writer.wait_closed() for writer in ended)
        await asyncio.gather(*ended.values(), *closed, return_exceptions=True)

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

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Known from the start: `stop` may come before the task has run.
        self._open[writer] = asyncio.ensure_future(self._run(reader, writer))

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the other end closed, or the test is over
        except Exception as error:
            context = {"message": "a test's server failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._open.pop(writer, None)


class Served(Listening):
    """Serves each connection with a function."""

    def __init__(
        self,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(host, port, tls)
        self._serve = serve

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(reader, writer)


def answering(reply: bytes) -> Served:
    """A server that sends the same reply to all data. b"": nothing."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(reply)

    return Served(answer)
