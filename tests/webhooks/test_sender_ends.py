"""How attempts end that are not answered: their sockets are gone at once.

The other end never says farewell by TLS, for which a closed connection would wait half a minute.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.domain.webhooks.destinations import Destinations
from gateway.webhooks.sender import Answer, Sender
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.listening import Listening

LOOPBACK = Destinations(allowed=(ip_network("127.0.0.0/8"),))
#: Far less than the half minute.
SOON_S = 15.0

NewLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS: list[NewLoop] = [uvloop.new_event_loop, asyncio.new_event_loop]


class Rude(Listening):
    """Speaks TLS, sends its answer to a request, and then only reads until the other end is gone.

    answer: what it sends; None: it says nothing at all, not even in the handshake
    asked:  a request, or the beginning of a handshake, has come
    gone:   the TCP connection has ended
    """

    def __init__(self, folder: Path, answer: bytes | None, name: str = "127.0.0.1") -> None:
        super().__init__()
        files = make_certificate(folder, [name])
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.certificate, files.key)
        self._context.num_tickets = 0
        self.trust = ssl.create_default_context(cafile=files.ca)
        self._answer = answer
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            if self._answer is not None:
                await self._speak(reader, writer, self._answer)
            while await reader.read(65_536):
                self.asked.set()
        self.gone.set()

    async def _speak(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes
    ) -> None:
        came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context.wrap_bio(came, goes, server_side=True)

        async def until_done(step: Callable[[], Any]) -> Any:
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    writer.write(goes.read())
                    if not (data := await reader.read(65_536)):
                        raise ConnectionResetError from None
                    came.write(data)

        try:
            await until_done(tls.do_handshake)
        except ssl.SSLError:
            return  # the other end does not like the certificate
        writer.write(goes.read())
        request = b""
        while not request.endswith(b"{}"):
            request += await until_done(lambda: tls.read(65_536))
        tls.write(answer)
        writer.write(goes.read())
        self.asked.set()


def run(new_loop: NewLoop, main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)


WHOLE = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
LATE = "no complete answer within 0.5 s"


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize(
    ("answer", "status", "found"),
    [
        (b"", 0, LATE),
        (b"HTTP/1.1 200 OK\r\nX-A: ", 0, LATE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", 0, LATE),
        (b"SSH-2.0-OpenSSH\r\n\r\n", 0, "the answer is not valid HTTP"),
        (WHOLE, 200, "ok"),
        (None, 0, LATE),
    ],
)
def test_an_attempt_that_ends(
    tmp_path: Path, new_loop: NewLoop, answer: bytes | None, status: int, found: str
) -> None:
    """Too late, in any phase, or by an answer after which the connection is not kept."""

    async def main() -> None:
        # What is not to be late is not cut off on a busy machine.
        total_s = 0.5 if found is LATE else 60.0
        async with (
            Rude(tmp_path, answer) as server,
            Sender(lambda: LOOPBACK, tls=lambda: server.trust, total_s=total_s) as sender,
        ):
            got = await sender.send(server.url, b"{}", {})
            assert (got.status, got.found) == (status, found)
            await asyncio.wait_for(server.gone.wait(), SOON_S)

    run(new_loop, main())


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", None])
def test_an_attempt_that_is_cancelled(
    tmp_path: Path, new_loop: NewLoop, answer: bytes | None
) -> None:
    """As at the end of a courier."""

    async def main() -> None:
        async with (
            Rude(tmp_path, answer) as server,
            Sender(lambda: LOOPBACK, tls=lambda: server.trust, total_s=60.0) as sender,
        ):
            sending = asyncio.ensure_future(sender.send(server.url, b"{}", {}))
            await asyncio.wait_for(server.asked.wait(), SOON_S)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await asyncio.wait_for(server.gone.wait(), SOON_S)

    run(new_loop, main())


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_sender_that_ends(tmp_path: Path, new_loop: NewLoop) -> None:
    """With it go the connections that were kept."""

    async def main() -> None:
        kept = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        async with Rude(tmp_path, kept) as server:
            async with Sender(lambda: LOOPBACK, tls=lambda: server.trust) as sender:
                assert (await sender.send(server.url, b"{}", {})).status == 200
                assert not server.gone.is_set()
            await asyncio.wait_for(server.gone.wait(), SOON_S)

    run(new_loop, main())


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_certificate_that_is_refused(tmp_path: Path, new_loop: NewLoop) -> None:
    async def main() -> None:
        async with (
            Rude(tmp_path, b"", "other.test") as server,
            Sender(lambda: LOOPBACK, tls=lambda: server.trust) as sender,
        ):
            got = await sender.send(server.url, b"{}", {})
            assert got.found == "the certificate is not valid for this host"
            await asyncio.wait_for(server.gone.wait(), SOON_S)

    run(new_loop, main())


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_connection_that_is_not_made(new_loop: NewLoop, is_cancelled: bool) -> None:
    """The other end has no room for it: its socket does not wait any longer."""

    async def main() -> None:
        async with Sender(lambda: LOOPBACK, connect_s=60.0 if is_cancelled else 0.3) as sender:
            before = open_sockets()
            sending = asyncio.ensure_future(sender.send(url, b"{}", {}))
            await eventually(lambda: open_sockets() > before, "it is dialled")
            if is_cancelled:
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
            else:
                got: Answer = await sending
                assert got.found == "the connection could not be made in time"
            await eventually(lambda: open_sockets() == before, "its socket is closed", SOON_S)

    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())
        url = f"https://127.0.0.1:{full.getsockname()[1]}/"
        run(new_loop, main())


def open_sockets() -> int:
    """Of this process."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found
