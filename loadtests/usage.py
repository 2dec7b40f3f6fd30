"""Checks after a load that the usage in the store is the same as in the access log.

    python -m loadtests.usage
    python -m loadtests.usage --workers 2 --seconds 20 --clients 32
    python -m loadtests.usage --memory                # what a key takes in Redis, instead

It starts a gateway and a Redis as real processes. Clients with keys of several plans, without a
key and with invalid keys send requests that are admitted, limited or refused, as fast as they are
answered; in the middle the store stops for a while. Afterwards all requests are compared by key,
route and outcome, in the access log and in the store, in all three grains. Exits with 1 on any
difference.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis.asyncio import Redis

from gateway.domain.usage import GRAIN_S, Grain
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.usage.store import RedisUsageStore
from loadtests import usage_memory
from tests.end_to_end.conftest import add_key, build_key
from tests.kit.gateway import ServedGateway
from tests.kit.policies import write_policies
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import ScriptedUpstream
from tests.kit.usage_counts import Counts, logged, used
from tests.kit.wire import Wire, bearer

KEYS: Final = {"free": 20, "pro": 20, "enterprise": 60}
TARGETS: Final = ("/api/x", "/api/search/x", "/v1/connectors", "/public/x", "/nowhere", "/health")
#: The store is stopped for this share of the run, in its middle.
AWAY: Final = 0.2
#: How long the usage may take to arrive after the load; two seconds are promised, and a machine
#: that is busy with something else takes longer.
PATIENCE_S: Final = 30.0
#: An outage is noticed after this time, as in service.
_STORE: Final = "store: {timeout: 200ms}\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts of the log, those of the store in each grain, and their delay in seconds."""

    log: Counts
    store: dict[Grain, Counts]
    late_s: float

    @property
    def is_same(self) -> bool:
        return all(counts == self.log for counts in self.store.values())


async def run(folder: Path, workers: int, seconds: float, clients: int) -> Outcome:
    """Load a gateway for this time, and read what was counted."""
    async with AsyncExitStack() as stack:
        server = RedisServer().start()
        stack.callback(server.stop)
        upstream = await stack.enter_async_context(ScriptedUpstream())
        client = await stack.enter_async_context(Redis(port=server.port))
        policies = write_policies(folder / "policies", upstream.url, settings=_STORE)
        keys = RedisKeyStore(client)
        made = [await add_key(keys, plan) for plan, count in KEYS.items() for _ in range(count)]
        served = ServedGateway(folder / "gateway", policies, server.url, "--workers", str(workers))
        gateway = await stack.enter_async_context(served)
        texts: list[str | None] = [text for text, _ in made]
        texts += [None, build_key("free")[0], "nonsense"]
        until_s = time.monotonic() + seconds
        load = [_client(gateway, texts, until_s, seed) for seed in range(clients)]
        await asyncio.gather(_interrupt(server, seconds), *load)
        return await _agreed(gateway, RedisUsageStore(client), [record.id for _, record in made])


async def _client(
    gateway: ServedGateway, texts: Sequence[str | None], until_s: float, seed: int
) -> None:
    """Send requests on one connection after another; some close before they are answered."""
    choose = random.Random(seed)
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError, EOFError):
            async with await Wire.connect(gateway.port) as wire:
                for _ in range(choose.randrange(1, 200)):
                    text = choose.choice(texts)
                    fields = bearer(text) if text else []
                    target = choose.choice(TARGETS)
                    answer = await wire.request("GET", target, fields)
                    closes = answer.maybe("Connection") == "close"
                    if closes or time.monotonic() >= until_s:
                        break
                if choose.random() < 0.2:
                    await wire.send(b"GET /api/x HTTP/1.1\r\nHost: a\r\n\r\n")


async def _interrupt(server: RedisServer, seconds: float) -> None:
    await asyncio.sleep(seconds * (1 - AWAY) / 2)
    server.pause()
    await asyncio.sleep(seconds * AWAY)
    server.resume()


async def _agreed(gateway: ServedGateway, store: RedisUsageStore, ids: list[str]) -> Outcome:
    """Compare until both agree or the time is over; and again once all journals are merged."""
    outcome = await _compared(gateway, store, ids)
    if not outcome.is_same:
        return outcome
    await store.merge("loadtest", int(time.time()) + 3_600)
    again = await _compared(gateway, store, ids)
    return outcome if again.is_same else again


async def _compared(gateway: ServedGateway, store: RedisUsageStore, ids: list[str]) -> Outcome:
    over_s = time.monotonic()
    while True:
        late_s = time.monotonic() - over_s
        log = logged(gateway.log_lines())
        found = {grain: await used(store, ids, grain) for grain in GRAIN_S}
        outcome = Outcome(log, found, late_s)
        if outcome.is_same or late_s > PATIENCE_S:
            return outcome
        await asyncio.sleep(0.1)


def table(outcome: Outcome) -> str:
    """The counts by outcome, as a Markdown table, and every difference by key and route."""
    lines = [
        "| outcome | access log | minutes | hours | days |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    sums = [_by_outcome(counts) for counts in (outcome.log, *outcome.store.values())]
    for name in sorted(set().union(*sums)):
        lines.append(f"| {name} | " + " | ".join(f"{each[name]:,}" for each in sums) + " |")
    total = [sum(each.values()) for each in sums]
    lines.append("| **all** | " + " | ".join(f"{each:,}" for each in total) + " |")
    lines.append("")
    for grain, counts in outcome.store.items():
        for entry in sorted(set(outcome.log) | set(counts)):
            if outcome.log[entry] != counts[entry]:
                lines.append(f"{grain} {entry}: log {outcome.log[entry]}, store {counts[entry]}")
    verdict = "the same" if outcome.is_same else "DIFFERENT"
    lines.append(f"{verdict}, {outcome.late_s:.1f} s after the end of the load")
    return "\n".join(lines)


def _by_outcome(counts: Counts) -> Counter[str]:
    sums = Counter[str]()
    for (_, _, name), requests in counts.items():
        sums[name] += requests
    return sums


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.usage", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long it is asked")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--memory", action="store_true", help="measure what a key takes instead")
    parser.add_argument("--keys", type=int, nargs="+", default=usage_memory.KEYS)
    parser.add_argument("--outcomes", type=int, nargs="+", choices=usage_memory.OUTCOMES)
    given = parser.parse_args(arguments)
    if given.memory:
        print(usage_memory.run(given.keys, given.outcomes or tuple(usage_memory.OUTCOMES)))
        return 0
    with tempfile.TemporaryDirectory(prefix="gateway-usage-") as folder:
        outcome = asyncio.run(run(Path(folder), given.workers, given.seconds, given.clients))
    print(table(outcome))
    return 0 if outcome.is_same and outcome.log else 1


if __name__ == "__main__":
    sys.exit(main())
