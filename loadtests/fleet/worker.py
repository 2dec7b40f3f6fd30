"""Measures what a request costs a worker in front of a cluster, in turns with a single Redis.

In a cluster each account is in a slot of its own, so its decisions are commands of their own, sent
to many nodes. The more nodes there are, the fewer commands travel together.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from loadtests.compare import ours, wrk
from loadtests.compare.keys import ApiKey, make_many, write_gateway_keys, write_lines
from loadtests.compare.measure import check_load, come_through, measure_load
from loadtests.compare.peers import Running, start_store
from tests.kit.redis_cluster import RedisCluster

CONNECTIONS: Final = 64
MASTERS: Final = 16
KEYS: Final = 10_000


def measure(
    folder: Path,
    upstream: int,
    *,
    rounds: int,
    seconds: float,
    masters: int = MASTERS,
    keys: int = KEYS,
) -> tuple[list[float], list[float]]:
    """CPU microseconds of a worker for a request: with one Redis, and with a cluster.

    One value of each for each round. Raises NotStarted and BadLoad.
    """
    with ExitStack() as stack:
        cluster = RedisCluster(masters=masters, has_replicas=False)
        stack.callback(cluster.stop)
        cluster.start()
        many = make_many(keys)
        loads = [
            _Load(folder / name, url, upstream, many, stack)
            for name, url in (("single", start_store(stack).url), ("cluster", cluster.url))
        ]
        found: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for load, values in zip(loads, found, strict=True):
                values.append(load.round(seconds))
        return found


class _Load:
    """A gateway on a store, and the requests to it."""

    def __init__(
        self, folder: Path, store: str, upstream: int, keys: list[ApiKey], stack: ExitStack
    ) -> None:
        folder.mkdir()
        write_gateway_keys(store, keys, is_full=True)
        policies = ours.write_policies(folder / "policies", upstream, "all", ["/small"])
        served = ours.serve(folder, policies, store, stack)
        self._running = Running(served.port, served.pid)
        self._lines = str(write_lines(folder / "lines.txt", (key.text for key in keys)))
        come_through(len(keys), lambda seconds: self._run(seconds, "sequence"))

    def round(self, seconds: float) -> float:
        """CPU microseconds for a request."""
        return measure_load(self._running, lambda: self._run(seconds, "random")).cpu_us

    def _run(self, seconds: float, order: str) -> wrk.Load:
        words = ("wrk_lines.lua", self._lines, order, "key", "/small")
        url = f"http://127.0.0.1:{self._running.port}/"
        return check_load(wrk.run(url, CONNECTIONS, seconds, *words), 200)
