"""Attempts over real sockets: what is sent, what is read of the answer, and what ends it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from ipaddress import ip_network
from pathlib import Path

import pytest
import uvloop

from gateway.domain.webhooks.destinations import Destinations
from gateway.webhooks.endpoint import MOST_READ
from gateway.webhooks.sender import IDLE_S, MOST_KEPT, REFUSED, Sender
from tests.kit.certificates import make_certificate
from tests.kit.listening import Served

#: Far more than two kernels buffer.
TOO_MUCH = 256 * 1024 * 1024
LOOPBACK = Destinations(allowed=(ip_network("127.0.0.0/8"),))
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def head_of(reader: asyncio.StreamReader) -> bytes:
    """A request's head, after which its body was read."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return head


def answering(text: bytes, *, heads: list[bytes] | None = None) -> Serve:
    """A server that answers each request on a connection with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await head_of(reader)
                if heads is not None:
                    heads.append(head)
                writer.write(text)
        except asyncio.IncompleteReadError:
            writer.close()

    return serve


class Names:
    """Every name is these addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def __call__(self, host: str) -> tuple[str, ...]:
        return self.addresses


@asynccontextmanager
async def sender(destinations: Destinations = LOOPBACK, **more: object) -> AsyncIterator[Sender]:
    async with Sender(lambda: destinations, **more) as made:  # type: ignore[arg-type]
        yield made


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def url_of(server: Served, path: str = "/hook") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


async def test_what_is_sent() -> None:
    """The bytes and headers as given, nothing that asks for a coding, on a kept connection."""
    heads: list[bytes] = []
    async with Served(answering(OK, heads=heads)) as server, sender() as made:
        first = await made.send(url_of(server), b'{"id": 1}', {"webhook-id": "evt"})
        second = await made.send(url_of(server, "/a?b=%20c"), b"", {})
    assert (first.status, first.found, first.retry_after_s) == (200, "ok", None)
    assert second.status == 200
    assert heads[0].startswith(b"POST /hook HTTP/1.1\r\n")
    assert b"webhook-id: evt\r\n" in heads[0]
    assert b"Accept-Encoding: identity\r\n" in heads[0]
    assert heads[1].startswith(b"POST /a?b=%20c HTTP/1.1\r\n")
    assert not any(b"cookie" in head.lower() for head in heads)


async def test_a_kept_connection_that_was_closed() -> None:
    """Its server has read nothing of the request: it is sent once more, on another one."""
    served = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        served += 1
        await head_of(reader)
        writer.write(OK)
        await head_of(reader)  # and closes without an answer

    async with Served(once) as server, sender() as made:
        assert (await made.send(url_of(server), b"1", {})).status == 200
        assert (await made.send(url_of(server), b"2", {})).status == 200
    assert served == 2


async def test_a_connection_that_is_used_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts once among the connections that are kept, however often it was used."""
    monkeypatch.setattr("gateway.webhooks.sender.MOST_IDLE", 2)
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        served += 1
        await answering(OK)(reader, writer)

    async with Served(serve) as server, sender() as made:
        for _ in range(5):
            assert (await made.send(url_of(server), b"1", {})).status == 200
    assert served == 1


async def test_an_answer_after_the_end() -> None:
    """Its connection is closed: nobody would close it later."""
    asked, ended, gone = (asyncio.Event() for _ in range(3))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        asked.set()
        await ended.wait()
        writer.write(OK)
        with suppress(ConnectionError):
            await reader.read()
        gone.set()

    async with Served(serve) as server:
        async with sender() as made:
            sending = asyncio.create_task(made.send(url_of(server), b"1", {}))
            await asyncio.wait_for(asked.wait(), 20)
        ended.set()
        assert (await sending).status == 200
        # One that is kept is closed as well, later.
        await asyncio.wait_for(gone.wait(), IDLE_S / 2)


@pytest.mark.parametrize(
    ("answer", "status", "found"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        (
            b"HTTP/1.1 500 X\r\nContent-Length: 6\r\n\r\n\x1b[2J\xff\n",
            500,
            "?[2J\ufffd?",
        ),
        (
            b"HTTP/1.1 302 X\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
            302,
            "",
        ),
        (b"", 0, "the connection was closed before an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", 0, "the answer ended early"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", 0, "the answer is not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, 0, "the answer is not valid HTTP"),
    ],
)
async def test_answers(answer: bytes, status: int, found: str) -> None:
    """A redirect is not followed; what cannot be read is a failure, and nothing raises."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(answer)

    async with Served(serve) as server, sender() as made:
        got = await made.send(url_of(server), b"x", {})
    assert (got.status, got.found) == (status, found)


