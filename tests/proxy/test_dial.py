"""New connections: names looked up each time, every address tried, certificates verified."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.policy import Server, Upstream
from gateway.errors import UPSTREAM_UNREACHABLE
from gateway.proxy.dial import resolve
from tests.kit.certificates import make_certificate
from tests.kit.pools import ask, policy_of, pools_for, refused
from tests.kit.upstream import build_response
from tests.proxy.conftest import Start

Respond = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@asynccontextmanager
async def listening(
    respond: Respond, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    server = await asyncio.start_server(respond, host, port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(build_response(200, b"ok"))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.read(65536):
            pass
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_a_name_is_looked_up_for_each_connection() -> None:
    """A server that has moved is found by the next connection, without a restart."""
    places = iter((["127.0.0.1"], ["127.0.0.2"]))

    async def moving(host: str, port: int) -> list[str]:
        assert host == "api.test"
        return next(places)

    async with listening(answer_nothing) as port, listening(answer_nothing, "127.0.0.2", port):
        policy = policy_of(Upstream("api", (Server("http", "api.test", port),)))
        async with pools_for(policy, resolve=moving) as pools:
            found = [await ask(pools) for _ in range(2)]
            assert [one.transport.get_extra_info("peername")[0] for one in found] == [
                "127.0.0.1",
                "127.0.0.2",
            ]


async def test_every_address_of_a_name_is_tried() -> None:
    """An address that refuses is skipped; a name without an address is unreachable."""

    async def several(host: str, port: int) -> list[str]:
        return ["127.0.0.9", "127.0.0.8", "127.0.0.1"] if host == "api.test" else []

    async with listening(answer_nothing) as port:
        policy = policy_of(
            Upstream("api", (Server("http", "api.test", port),)),
            Upstream("lost", (Server("http", "lost.test", port),)),
        )
        async with pools_for(policy, resolve=several) as pools:
            connection = await ask(pools)
            assert connection.transport.get_extra_info("peername")[0] == "127.0.0.1"
            assert await refused(pools, "lost") is UPSTREAM_UNREACHABLE


async def test_the_systems_resolver() -> None:
    """Addresses are returned as they are, localhost is known, an invalid name is an OSError."""
    assert await resolve("192.0.2.1", 80) == ["192.0.2.1"]
    assert await resolve("::1", 80) == ["::1"]
    assert set(await resolve("localhost", 80)) & {"127.0.0.1", "::1"}
    with pytest.raises(OSError, match="not a valid host name"):
        await resolve("a" * 64 + ".test", 80)


def tls_of(certificate: Path, key: Path, names: list[str | None]) -> ssl.SSLContext:
    """A server's context, which records the names that are asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda made, name, _: names.append(name)
    return context


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_https_is_verified(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The requested name and a trusted authority; with anything else there is no connection."""
    made = make_certificate(tmp_path, ["api.test"])
    other = make_certificate(tmp_path, ["api.test"], "other")
    names: list[str | None] = []
    context = tls_of(made.certificate, made.key, names)
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    os.mkfifo(tmp_path / "pipe.pem")
    async with listening(answer_nothing, tls=context) as port:
        api, wrong = Server("https", "api.test", port), Server("https", "wrong.test", port)
        policy = policy_of(
            Upstream("api", (api,), ca=str(made.ca)),
            Upstream("name", (wrong,), ca=str(made.ca)),
            Upstream("authority", (api,), ca=str(other.ca)),
            Upstream("system", (api,)),
            Upstream("broken", (api,), ca=str(broken)),
            Upstream("absent", (api,), ca=str(tmp_path / "absent.pem")),
            Upstream("pipe", (api,), ca=str(tmp_path / "pipe.pem")),
        )
        async with pools_for(policy, resolve=loopback) as pools:
            connection = await ask(pools)
            assert names == ["api.test"]
            connection.finish(reusable=True)
            for name in ("name", "authority", "system", "broken", "absent", "pipe"):
                assert await refused(pools, name) is UPSTREAM_UNREACHABLE
            assert "certificate verify failed" in caplog.text
            # A connection that one authority verified is not used after a change to another.
            pools.use(policy_of(Upstream("api", (api,), ca=str(other.ca))))
            assert connection.transport.is_closing()
            assert await refused(pools) is UPSTREAM_UNREACHABLE


async def test_a_handshake_that_never_ends(tmp_path: Path) -> None:
    """An address that does not respond uses only its share of the time."""
    made = make_certificate(tmp_path, ["api.test"])

    async def two(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    context = tls_of(made.certificate, made.key, [])
    async with (
        listening(answer_ok, tls=context) as port,
        listening(answer_nothing, "127.0.0.2", port),
    ):
        server = Server("https", "api.test", port)
        policy = policy_of(Upstream("api", (server,), ca=str(made.ca), connect_s=3.0))
        async with pools_for(policy, resolve=two) as pools:
            connection = await ask(pools)
            assert connection.transport.get_extra_info("peername")[0] == "127.0.0.1"


async def test_an_exchange_over_https(start: Start, tmp_path: Path) -> None:
    """Requests go to an https server like to any other."""
    made = make_certificate(tmp_path, ["localhost"])
    async with listening(answer_ok, tls=tls_of(made.certificate, made.key, [])) as port:
        upstream = Upstream("api", (Server("https", "localhost", port),), ca=str(made.ca))
        bench = await start(upstreams={"api": upstream})
        async with await bench.connect() as wire:
            for _ in range(2):
                assert (await wire.request("GET", "/api/x", bench.auth)).body == b"ok"


async def test_a_connection_that_takes_too_long() -> None:
    """A lookup that never ends is limited by the connection's timeout."""

    async def endless(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    upstream = Upstream("api", (Server("http", "a.test", 1),), connect_s=0.05)
    async with pools_for(policy_of(upstream), resolve=endless) as pools:
        assert await refused(pools) is UPSTREAM_UNREACHABLE
