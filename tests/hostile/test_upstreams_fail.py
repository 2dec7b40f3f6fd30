"""Upstreams that are killed, stopped and started again, and that reset within an answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.hostile.backend import Backend
from tests.hostile.conftest import LONG, PLANS, ROUTES, Serve, at_rest, open_connections
from tests.kit import proc
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.policies import write_policies
from tests.kit.raw_client import RawClient
from tests.kit.wire import Response, Wire, WireError, build_request

pytestmark = pytest.mark.asyncio(loop_scope="session")

Pair = tuple[ServedGateway, Backend]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def _pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    folder = tmp_path_factory.mktemp("gateway")
    async with Backend() as backend:
        texts = {"gateway": LONG, "plans": PLANS, "routes": ROUTES}
        policies = write_policies(folder / "policies", backend.url, **texts)
        async with ServedGateway(folder, policies, "memory://") as gateway:
            yield gateway, backend


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(_pair: Pair) -> AsyncIterator[ServedGateway]:
    """One gateway for all of these tests, in front of an upstream that is restarted after each."""
    gateway, backend = _pair
    yield gateway
    await backend.revive()


@pytest.fixture
def backend(_pair: Pair) -> Backend:
    """Its upstream."""
    return _pair[1]


BRIEF = "timeouts: {response: 500ms, connect: 2s}\n"


def code(answer: Response) -> tuple[int, str]:
    return answer.status, answer.json()["code"]


async def asking(gateway: ServedGateway, count: int) -> list[Wire]:
    """A number of clients whose requests the upstream has, and which must not be sent twice."""
    wires = [await Wire.connect(gateway.port) for _ in range(count)]
    for wire in wires:
        await wire.send(build_request("POST", "/never", body=b"{}"))

    async def all_sent() -> bool:
        # An idle connection is used before a new one is opened.
        return await open_connections(gateway, "upstream") >= count

    await eventually(all_sent, "the upstream has all requests")
    return wires


async def test_a_killed_upstream_is_502_until_its_restart(
    gateway: ServedGateway, backend: Backend
) -> None:
    """Each request in flight gets its 502, each new one too; 200 after the restart."""
    for method in ("GET", "POST"):
        assert (await gateway.fetch("/short", method=method, body=b"{}")).status == 200
    wires = await asking(gateway, 50)
    backend.kill()
    for wire in wires:
        assert code(await wire.read_response()) == (502, "UPSTREAM_CLOSED")
        await wire.close()
    for method in ("GET", "POST"):
        answer = await gateway.fetch("/short", method=method, body=b"{}")
        assert code(answer) == (502, "UPSTREAM_UNREACHABLE")
    await backend.start()
    for method in ("GET", "POST"):
        assert (await gateway.fetch("/short", method=method, body=b"{}")).status == 200


async def test_a_restart_between_requests_is_not_noticed(
    gateway: ServedGateway, backend: Backend
) -> None:
    """Idle connections ended with it; the next requests open new ones."""
    async with await Wire.connect(gateway.port) as wire:
        for _ in range(5):
            assert (await wire.request("GET", "/short")).status == 200
            assert (await wire.request("POST", "/short", body=b"{}")).status == 200
            backend.kill()
            await backend.start()


async def test_a_stopped_upstream_is_504_until_it_resumes(
    gateway: ServedGateway, backend: Backend, serve: Serve
) -> None:
    """The kernel still accepts connections for it, but it does not answer: 504; then 200 again."""
    brief = await serve(backend.url, gateway=BRIEF)

    async def answers_in_time() -> bool:
        return (await brief.fetch("/short")).status == 200

    await eventually(answers_in_time, "the upstream answers")
    backend.pause()
    answers = await asyncio.gather(*(brief.fetch("/short") for _ in range(20)))
    assert {code(answer) for answer in answers} == {(504, "UPSTREAM_TIMEOUT")}
    backend.resume()
    await eventually(answers_in_time, "it answers again")


async def test_a_reset_in_the_head_is_502(gateway: ServedGateway) -> None:
    """Half a head is no answer; the client's connection stays, and the next answer is complete."""
    async with await Wire.connect(gateway.port) as wire:
        for _ in range(3):
            assert code(await wire.request("GET", "/head")) == (502, "UPSTREAM_CLOSED")
            assert (await wire.request("GET", "/short")).body == b"short"


@pytest.mark.parametrize("path", ["/body", "/chunk", "/half"])
async def test_half_a_body_never_looks_complete(gateway: ServedGateway, path: str) -> None:
    """The client sees its connection end within the body."""
    for _ in range(3):
        async with await Wire.connect(gateway.port) as wire:
            with pytest.raises((WireError, ConnectionError)):
                await wire.request("GET", path)
    assert (await gateway.fetch("/short")).status == 200


async def test_a_body_without_a_length_ends_in_a_reset(gateway: ServedGateway) -> None:
    """For an HTTP/1.0 client, the connection ends the body: a truncated one ends in a reset."""
    client = await RawClient.connect(gateway.port)
    try:
        await client.send(b"GET /chunk HTTP/1.0\r\nHost: gateway.test\r\n\r\n")
        assert b"Content-Length" not in await client.read_until(b"\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await client.read_to_end()
    finally:
        client.close()


async def test_failures_leave_nothing_open(gateway: ServedGateway) -> None:
    """After hundreds of broken answers the gateway holds the descriptors it held before."""
    pid = gateway.worker_pid
    assert (await gateway.fetch("/short")).status == 200
    await at_rest(gateway)
    before = proc.descriptors(pid)

    async def fail(path: str) -> None:
        async with await Wire.connect(gateway.port) as wire:
            with contextlib.suppress(WireError, ConnectionError):
                assert (await wire.request("GET", path)).status == 502

    for _ in range(10):
        paths = ("/head", "/body", "/chunk", "/half") * 10
        await asyncio.gather(*(fail(path) for path in paths))
    await at_rest(gateway)
    await eventually(lambda: proc.descriptors(pid) <= before, "all descriptors are closed")
