"""The kinds of failures of a store, each with its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import randbytes
from typing import Any, Final

from redis.asyncio import Redis

from loadtests.outage.site import Site
from tests.kit.eventually import eventually
from tests.kit.ports import free_port

_SLOWLY: Final = ("--key-load-delay", "8000", "--loading-process-events-interval-bytes", "1024")

Step = Callable[[Site], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of failure.

    harm, heal: start and end it; the store works when `heal` returns
    away:       the store is unavailable for the gateway meanwhile
    proxied:    the failure is between the gateway and its store
    mode:       the policy's on_store_failure
    reads:      keys can be looked up meanwhile
    """

    harm: Step
    heal: Step
    away: bool = True
    proxied: bool = False
    mode: str = "local"
    reads: bool = False

    @property
    def allowed(self) -> set[int]:
        """The statuses that a cached key may get."""
        return {200, 429, 503} if self.mode == "closed" else {200, 429}


async def _nothing(_: Site) -> None:
    """Do nothing: it ends by itself."""


async def _kill(site: Site) -> None:
    site.server.kill()


async def _start(site: Site) -> None:
    await asyncio.to_thread(site.server.start)


async def _pause(site: Site) -> None:
    site.server.pause()


async def _resume(site: Site) -> None:
    site.server.resume()


def _told(*words: str | int) -> Step:
    """Send this command to the server."""

    async def step(site: Site) -> None:
        async with Redis(port=site.server.port) as client:
            await client.execute_command(*words)

    return step


async def _restart_slowly(site: Site) -> None:
    """Kill it, and restart it with data that takes about a second to load."""
    async with Redis(port=site.server.port) as client:
        await client.mset({f"filler:{number}": randbytes(1100) for number in range(60)})
        # While it loads a snapshot it answers clients; while it loads a log of commands, hardly.
        await client.bgrewriteaof()

        async def is_written() -> bool:
            told = await client.info("persistence")
            return not told["aof_rewrite_in_progress"] and not told["aof_rewrite_scheduled"]

        await eventually(is_written, "the snapshot is written")
    site.server.kill()
    site.server.arguments = (*site.server.arguments, *_SLOWLY)
    site.loading = asyncio.ensure_future(asyncio.to_thread(site.server.start))


async def _loaded(site: Site) -> None:
    assert site.loading is not None
    await site.loading
    site.server.arguments = site.server.arguments[: -len(_SLOWLY)]


async def _forget_counts(site: Site) -> None:
    """FLUSHALL, and restore the records of keys in the same step: losing keys is another case."""
    async with Redis(port=site.server.port) as client:
        kept = [name async for name in client.scan_iter("gw:*") if b"limit" not in name]
        dumps = [(name, await client.dump(name)) for name in kept]
        async with client.pipeline(transaction=True) as pipe:
            pipe.flushall()
            for name, dump in dumps:
                if dump is not None:
                    pipe.restore(name, 0, dump)
            await pipe.execute()


async def _spoil_counts(site: Site) -> None:
    """Replace every counter by a hash."""
    async with Redis(port=site.server.port) as client:
        names = [name async for name in client.scan_iter("gw:limit:*")]
        async with client.pipeline(transaction=True) as pipe:
            for name in names:
                pipe.delete(name)
                pipe.hset(name, "not", "ours")
            await pipe.execute()


async def _elsewhere(site: Site) -> None:
    """Restart it on another port, to which the proxy then connects, as after a DNS change."""
    site.server.port = free_port()
    await _start(site)
    site.proxy.move(site.server.port)


def _proxy(step: Callable[[Any], None]) -> Step:
    async def taken(site: Site) -> None:
        step(site.proxy)

    return taken


_well: Final = _proxy(lambda proxy: proxy.pass_on())

CASES: Final[dict[str, Case]] = {
    "kill -9, restart": Case(_kill, _start),
    "SIGSTOP, SIGCONT": Case(_pause, _resume),
    "1 s latency": Case(_proxy(lambda proxy: proxy.delay(1.0)), _well, proxied=True),
    "accepts, answers nothing": Case(_proxy(lambda proxy: proxy.pause()), _well, proxied=True),
    "connections cut": Case(_proxy(lambda proxy: proxy.cut()), _well, proxied=True),
    "reset in mid-reply": Case(_proxy(lambda proxy: proxy.reset_after(2)), _well, proxied=True),
    "restart on another port": Case(_kill, _elsewhere, proxied=True),
    "LOADING": Case(_restart_slowly, _loaded),
    "READONLY": Case(_told("REPLICAOF", "127.0.0.1", 1), _told("REPLICAOF", "NO", "ONE")),
    "OOM": Case(
        _told("CONFIG", "SET", "maxmemory", 1),
        _told("CONFIG", "SET", "maxmemory", 0),
        reads=True,
    ),
    "SCRIPT FLUSH": Case(_told("SCRIPT", "FLUSH"), _nothing, away=False),
    "FLUSHALL": Case(_forget_counts, _nothing, away=False),
    "wrong type at a key": Case(_spoil_counts, _nothing, away=False),
    "kill -9, open": Case(_kill, _start, mode="open"),
    "kill -9, closed": Case(_kill, _start, mode="closed"),
}
