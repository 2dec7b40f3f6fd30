"""New connections: every address of a target tried, certificates verified."""

from __future__ import annotations

import asyncio
import os
import ssl
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import trustme

from gateway.domain.upstreams import HealthCheck, Server, Upstream
from gateway.errors import UPSTREAM_UNREACHABLE
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.listening import Served
from tests.kit.pools import ask, names, policy_of, pools_for, refused
from tests.kit.upstream import build_response
from tests.proxy.conftest import Start


async def answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(build_response(200, b"ok"))


async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(65536):
        pass


async def test_each_address_of_a_target_is_tried() -> None:
    """An address that refuses is skipped: localhost is one target with two addresses."""
    known = {"localhost": ["127.0.0.9", "127.0.0.8", "127.0.0.10"]}
    async with Served(answer_nothing, host="127.0.0.10") as served:
        policy = policy_of(Upstream("api", (Server("http", "localhost", served.port),)))
        async with pools_for(policy, look_up=names(known)) as pools:
            connection = await ask(pools)
            assert connection.transport.get_extra_info("peername")[0] == "127.0.0.10"


def tls_of(certificate: Path, key: Path, names: list[str | None]) -> ssl.SSLContext:
    """A server's context, which records the names that are asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda made, name, _: names.append(name)
    return context


async def test_https_is_verified(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The requested name and a trusted authority; with anything else there is no connection."""
    made = make_certificate(tmp_path, ["api.test"])
    other = make_certificate(tmp_path, ["api.test"], "other")
    asked: list[str | None] = []
    context = tls_of(made.certificate, made.key, asked)
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    os.mkfifo(tmp_path / "pipe.pem")
    async with Served(answer_nothing, tls=context) as served:
        api = Server("https", "api.test", served.port)
        wrong = Server("https", "wrong.test", served.port)
        policy = policy_of(
            Upstream("api", (api,), ca=str(made.ca)),
            Upstream("name", (wrong,), ca=str(made.ca)),
            Upstream("authority", (api,), ca=str(other.ca)),
            Upstream("system", (api,)),
            Upstream("broken", (api,), ca=str(broken)),
            Upstream("absent", (api,), ca=str(tmp_path / "absent.pem")),
            Upstream("pipe", (api,), ca=str(tmp_path / "pipe.pem")),
        )
        known = {"api.test": ["127.0.0.1"], "wrong.test": ["127.0.0.1"]}
        async with pools_for(policy, look_up=names(known)) as pools:
            connection = await ask(pools)
            assert asked == ["api.test"]
            connection.finish(reusable=True)
            for name in ("name", "authority", "system", "broken", "absent", "pipe"):
                assert await refused(pools, name) is UPSTREAM_UNREACHABLE
            assert "certificate verify failed" in caplog.text
            # A connection that one authority verified is not used after a change to another.
            pools.use(policy_of(Upstream("api", (api,), ca=str(other.ca))))
            assert connection.transport.is_closing()
            assert await refused(pools) is UPSTREAM_UNREACHABLE


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("", "api.test"),
        ("api.test:{port}", "api.test"),
        ("shop.test", "shop.test"),
        ("shop.test:8443", "shop.test"),
    ],
)
async def test_the_name_that_is_verified(tmp_path: Path, asked: str, name: str) -> None:
    """The one of the Host that the policy says; the server's own, if clients choose the Host."""
    names_of = names({"api.test": ["127.0.0.1"]})
    seen: list[str | None] = []
    made = make_certificate(tmp_path, [name])
    async with Served(answer_nothing, tls=tls_of(made.certificate, made.key, seen)) as served:
        server = Server("https", "api.test", served.port, asked=asked.format(port=served.port))
        policy = policy_of(Upstream("api", (server,), ca=str(made.ca)))
        async with pools_for(policy, look_up=names_of) as pools:
            await ask(pools)
            assert seen == [name]
            wrong = replace(server, asked="other.test")
            pools.use(policy_of(Upstream("api", (wrong,), ca=str(made.ca))))
            assert await refused(pools) is UPSTREAM_UNREACHABLE
            assert seen[1:] == ["other.test"]


