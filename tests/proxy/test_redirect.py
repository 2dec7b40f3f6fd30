"""Connections of plain HTTP that are redirected: answers, bounds, deadlines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from math import inf
from pathlib import Path
from typing import Any

import pytest

from gateway.app import Gateway
from gateway.domain.key_format import mint
from gateway.domain.policy import Bounds, Timeouts
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.wire import Wire
from tests.runtime.test_listen import gateway_with, health_over_tls

GET = b"GET /a?b HTTP/1.1\r\nHost: gateway.test\r\n\r\n"


@asynccontextmanager
async def redirecting(folder: Path, **changes: Any) -> AsyncIterator[Gateway]:
    made = make_certificate(folder, ["gateway.test"])
    gateway = await gateway_with(folder, made, listen_http=("127.0.0.1", 0), **changes)
    try:
        yield gateway
        # Nothing of a closed connection is counted any more.
        connections = gateway._context.connections
        await eventually(lambda: not len(connections) and not connections._of, "all have ended")
    finally:
        await gateway.stop()


async def read_all(wire: Wire) -> bytes:
    """All that arrives until the end, which may be a reset."""
    read = b""
    with contextlib.suppress(ConnectionError):
        while data := await wire.read_some():
            read += data
    return read


async def sent(gateway: Gateway, data: bytes) -> bytes:
    async with await Wire.connect(gateway.redirects.port) as wire:
        await wire.send(data)
        return await read_all(wire)


async def test_a_redirect(tmp_path: Path) -> None:
    """308 with the same path and query, and the end; also with a body, and in single bytes."""
    async with redirecting(tmp_path, hsts="max-age=5") as gateway:
        answer = await sent(gateway, GET)
        assert answer.startswith(b"HTTP/1.1 308 Permanent Redirect\r\n")
        assert b"\r\nLocation: https://gateway.test/a?b\r\n" in answer
        assert b"\r\nConnection: close\r\n" in answer
        assert b"Strict-Transport-Security" not in answer  # RFC 6797, 7.2
        body = b"POST / HTTP/1.1\r\nHost: a:80\r\nContent-Length: 9999\r\n\r\n" + bytes(9999)
        port = gateway.port
        assert b"\r\nLocation: https://a:%d/\r\n" % port in await sent(gateway, body)
        async with await Wire.connect(gateway.redirects.port) as wire:
            for byte in b"\r\n" + GET:
                await wire.send(bytes([byte]))
            assert (await read_all(wire)).startswith(b"HTTP/1.1 308 ")
        assert (await health_over_tls(gateway.port, tmp_path / "server-ca.pem")).status == 200


async def test_keys_are_neither_read_nor_echoed(tmp_path: Path) -> None:
    """A key in a header is not looked at; one in the URL is refused."""
    key = max(mint("production", lambda most: most // 2), key=len).encode()
    async with redirecting(tmp_path) as gateway:
        lines = b"\r\nAuthorization: Bearer %b\r\nX: %b\r\n\r\n" % (key, key)
        answer = await sent(gateway, GET.removesuffix(b"\r\n\r\n") + lines)
        assert answer.startswith(b"HTTP/1.1 308 ")
        assert key not in answer
        answer = await sent(gateway, GET.replace(b"?b", b"?key=" + key))
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert key not in answer
        assert b"The URL contains an API key" in answer
        assert not gateway.metrics._auth_failures


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\0\r\n\r\n", b"400"),
        (b"GET /%b HTTP/1.1\r\n" % (b"a" * 50_000), b"431"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 50_000 + b"\r\n\r\n", b"431"),
    ],
    ids=["no host", "TLS", "a long line", "a long header"],
)
async def test_refusals(tmp_path: Path, data: bytes, status: bytes) -> None:
    """They say why, in JSON, and are counted."""
    async with redirecting(tmp_path) as gateway:
        answer = await sent(gateway, data)
        assert answer.startswith(b"HTTP/1.1 %b " % status)
        assert b"Location" not in answer
        assert b'"code": "' in answer
        assert sum(gateway.metrics._refusals.values()) == 1


async def test_bounds(tmp_path: Path) -> None:
    """Its connections count with the others, in all and by address."""
    bounds = Bounds(connections_per_address=3)
    async with redirecting(tmp_path, bounds=bounds) as gateway:
        wires = [await Wire.connect(gateway.redirects.port) for _ in range(2)]
        wires.append(await Wire.connect(gateway.port))
        await eventually(lambda: len(gateway._context.connections) == 3, "all were accepted")
        assert await sent(gateway, GET) == b""
        for wire in wires:
            await wire.close()


async def one_of(gateway: Gateway, has: Callable[[Any], bool]) -> Any:
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = [each for each in gateway._context.connections if has(each)]
        return len(found) == 1

    await eventually(is_there, "a connection")
    return found[0]


async def test_deadlines(tmp_path: Path) -> None:
    """A head has `timeouts.header`; without a byte there is no answer. An answered one lingers."""
    async with redirecting(tmp_path, timeouts=Timeouts(header_s=600.0)) as gateway:
        for data, expected in ((b"", b""), (b"GET /", b"HTTP/1.1 408 ")):
            async with await Wire.connect(gateway.redirects.port) as wire:
                await wire.send(data)
                connection = await one_of(gateway, lambda each, data=data: each._buffer == data)
                connection.check_deadline(asyncio.get_running_loop().time())
                assert not connection.transport.is_closing()
                connection.check_deadline(connection.deadline)
                read = asyncio.create_task(read_all(wire))
                connection.check_deadline(inf)
                assert (await read).startswith(expected)


async def test_memory(tmp_path: Path) -> None:
    """Heads that do not end count towards `bounds.memory`; the oldest are cut off."""
    async with redirecting(tmp_path, bounds=Bounds(memory_bytes=64 * 1024)) as gateway:
        wires = [await Wire.connect(gateway.redirects.port) for _ in range(8)]
        for wire in wires:
            await wire.send(b"GET /" + b"a" * 20_000)
        await eventually(lambda: gateway.metrics._shed > 0, "some are cut off")
        for wire in wires:
            await wire.close()


async def test_the_proxy_protocol(tmp_path: Path) -> None:
    """Trusted proxies begin with its header here, too."""
    changes = {"proxy_protocol": True, "trusted_proxies": (ip_network("127.0.0.0/8"),)}
    async with redirecting(tmp_path, **changes) as gateway:
        header = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 80\r\n"
        assert (await sent(gateway, header + GET)).startswith(b"HTTP/1.1 308 ")
        assert (await sent(gateway, GET)).startswith(b"HTTP/1.1 400 ")
        async with await Wire.connect(gateway.redirects.port) as wire:
            await wire.send(header)
            counted = gateway._context.connections._of
            await eventually(lambda: counted == {"192.0.2.1": 1}, "the client is counted")
