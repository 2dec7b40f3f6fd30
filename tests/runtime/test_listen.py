"""The listener with TLS: clients that verify the certificate, and a certificate that changes."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from ipaddress import ip_network
from math import inf
from pathlib import Path
from typing import Any

import pytest

from gateway.app import CannotStart, Gateway, Settings
from gateway.domain.policy import Bounds, Timeouts, Tls
from gateway.policies.load import load
from gateway.stores.redis.address import StoreAddress
from tests.kit.certificates import Certificate, make_certificate
from tests.kit.eventually import eventually
from tests.kit.policies import write_policies
from tests.kit.wire import TIMEOUT_S, Response, Wire


async def gateway_with(
    folder: Path,
    made: Certificate,
    *,
    listen_http: tuple[str, int] | None = None,
    **changes: Any,
) -> Gateway:
    policy = replace(
        load(write_policies(folder / "policies", "http://127.0.0.1:9")),
        **{"tls": Tls(str(made.certificate), str(made.key)), "hsts": "max-age=5", **changes},
    )
    settings = Settings(
        folder / "policies",
        listen=("127.0.0.1", 0),
        admin=None,
        store=StoreAddress("memory"),
        listen_http=listen_http,
    )
    gateway = Gateway(settings, policy=policy)
    await gateway.start()
    return gateway


async def health_over_tls(port: int, ca: Path) -> Response:
    context = ssl.create_default_context(cafile=str(ca))
    streams = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="gateway.test"
    )
    async with Wire(*streams) as wire:
        return await wire.request("GET", "/health")


async def test_tls(tmp_path: Path) -> None:
    """Clients that verify the certificate are served; the next ones get a renewed one."""
    made = make_certificate(tmp_path, ["gateway.test"])
    gateway = await gateway_with(tmp_path, made)
    try:
        response = await health_over_tls(gateway.port, made.ca)
        assert (response.status, response["Strict-Transport-Security"]) == (200, "max-age=5")
        renewed = make_certificate(tmp_path, ["gateway.test"])
        gateway.reload()

        async def is_shown() -> bool:
            try:
                return (await health_over_tls(gateway.port, renewed.ca)).status == 200
            except ssl.SSLCertVerificationError:
                return False

        await eventually(is_shown, "the renewed certificate is shown")
        async with await Wire.connect(gateway.port) as plain:
            await plain.send(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            await plain.read_end()
    finally:
        await gateway.stop()


async def test_no_certificate_no_start(tmp_path: Path) -> None:
    """With an unusable certificate the gateway does not start; the error has the reason."""
    made = make_certificate(tmp_path, ["gateway.test"])
    made.key.write_text("nonsense")
    with pytest.raises(CannotStart, match="server"):
        await gateway_with(tmp_path, made)


async def test_handshakes_are_bounded(tmp_path: Path) -> None:
    """Connections that never send a byte of TLS count from the start, and have a deadline."""
    made = make_certificate(tmp_path, ["gateway.test"])
    gateway = await gateway_with(
        tmp_path, made, bounds=Bounds(connections=20), timeouts=Timeouts(header_s=600.0)
    )
    try:
        silent = [await Wire.connect(gateway.port) for _ in range(60)]
        # Those beyond the bound are closed without a refusal, which would cost a handshake.
        ended = [asyncio.create_task(wire.read_end()) for wire in silent]
        await eventually(lambda: sum(task.done() for task in ended) == 40, "the others are closed")
        assert len(gateway._context.connections) == 20
        for connection in gateway._context.connections:
            connection.check_deadline(inf)
        await asyncio.wait_for(asyncio.gather(*ended), TIMEOUT_S)
        assert (await health_over_tls(gateway.port, made.ca)).status == 200
        for wire in silent:
            await wire.close()
    finally:
        await gateway.stop()


# -- the PROXY protocol before TLS -----------------------------------------------------------------

HEADERS = {
    "version 1": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
    "version 2": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([192, 0, 2, 1] * 2 + [1, 2, 3, 4]),
}
BEHIND_A_PROXY = {"proxy_protocol": True, "trusted_proxies": (ip_network("127.0.0.0/8"),)}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("piece", [1, 4096])
async def test_a_header_precedes_the_handshake(tmp_path: Path, header: bytes, piece: int) -> None:
    """It gives the client's address; the handshake and requests follow."""
    made = make_certificate(tmp_path, ["gateway.test"])
    gateway = await gateway_with(tmp_path, made, **BEHIND_A_PROXY)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        for at in range(0, len(header), piece):
            writer.write(header[at : at + piece])
            await writer.drain()
        context = ssl.create_default_context(cafile=str(made.ca))
        await writer.start_tls(context, server_hostname="gateway.test")
        async with Wire(reader, writer) as wire:
            assert (await wire.request("GET", "/health")).status == 200
            assert gateway._context.connections._of == {"192.0.2.1": 1}
            assert (await wire.request("GET", "/health")).status == 200
    finally:
        await gateway.stop()


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\0\x01", b"PROXY TCP4 " + b"1" * 5000],
    ids=["HTTP", "a handshake", "a long line"],
)
async def test_another_beginning_than_a_header(tmp_path: Path, sent: bytes) -> None:
    """It is closed without an answer, and counted as a refusal."""
    made = make_certificate(tmp_path, ["gateway.test"])
    gateway = await gateway_with(tmp_path, made, **BEHIND_A_PROXY)
    try:
        async with await Wire.connect(gateway.port) as wire:
            await wire.send(sent)
            await wire.read_end()
        assert gateway.metrics._refusals == {("bad_proxy_header",): 1}
        assert not gateway._context.connections._of
    finally:
        await gateway.stop()


async def test_a_header_that_does_not_end(tmp_path: Path) -> None:
    """Header and handshake have one deadline."""
    made = make_certificate(tmp_path, ["gateway.test"])
    gateway = await gateway_with(tmp_path, made, **BEHIND_A_PROXY)
    try:
        async with await Wire.connect(gateway.port) as wire:
            (connection,) = await accepted(gateway)
            deadline = connection.deadline
            await wire.send(b"PROXY ")
            transport = connection.transport
            await eventually(lambda: transport._before == b"PROXY ", "some of it was read")
            assert connection.deadline == deadline
            connection.check_deadline(deadline)
            await wire.read_end()
    finally:
        await gateway.stop()


async def accepted(gateway: Gateway) -> list[Any]:
    connections = gateway._context.connections
    await eventually(lambda: len(connections) == 1, "it was accepted")
    return list(connections)


async def test_without_a_proxy_there_is_no_header(tmp_path: Path) -> None:
    """Other peers than trusted proxies begin with the handshake."""
    made = make_certificate(tmp_path, ["gateway.test"])
    changes = {**BEHIND_A_PROXY, "trusted_proxies": (ip_network("10.0.0.0/8"),)}
    gateway = await gateway_with(tmp_path, made, **changes)
    try:
        assert (await health_over_tls(gateway.port, made.ca)).status == 200
    finally:
        await gateway.stop()