async def test_a_handshake_that_never_ends(tmp_path: Path) -> None:
    """An address that does not respond uses only its share of the time."""
    made = make_certificate(tmp_path, ["localhost"])
    context = tls_of(made.certificate, made.key, [])
    async with (
        Served(answer_ok, host="127.0.0.2", tls=context) as served,
        Served(answer_nothing, port=served.port),
    ):
        server = Server("https", "localhost", served.port)
        policy = policy_of(Upstream("api", (server,), ca=str(made.ca), connect_s=3.0))
        async with pools_for(
            policy, look_up=names({"localhost": ["127.0.0.1", "127.0.0.2"]})
        ) as pools:
            connection = await ask(pools)
            assert connection.transport.get_extra_info("peername")[0] == "127.0.0.2"


async def test_the_reason_of_a_timeout(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The exception has no text: its name is logged."""
    made = make_certificate(tmp_path, ["localhost"])
    async with Served(answer_nothing) as served:
        server = Server("https", "127.0.0.1", served.port)
        policy = policy_of(Upstream("api", (server,), ca=str(made.ca), connect_s=0.05))
        async with pools_for(policy) as pools:
            assert await refused(pools) is UPSTREAM_UNREACHABLE
    assert f"no connection to 127.0.0.1:{served.port}: TimeoutError" in caplog.text


async def test_an_exchange_over_https(start: Start, tmp_path: Path) -> None:
    """Requests go to an https server like to any other."""
    made = make_certificate(tmp_path, ["localhost"])
    async with Served(answer_ok, tls=tls_of(made.certificate, made.key, [])) as served:
        upstream = Upstream("api", (Server("https", "localhost", served.port),), ca=str(made.ca))
        bench = await start(upstreams={"api": upstream})
        async with await bench.connect() as wire:
            for _ in range(2):
                assert (await wire.request("GET", "/api/x", bench.auth)).body == b"ok"


async def test_a_client_certificate(start: Start, tmp_path: Path) -> None:
    """A server that requires one gets it, in health checks as well; without it, the answer is 502.

    A changed file is used by new connections.
    """
    made = make_certificate(tmp_path, ["localhost"])
    client = make_certificate(tmp_path, ["one.test"], "client")
    context = tls_of(made.certificate, made.key, [])
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(client.ca)
    seen: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        names = writer.get_extra_info("peercert")["subjectAltName"]
        while True:
            target = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            seen.append(f"{names[0][1]} {target}")
            writer.write(build_response(200, b"ok"))

    async with Served(answer, tls=context) as served:
        plain = Upstream("api", (Server("https", "localhost", served.port),), ca=str(made.ca))
        own = replace(
            plain,
            client_certificate=str(client.certificate),
            client_key=str(client.key),
            health=HealthCheck("/up", interval_s=300.0),
        )
        bench = await start(upstreams={"api": own})
        pools, policy = bench.gateway._context.pools, bench.gateway._policy
        async with await bench.connect() as wire:

            async def request() -> int:
                return (await wire.request("GET", "/api/x", bench.auth)).status

            assert await request() == 200
            await eventually(lambda: "one.test /up" in seen, "it is checked")
            assert "one.test /api/x" in seen
            authority = trustme.CA()
            issued = authority.issue_cert("two.test")
            context.load_verify_locations(cadata=authority.cert_pem.bytes().decode())
            issued.cert_chain_pems[0].write_to_path(client.certificate)
            issued.private_key_pem.write_to_path(client.key)
            pools.use(policy)
            pools.close_idle(inf)
            assert await request() == 200
            assert seen[-1] == "two.test /api/x"
            # Connections for which we identified ourselves otherwise are not used any more.
            pools.use(replace(policy, upstreams={"api": plain}))
            assert await request() == 502


async def test_a_client_certificate_that_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its server cannot be used, and the log says why; the rest of the gateway works."""
    made = make_certificate(tmp_path, ["localhost"])
    other = make_certificate(tmp_path, ["localhost"], "other")
    async with Served(answer_ok, tls=tls_of(made.certificate, made.key, [])) as served:
        good = Upstream("good", (Server("https", "localhost", served.port),), ca=str(made.ca))
        bad = replace(
            good, name="api", client_certificate=str(made.certificate), client_key=str(other.key)
        )
        async with pools_for(policy_of(good, bad)) as pools:
            assert await refused(pools) is UPSTREAM_UNREACHABLE
            (await ask(pools, "good")).close()
        assert "trusting no certificate: KEY_VALUES_MISMATCH" in caplog.text
