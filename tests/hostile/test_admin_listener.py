"""Attacks on the admin listener of a gateway with few descriptors."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time

import pytest

from gateway.admin.listener import MOST_CONNECTIONS
from tests.hostile.conftest import Serve
from tests.kit import proc
from tests.kit.eventually import eventually
from tests.kit.raw_client import RawClient
from tests.kit.wire import Response, Wire, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: As many descriptors as some systems allow a process, and as many slow clients.
DESCRIPTORS = 256
CLIENTS = 1_000
HOST = [("Host", "127.0.0.1")]
SENT = {
    "silence": b"",
    "heads": b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "bodies": b"POST /console/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 99\r\n\r\nname=",
}


async def probed(port: int) -> Response:
    return await fetch(port, "/healthz", headers=HOST)


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
async def test_slow_clients_block_no_other_client(serve: Serve, sent: bytes) -> None:
    """Probes and scrapes are answered, and a worker that dies meanwhile is replaced."""
    gateway = await serve("http://127.0.0.1:9")
    pid = gateway.process.pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    clients: list[RawClient] = []
    try:
        for number in range(CLIENTS):
            clients.append(client := await RawClient.connect(gateway.admin_port))
            if sent:
                await client.send(sent)
            if number % 100 == 99:
                assert (await probed(gateway.admin_port)).status == 200
        assert proc.descriptors(pid) < MOST_CONNECTIONS + 64
        assert "gateway_workers" in await gateway.metrics()
        killed = gateway.worker_pid
        os.kill(killed, signal.SIGKILL)

        def is_replaced() -> bool:
            return gateway.worker_pids() not in ([], [killed])

        await eventually(is_replaced, "another worker is there")
        await gateway.ready()
    finally:
        for client in clients:
            client.close()


async def test_unread_scrapes_are_dropped(serve: Serve) -> None:
    """Unread scrapes keep no memory, and no connection that other clients need."""
    gateway = await serve("http://127.0.0.1:9")
    request = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    clients: list[RawClient] = []
    before = proc.rss_bytes(gateway.process.pid)
    try:
        for _ in range(MOST_CONNECTIONS * 2):
            clients.append(client := await RawClient.connect(gateway.admin_port))
            client.send_what_fits(request * 2_000)
        for _ in range(20):
            assert (await probed(gateway.admin_port)).status == 200
        grown = proc.peak_rss_bytes(gateway.process.pid) - before
        print(f"\n{len(clients)} that do not read: {grown / 2**20:.1f} MiB")
        assert grown < MOST_CONNECTIONS * 512 * 1024
    finally:
        for client in clients:
            client.close()


async def test_a_flood_of_scrapes_blocks_no_probe(serve: Serve) -> None:
    """More at once than there may be connections. The probe has another address."""
    gateway = await serve("http://127.0.0.1:9")
    scraping = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.hostile.scrapers"),
        *(str(gateway.admin_port), str(MOST_CONNECTIONS * 2)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert scraping.stdout is not None
        assert await scraping.stdout.readline() == b"scraping\n"
        await eventually(lambda: "connections are in use" in gateway.output(), "all are in use")
        for path in ("/healthz", "/readyz", "/metrics") * 20:
            async with await Wire.connect(gateway.admin_port, local="127.0.0.2") as wire:
                assert (await wire.request("GET", path, HOST)).status == 200
    finally:
        scraping.kill()
        await scraping.wait()


async def test_a_flood_of_guesses_blocks_no_valid_token(serve: Serve) -> None:
    """The right token passes among them, from the same address; the log has a line a minute."""
    gateway = await serve("http://127.0.0.1:9")
    began_s = time.monotonic()
    is_over = False

    async def guess() -> None:
        while not is_over:
            wrong = "wrong-wrong-wrong"
            answer = await fetch(gateway.admin_port, "/admin/v1/keys", key=wrong, headers=HOST)
            assert answer.status in {401, 429}

    guessing = [asyncio.ensure_future(guess()) for _ in range(8)]
    try:
        for _ in range(50):
            answer = await fetch(
                gateway.admin_port, "/admin/v1/keys", key=gateway.admin_token, headers=HOST
            )
            assert answer.status == 503  # memory:// is inside the worker; the token was right
            assert answer.json()["code"] == "STORE_NOT_SHARED"
    finally:
        is_over = True
        await asyncio.gather(*guessing)
    lines = [line for line in gateway.output().splitlines() if "wrong token" in line]
    assert 1 <= len(lines) <= 1 + (time.monotonic() - began_s) // 60
