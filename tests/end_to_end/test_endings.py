"""How it ends: SIGTERM completes requests; and what clients get when a part fails."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from gateway.stores.keys.store import RedisKeyStore
from tests.end_to_end.conftest import Serve, Site, add_key
from tests.end_to_end.test_answers import assert_rate_headers, assert_refused
from tests.end_to_end.test_observed import counted
from tests.kit.eventually import eventually
from tests.kit.gateway import run_command
from tests.kit.policies import write_policies
from tests.kit.ports import free_port
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.upstream import Exchange, ScriptedUpstream, build_response
from tests.kit.wire import Wire, bearer, build_request

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_sigterm_answers_what_is_in_flight(site: Site, serve: Serve) -> None:
    """The upstream's pending answer arrives and ends its connection; then exit 0."""
    gateway = await serve()
    release = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await release.wait()
        await exchange.write(build_response(200, b"in time"))

    site.upstream.script = script
    async with await Wire.connect(gateway.port) as wire:
        await wire.send(build_request("GET", "/api/x", bearer(await site.key())))
        await site.upstream.received()
        gateway.signal(signal.SIGTERM)

        async def closed() -> bool:
            try:
                await (await Wire.connect(gateway.port)).close()
            except OSError:
                return True
            return False

        await eventually(closed, "no new connection is accepted")
        release.set()
        answer = await wire.read_response()
        assert (answer.status, answer.body, answer.closes) == (200, b"in time", True)
        await wire.read_end()
    assert await gateway.ended() == 0


async def test_sigterm_does_not_wait_for_idle_clients(site: Site, serve: Serve) -> None:
    """An idle connection is closed at once, not at the end of the drain."""
    gateway = await serve(gateway="timeouts: {drain: 10m}\n")
    async with await Wire.connect(gateway.port) as wire:
        assert (await wire.request("GET", "/api/x", bearer(await site.key()))).status == 200
        gateway.signal(signal.SIGTERM)
        await wire.read_end()
        assert await gateway.ended() == 0


async def test_a_stopped_upstream_is_502(site: Site, serve: Serve) -> None:
    """502 with rate-limit headers while nothing listens; after its restart, requests succeed."""
    async with ScriptedUpstream() as upstream:
        gateway = await serve(upstream=upstream.url)
        key = await site.key()
        assert (await gateway.fetch("/api/x", key=key)).status == 200
        await upstream.stop()
        answer = await gateway.fetch("/api/x", key=key)
        assert_refused(answer, 502, "bad_gateway", "UPSTREAM_UNREACHABLE")
        await upstream.start()

        async def back() -> bool:
            return (await gateway.fetch("/api/x", key=key)).status == 200

        await eventually(back, "the service is back")


async def test_an_upstream_that_hangs_up_is_502(site: Site) -> None:
    """It closed after the request, without an answer; a POST is not sent again."""

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        exchange.abort()

    site.upstream.script = script
    answer = await site.gateway.fetch("/api/x", key=await site.key(), method="POST", body=b"{}")
    assert_refused(answer, 502, "bad_gateway", "UPSTREAM_CLOSED")
    assert len(site.upstream.requests) == 1


async def test_an_invalid_response_is_502(site: Site) -> None:
    """A response that is not HTTP is not forwarded."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    site.upstream.script = script
    answer = await site.gateway.fetch("/api/x", key=await site.key())
    assert_refused(answer, 502, "bad_gateway", "UPSTREAM_INVALID_RESPONSE")


async def test_a_slow_upstream_is_504(site: Site, serve: Serve) -> None:
    """The wait for the first byte of an answer has a timeout."""

    async def script(exchange: Exchange) -> None:
        await exchange.ended()

    site.upstream.script = script
    gateway = await serve(gateway="timeouts: {response: 200ms}\n")
    answer = await gateway.fetch("/api/x", key=await site.key())
    assert_refused(answer, 504, "gateway_timeout", "UPSTREAM_TIMEOUT")


@pytest_asyncio.fixture(loop_scope="session")
async def mortal() -> AsyncIterator[tuple[RedisServer, str]]:
    """A Redis to be killed, which keeps its data, and a key in it."""
    server = RedisServer(*DURABLE).start()
    try:
        async with Redis(port=server.port) as client:
            key, _ = await add_key(RedisKeyStore(client), "enterprise")
        yield server, key
    finally:
        server.stop()


async def test_a_killed_store_fails_no_request(
    mortal: tuple[RedisServer, str], serve: Serve
) -> None:
    """Redis is killed under load: a known key is served and counted during the outage.

    After the recovery, cached keys are looked up again before use. A request at that moment may
    get a 503; none gets a 500.
    """
    server, key = mortal
    gateway = await serve(store=server.url)
    phase = "up"
    statuses: dict[str, set[int]] = {"up": set(), "down": set(), "back": set()}
    count = 0
    done = asyncio.Event()

    async def load() -> None:
        nonlocal count
        async with await Wire.connect(gateway.port) as wire:
            while not done.is_set():
                answer = await wire.request("GET", "/api/x", bearer(key))
                assert_rate_headers(answer)
                statuses[phase].add(answer.status)
                count += 1

    async def more() -> None:
        before = count
        await eventually(lambda: count > before + 50, f"requests flow while it is {phase}")

    async def store_is_up() -> bool:
        return await counted(gateway, "gateway_store_up") == 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(load())
        try:
            await more()
            phase = "down"
            server.kill()
            await more()
            phase = "back"
            await asyncio.to_thread(server.start)
            await eventually(store_is_up, "the store is used again")
            await more()
        finally:
            done.set()
    assert statuses["up"] == statuses["down"] == {200}
    assert 200 in statuses["back"] <= {200, 503}


async def test_serve_says_what_is_wrong(tmp_path: Path) -> None:
    """Policies with faults: each on a separate line of stderr, with its place; exit 1 or 2."""
    policies = write_policies(
        tmp_path / "policies", "http://127.0.0.1:9", plans="plans: {free: 3}\n"
    )
    done = await asyncio.to_thread(
        run_command,
        *("serve", "--policies", str(policies), "--store", "memory://"),
        *("--listen", f"127.0.0.1:{free_port()}", "--admin", f"127.0.0.1:{free_port()}"),
    )
    assert done.returncode in (1, 2)
    assert "plans.yaml:1" in done.stderr
    assert "Traceback" not in done.stderr


async def test_serve_names_the_option_of_a_taken_port(site: Site, tmp_path: Path) -> None:
    """For a port in use, a line on stderr names the option to change."""
    async with ScriptedUpstream() as other:
        for option in ("--listen", "--admin"):
            ports = {"--listen": free_port(), "--admin": free_port(), option: other.port}
            done = await asyncio.to_thread(
                run_command,
                *("serve", "--policies", str(site.policies), "--store", site.store),
                *("--listen", f"127.0.0.1:{ports['--listen']}"),
                *("--admin", f"127.0.0.1:{ports['--admin']}", "--data", str(tmp_path)),
            )
            assert done.returncode in (1, 2)
            assert "Traceback" not in done.stderr
            line = done.stderr.splitlines()[-1]
            assert line.startswith("gateway serve: ")
            assert option in line
            assert str(other.port) in line
