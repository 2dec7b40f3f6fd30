"""Clients that close at every moment and in every way: nothing of them stays.

Each moment is tried with reset, close and half-close, some 2,000 times in all. No deadline of the
gateway passes: what ends, ends because the close was detected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from tests.hostile.conftest import LONG, Serve, at_rest, open_connections
from tests.kit import proc
from tests.kit.eventually import eventually
from tests.kit.raw_client import RawClient
from tests.kit.upstream import Exchange, ScriptedUpstream, build_response
from tests.kit.wire import build_request

pytestmark = pytest.mark.asyncio(loop_scope="session")

MANNERS = ("reset", "close", "half_close")
EACH, FEW = 160, 14
#: Two kernels and the gateway buffer less than this of an unread body.
MORE_THAN_FITS = 32 * 1024 * 1024


class Watching(ScriptedUpstream):
    """Sees its exchanges begin and end. closed: the clients have closed, and all may be read.

    begins: what it does with an exchange before its client closes
    """

    def __init__(self) -> None:
        super().__init__(self._watch)
        self.begins: Callable[[Exchange], Awaitable[None]] = self.waits
        self.begun = 0
        self.ended = 0
        self.closed = asyncio.Event()

    async def waits(self, exchange: Exchange) -> None:
        """Send nothing."""

    async def answers_a_part(self, exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")

    async def answers_more_than_fits(self, exchange: Exchange) -> None:
        await exchange.write(
            f"HTTP/1.1 200 OK\r\nContent-Length: {MORE_THAN_FITS}\r\n\r\n".encode()
        )
        for _ in range(MORE_THAN_FITS // 65536):
            await exchange.write(bytes(65536))

    async def _watch(self, exchange: Exchange) -> None:
        if exchange.request.target == "/quick":
            await exchange.write(build_response())
            return
        self.begun += 1
        try:
            await self.begins(exchange)
            await self.closed.wait()
            await exchange.ended()
            raise ConnectionError
        finally:
            self.ended += 1


@pytest_asyncio.fixture(loop_scope="session")
async def upstream() -> AsyncIterator[Watching]:
    upstream = Watching()
    async with upstream:
        yield upstream


async def in_the_head(client: RawClient, upstream: Watching) -> None:
    await client.send(b"GET /x HTTP/1.1\r\nHost: gateway.test\r\nX-Ha")


async def in_the_body(client: RawClient, upstream: Watching) -> None:
    await client.send(build_request("POST", "/x", [("Content-Length", "1000")]) + b"a part")


async def in_a_body_that_is_held_back(client: RawClient, upstream: Watching) -> None:
    await client.send(build_request("POST", "/x", [("Transfer-Encoding", "chunked")]))
    piece = b"8000\r\n%b\r\n" % bytes(0x8000)
    unmoved = 0
    while unmoved < 3:
        unmoved = 0 if client.send_what_fits(piece) else unmoved + 1
        await asyncio.sleep(0.02)


async def while_waiting(client: RawClient, upstream: Watching) -> None:
    await client.send(build_request("GET", "/x"))


async def in_the_answer(client: RawClient, upstream: Watching) -> None:
    upstream.begins = upstream.answers_a_part
    await client.send(build_request("GET", "/x"))
    await client.read_until(b"first")


async def in_an_answer_that_is_held_back(client: RawClient, upstream: Watching) -> None:
    upstream.begins = upstream.answers_more_than_fits
    await client.send(build_request("GET", "/x"))
    await client.read_until(b"\r\n\r\n")


Moment = Callable[[RawClient, Watching], Awaitable[None]]
HELD_BACK: set[Moment] = {in_a_body_that_is_held_back, in_an_answer_that_is_held_back}


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize(
    ("moment", "reaches_upstream"),
    [
        (in_the_head, False),
        (in_the_body, True),
        (in_a_body_that_is_held_back, True),
        (while_waiting, True),
        (in_the_answer, True),
        (in_an_answer_that_is_held_back, True),
    ],
)
async def test_a_client_that_closes_leaves_nothing(
    upstream: Watching, serve: Serve, moment: Moment, reaches_upstream: bool, manner: str
) -> None:
    """Its upstream exchange ends, and descriptors and requests in flight are as before."""
    # Unread bytes fill the kernel's buffers: fewer of those.
    count = FEW if moment in HELD_BACK else EACH
    gateway = await serve(upstream.url, gateway=f"{LONG}bounds: {{body: 1GiB}}\n")
    pid = gateway.worker_pid
    assert (await gateway.fetch("/quick")).status == 200
    await at_rest(gateway)
    before = proc.descriptors(pid)
    clients = [await RawClient.connect(gateway.port) for _ in range(count)]
    try:
        await asyncio.gather(*(moment(client, upstream) for client in clients))
        if reaches_upstream:
            await eventually(lambda: upstream.begun == count, "all have reached the upstream")

        async def all_are_in() -> bool:
            return await open_connections(gateway, "downstream") == count

        # The kernel completes a connection before the gateway accepts it.
        await eventually(all_are_in, "all have been accepted")
        since = time.monotonic()
        for client in clients:
            getattr(client, manner)()
        if moment is in_a_body_that_is_held_back and manner != "reset":
            # The FIN is behind bytes that are not read. A reset is not.
            upstream.closed.set()
        await at_rest(gateway)
        upstream.closed.set()
        await eventually(lambda: upstream.ended == upstream.begun, "the upstream sees all ended")
        await eventually(lambda: proc.descriptors(pid) <= before, "all descriptors are closed")
        print(
            f"\n{count} times {manner} {moment.__name__}: over in {time.monotonic() - since:.2f} s"
        )
    finally:
        for client in clients:
            client.close()
    assert (await gateway.fetch("/quick")).status == 200