@pytest.mark.parametrize("length", [b"Content-Length: 10000000000", b"Transfer-Encoding: chunked"])
async def test_a_long_answer(length: bytes) -> None:
    """Little of it is read, and the connection is closed."""
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % length)
        part = b"x" * 65_536
        try:
            while True:
                writer.write(part if b"Content" in length else b"10000\r\n%b\r\n" % part)
                await writer.drain()
        except ConnectionError:
            closed.set()

    async with Served(serve) as server, sender() as made:
        got = await made.send(url_of(server), b"x", {})
        await asyncio.wait_for(closed.wait(), 20)
    assert (got.status, got.found) == (200, "x" * MOST_KEPT)
    assert MOST_READ > MOST_KEPT


@pytest.mark.parametrize("before", [b"X-A: ", b"Content-Length: 900\r\n\r\n", b"X-A: b\r\n\r\n"])
async def test_an_answer_that_drips(before: bytes) -> None:
    """The timeout is for all of it, not for each byte."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n" + before)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with Served(drip) as server, sender(total_s=0.3) as made:
        got = await made.send(url_of(server), b"x", {})
    assert (got.status, got.found) == (0, "no complete answer within 0.3 s")


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("http://127.0.0.1:{port}/", ()),
        ("http://[::1]:{port}/", ()),
        ("http://[::ffff:127.0.0.1]:{port}/", ()),
        ("http://0x7f.1:{port}/", ("127.0.0.1",)),
        ("http://inside.test:{port}/", ("127.0.0.1",)),
        ("http://inside.test:{port}/", ("10.0.0.1", "127.0.0.1")),
    ],
)
async def test_addresses_that_are_not_allowed(url: str, addresses: tuple[str, ...]) -> None:
    """Whether the URL has it or its name: nothing is connected, and no address is told."""
    connected = False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected = True

    resolve = Names(*addresses) if addresses else None
    async with Served(serve) as server, sender(Destinations(), resolve=resolve) as made:
        got = await made.send(url.format(port=server.port), b"x", {})
    assert (got.status, got.found) == (0, REFUSED)
    assert not connected


async def test_a_name_that_changes_its_address() -> None:
    """Each connection is judged by the address that it gets."""
    names = Names("127.0.0.1")

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    async with Served(once) as server, sender(resolve=names) as made:
        url = f"http://hook.test:{server.port}/"
        assert (await made.send(url, b"x", {})).status == 200
        names.addresses = ("10.0.0.1",)
        got = await made.send(url, b"x", {})
    assert (got.status, got.found) == (0, REFUSED)


@pytest.mark.parametrize("addresses", [("127.0.0.2", "127.0.0.1"), ("127.0.0.1", "127.0.0.2")])
@pytest.mark.parametrize("listens", [True, False])
async def test_a_name_with_an_inner_address(addresses: tuple[str, ...], listens: bool) -> None:
    """Only its allowed addresses are dialled, also if there is no connection to any of them."""
    reached: list[str] = []

    def at(host: str) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reached.append(host)
            await answering(OK)(reader, writer)

        return serve

    outside = Served(at("127.0.0.1"))
    inside = Served(at("127.0.0.2"), host="127.0.0.2", port=outside.port)
    allowed = Destinations(allowed=(ip_network("127.0.0.1/32"),))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(inside)
        if listens:
            await stack.enter_async_context(outside)
        made = await stack.enter_async_context(sender(allowed, resolve=Names(*addresses)))
        got = await made.send(f"http://hook.test:{outside.port}/", b"x", {})
    assert (got.status, reached) == ((200, ["127.0.0.1"]) if listens else (0, []))


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\0", "\x7f", "\x1b", "\t"])
async def test_a_header_with_a_control_character(end: str) -> None:
    """Nothing is sent: a receiver could take what follows it for a header, or for a request."""
    heads: list[bytes] = []
    async with Served(answering(OK, heads=heads)) as server, sender() as made:
        headers = {"webhook-id": f"evt{end}X-Admin: 1", "webhook-timestamp": "1"}
        assert (await made.send(url_of(server), b"x", headers)).status == 0
        assert heads == []
        assert (await made.send(url_of(server), b"x", {"webhook-id": "evt"})).status == 200


async def test_nothing_listens() -> None:
    async with Served(answering(OK)) as server:
        url = url_of(server)
    async with sender() as made:
        got = await made.send(url, b"x", {})
    assert (got.status, got.found) == (0, "the connection was refused")


async def test_certificates(tmp_path: Path) -> None:
    """Of the host, and of an authority that is trusted."""
    files = make_certificate(tmp_path, ["hook.test"])
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(files.certificate, files.key)
    trusting = ssl.create_default_context(cafile=files.ca)
    async with Served(answering(OK), tls=served) as server:
        urls = [f"https://{name}:{server.port}/" for name in ("hook.test", "other.test")]
        async with sender(tls=lambda: trusting, resolve=Names("127.0.0.1")) as made:
            assert (await made.send(urls[0], b"x", {})).status == 200
            got = await made.send(urls[1], b"x", {})
            assert got.found == "the certificate is not valid for this host"
        async with sender(resolve=Names("127.0.0.1")) as made:
            got = await made.send(urls[0], b"x", {})
            assert (got.status, got.found) == (0, "the certificate is not valid for this host")


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        (b"120", 120.0, 120.0),
        (b"0", 0.0, 0.0),
        (b"Wed, 21 Oct 2015 07:28:00 GMT", 0.0, 0.0),
        (b"Fri, 31 Dec 2100 23:59:59 GMT", 1e8, 1e10),
        (b"Fri, 31 Dec 2100 23:59:59 -0000", 1e8, 1e10),  # it is UTC, and names no zone
        (b"99999999999999999999", 1e9, 1e10),
        (b"soon", None, None),
        (b"-1", None, None),
        (b"Fri, 31 Dec 2100 23:59:59 GMT" + b" " * 100, 1e8, 1e10),  # space around a value is none
        (b"Fri, 31 Dec 2100 %b23:59:59 GMT" % (b" " * 100), None, None),
        (b"Mon, 01 Jan 2027 00:00:00 +%d" % 10**30, None, None),
        (b"Fri, 31 Dec 9999 23:59:59 -2359", 1e10, 1e12),
    ],
)
async def test_retry_after(value: bytes, least: float | None, most: float | None) -> None:
    text = b"HTTP/1.1 503 X\r\nRetry-After: %b\r\nContent-Length: 0\r\n\r\n" % value
    async with Served(answering(text)) as server, sender() as made:
        got = (await made.send(url_of(server), b"x", {})).retry_after_s
    if least is None or most is None:
        assert got is None
    else:
        assert got is not None
        assert least <= got <= most


def test_a_long_answer_over_tls(tmp_path: Path) -> None:
    """The connection ends at once, without a farewell that the other end could ignore."""
    files = make_certificate(tmp_path, ["127.0.0.1"])
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(files.certificate, files.key)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    def send_for_ever() -> int:
        """Write, and never read what the other end says; how many bytes."""
        written = 0
        with listening, served.wrap_socket(listening.accept()[0], server_side=True) as peer:
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
            with suppress(OSError):
                while written < TOO_MUCH:
                    peer.sendall(bytes(65536))
                    written += 65536
        return written

    async def send() -> int:
        trust = ssl.create_default_context(cafile=files.ca)
        sending = asyncio.ensure_future(asyncio.to_thread(send_for_ever))
        async with Sender(lambda: LOOPBACK, tls=lambda: trust) as made:
            answer = await made.send(f"https://127.0.0.1:{port}/", b"{}", {})
            assert answer.status == 200
            return await sending

    # The loop of couriers, which reads what comes before the farewell.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(send()) < TOO_MUCH


async def test_other_authorities(tmp_path: Path) -> None:
    """They hold at once, also where a connection to the receiver is kept."""
    files = make_certificate(tmp_path, ["127.0.0.1"])
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(files.certificate, files.key)
    trusted = [ssl.create_default_context(cafile=files.ca)]
    async with (
        Served(answering(OK), tls=served) as server,
        Sender(lambda: LOOPBACK, tls=lambda: trusted[-1]) as made,
    ):
        url = f"https://127.0.0.1:{server.port}/"
        assert (await made.send(url, b"{}", {})).status == 200
        trusted.append(ssl.create_default_context())
        answer = await made.send(url, b"{}", {})
        assert (answer.status, answer.found) == (0, "the certificate is not valid for this host")
