"""What pacing gains: eight threads, then eight tasks, on one key of 60 requests a minute.

    python -m loadtests.pacing                 four minutes each for four ways, some 17 in all
    python -m loadtests.pacing --minutes 2

A gateway and a Redis on free ports; the client library sends as fast as it may. With retries alone
some calls end with a 429. With pacing none is to get one, and nearly all of the limit is to get
through. Exits with 1 if a paced call got a 429, or less than 95 % of the limit came through.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import httpx
from gateway_client import AsyncClient, Client, RateLimited
from redis.asyncio import Redis

from gateway.cli.demo import mint_keys
from gateway.domain.limits import Limit
from gateway.policies.load import load
from gateway.stores.keys.store import RedisKeyStore
from loadtests.traffic.sites import Site, open_gateways

SENDERS: Final = 8
A_MINUTE: Final = Limit("plan", "rate", 60, 60_000_000)
LEAST: Final = 0.95
_PATH: Final = "/v1/connectors"


@dataclass
class Count:
    """passed: calls that were answered; refused: answers with 429; failed: calls that ended so"""

    passed: int = 0
    refused: int = 0
    failed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, **counts: int) -> None:
        with self.lock:
            for name, number in counts.items():
                setattr(self, name, getattr(self, name) + number)

    def see(self, answer: httpx.Response) -> None:
        self.add(refused=int(answer.status_code == 429))

    async def see_async(self, answer: httpx.Response) -> None:
        self.see(answer)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all four ways, print a table, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.pacing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=4.0)
    seconds = parser.parse_args(arguments).minutes * 60
    is_met = True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-pacing-")))
        site = open_gateways(folder, stack, gateways=1, workers=1, keys=1, patient=True)
        print("eight                 passed   of the limit   answers 429   calls that failed")
        for name, pace in (("retries", False), ("pacing", True)):
            for kind, run in (("threads", in_threads), ("tasks", in_tasks)):
                count = run(site.hosts[0], make_key(site), seconds, pace)
                share = count.passed / seconds
                print(
                    f"{kind + ', ' + name:21} {count.passed:6} {share:14.1%} {count.refused:13}"
                    f" {count.failed:19}",
                    flush=True,
                )
                is_met &= not pace or (count.refused == 0 and share >= LEAST)
    return 0 if is_met else 1


def make_key(site: Site) -> str:
    """A key with a limit of its own, so that none of it is used yet."""
    assert site.redis is not None, "gateways share a Redis"
    url, policy = site.redis.url, load(site.policies)

    async def make() -> str:
        text, record = mint_keys(policy, time.time_ns() // 1000)["pro"]
        async with Redis.from_url(url) as redis:
            await RedisKeyStore(redis).add(
                replace(record, account=record.id, limits={"plan": A_MINUTE})
            )
        return text

    return asyncio.run(make())


def in_threads(host: str, key: str, seconds: float, pace: bool) -> Count:
    """Threads that share a client."""
    count = Count()
    ends_s = time.monotonic() + seconds
    hooks = {"event_hooks": {"response": [count.see]}}
    with Client(api_key=key, base_url=host, pace=pace, http=hooks) as client:

        def send() -> None:
            while time.monotonic() < ends_s:
                try:
                    client.request("GET", _PATH)
                except RateLimited:
                    count.add(failed=1)
                else:
                    count.add(passed=int(time.monotonic() < ends_s))

        threads = [threading.Thread(target=send) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return count


def in_tasks(host: str, key: str, seconds: float, pace: bool) -> Count:
    """Tasks that share a client."""
    count = Count()
    ends_s = time.monotonic() + seconds
    hooks = {"event_hooks": {"response": [count.see_async]}}

    async def run() -> None:
        async with AsyncClient(api_key=key, base_url=host, pace=pace, http=hooks) as client:

            async def send() -> None:
                while time.monotonic() < ends_s:
                    try:
                        await client.request("GET", _PATH)
                    except RateLimited:
                        count.add(failed=1)
                    else:
                        count.add(passed=int(time.monotonic() < ends_s))

            await asyncio.gather(*(send() for _ in range(SENDERS)))

    asyncio.run(run())
    return count


if __name__ == "__main__":
    sys.exit(main())
