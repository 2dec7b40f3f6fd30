"""An upstream in a separate process: to be killed, stopped, and started again on its port.

It answers by path:

    /short             a small answer
    /long              LONG_BYTES of answer
    /never             no answer
    /head /body /chunk reset within the answer's head, body or chunk
    /half              closed, without a reset, within the body

It reads a request's body to its end first.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tests.kit.eventually import eventually
from tests.kit.ports import free_port
from tests.kit.proc import unread_bytes

#: Twice what two kernels and the gateway buffer of an unread answer.
LONG_BYTES = 16 * 1024 * 1024

_OPENINGS = {
    "/head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "/body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart",
    "/half": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart",
    "/chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\npart",
}


class Backend:
    """The process; it runs within its `async with`, except while a test stops it."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Backend:
        try:
            await self.start()
        except BaseException:
            self.kill()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    async def start(self) -> None:
        """Start it, on the same port each time, and wait until it listens."""
        self._process = _run("-m", "tests.hostile.backend", str(self.port))
        await eventually(self._listens, "the upstream listens")

    async def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the upstream ended at its start"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def revive(self) -> None:
        """Have it run again, after any of these."""
        if self._process is None:
            await self.start()
        else:
            self.resume()

    def kill(self) -> None:
        """End it as a crash would; no effect if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _run(*arguments: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).parent.parent.parent
    return subprocess.Popen([sys.executable, *arguments], cwd=root)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode()
            _, _, after = head.lower().partition(b"content-length: ")
            left = int(after.split(b"\r\n")[0]) if after else 0
            while left:
                left -= len(piece := await reader.read(min(left, 65536)))
                if not piece:
                    return
            await _answer(target, reader, writer)
    except (OSError, asyncio.IncompleteReadError):
        pass  # the other end has closed
    finally:
        writer.close()


async def _answer(target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if target == "/never":
        await reader.read()
    elif target == "/long":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LONG_BYTES)
        piece = bytes(65536)
        for _ in range(LONG_BYTES // len(piece)):
            writer.write(piece)
            await writer.drain()
    elif target in _OPENINGS:
        writer.write(_OPENINGS[target])
        await writer.drain()
        if target != "/half":
            connection: socket.socket = writer.get_extra_info("socket")
            # A reset discards what was sent, unless that was read before.
            await eventually(lambda: unread_bytes(connection) == 0, "the gateway has read it")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        raise ConnectionAbortedError
    else:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshort")


async def _main(port: int) -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(int(sys.argv[1])))
