"""A TCP proxy in front of a server, which disturbs its connections as the test says.

It keeps its port while the server behind it moves, as a name does in front of addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from tests.kit.listening import Listening


class StoreProxy(Listening):
    """Listens on a free port of 127.0.0.1 within its `async with`; passes all on at first.

    target: the port that new connections go to
    """

    def __init__(self, target: int) -> None:
        super().__init__()
        self.target = target
        self._delay_s = 0.0
        self._cutting = False
        self._reset_after: int | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    # -- what a test says --------------------------------------------------------------------------
    def pass_on(self) -> None:
        """From now on pass everything on, without delay."""
        self._delay_s, self._cutting, self._reset_after = 0.0, False, None
        self._flowing.set()

    def delay(self, seconds: float) -> None:
        """Delay each reply by this time."""
        self._delay_s = seconds

    def pause(self) -> None:
        """Accept connections and commands, and answer nothing."""
        self._flowing.clear()

    def cut(self) -> None:
        """End every connection, and each new one at once."""
        self._cutting = True
        self._drop()

    def reset_after(self, reply_bytes: int) -> None:
        """Reset every connection after this many bytes of the next reply."""
        self._reset_after = reply_bytes

    def move(self, target: int) -> None:
        """The server has another port now: end every connection; new ones go there."""
        self.target = target
        self._drop()

    # -- connections -------------------------------------------------------------------------------
    def _drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            if not self._cutting:
                replies, onward = await asyncio.open_connection("127.0.0.1", self.target)
                async with asyncio.TaskGroup() as pumps:
                    pumps.create_task(self._commands(reader, onward))
                    pumps.create_task(self._replies(replies, writer))
        except* (OSError, EOFError):
            pass  # either end has closed, or the server does not run
        finally:
            self._writers.discard(writer)
            for end in (writer, onward):
                if end is not None:
                    end.transport.abort()

    async def _commands(self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            onward.write(data)
            await onward.drain()
        raise EOFError

    async def _replies(self, replies: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due_s, data = await waiting.get()
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                await self._flowing.wait()
                if self._reset_after is not None:
                    await self._reset(writer, data[: self._reset_after])
                writer.write(data)
                await writer.drain()

        delivery = loop.create_task(deliver())
        try:
            while data := await replies.read(65536):
                waiting.put_nowait((loop.time() + self._delay_s, data))
                if delivery.done():
                    break
            raise EOFError
        finally:
            delivery.cancel()
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                await delivery

    async def _reset(self, writer: asyncio.StreamWriter, part: bytes) -> None:
        writer.write(part)
        await writer.drain()
        # A reset discards what was sent, unless that was read before.
        await asyncio.sleep(0.01)
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        raise EOFError
