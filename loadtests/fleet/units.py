"""Measures what single things cost a node of a Redis Cluster, and a worker in front of one.

The node is alone in its cluster and has all slots. A few hundred connections send it commands as
workers do: one at a time, so that it sleeps in between, or sixteen at once, as on a busy node.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Final

from redis.asyncio import Redis

from gateway.domain.limits import Check, Limit
from gateway.domain.ports import UsageBatch
from gateway.domain.usage import Measures, bucket_start
from gateway.observe.usage_table import CHUNK
from gateway.stores.keys.directory import HEARTBEAT
from gateway.stores.keys.records import value_range, write_record
from gateway.stores.limits.script import LOAD, build_command
from gateway.stores.names import key_name
from gateway.stores.redis.clock import TIME
from gateway.stores.redis.connection import command
from gateway.stores.usage.scripts import UsageScripts
from loadtests.compare.keys import make_many, record_of
from loadtests.compare.processes import cpu_s
from loadtests.compare.spread import Spread
from tests.kit.redis_cluster import RedisCluster

#: Workers that are connected to the node.
WORKERS: Final = 200
#: Commands that arrive together on a busy node.
TOGETHER: Final = 16
#: Counters, of as many accounts; and keys whose usage is counted.
COUNTERS: Final = 20_000
USED_KEYS: Final = 5_000
#: Limits of a request that has several.
LIMITS: Final = 5
_MINUTES: Final = 3
_WRITER: Final = "worker"

_PLAN: Final = Limit("plan", "rate", 1_000_000, 60_000_000, 2_000_000)
_MORE: Final = tuple(Limit(f"more-{n}", "rate", 1_000_000, 60_000_000) for n in range(LIMITS - 1))


@dataclass(slots=True)
class Units:
    """CPU microseconds of a node, one value for each round.

    decision:       of one request with one limit, which comes alone
    busy_decision:  the same while TOGETHER come at once
    batch_decision: the same within one command for TOGETHER requests of one account
    further_limit:  each limit of a request beyond the first
    look_up:        reading the record of a key or an account
    usage_entry:    a key and route in a worker's usage, each time it is written
    usage_merge:    a key and route in a worker's journal, once a minute
    heartbeat:      what each worker sends a few times a second
    """

    decision: list[float] = field(default_factory=list)
    busy_decision: list[float] = field(default_factory=list)
    batch_decision: list[float] = field(default_factory=list)
    further_limit: list[float] = field(default_factory=list)
    look_up: list[float] = field(default_factory=list)
    usage_entry: list[float] = field(default_factory=list)
    usage_merge: list[float] = field(default_factory=list)
    heartbeat: list[float] = field(default_factory=list)

    def spreads(self) -> dict[str, Spread]:
        """The spread of each, by its name."""
        return {each.name: Spread.of(getattr(self, each.name)) for each in fields(self)}


class Node:
    """A node, with the connections of many workers. commands: of each measurement of single ones"""

    def __init__(
        self, cluster: RedisCluster, workers: int, commands: int, stack: ExitStack
    ) -> None:
        (self.server,) = cluster.nodes
        self.commands = commands
        with self.server.client() as client:
            self._pid = int(client.info("server")["process_id"])
        self._sockets = [
            stack.enter_context(socket.create_connection(("127.0.0.1", self.server.port)))
            for _ in range(workers)
        ]
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def cpu_us(self) -> float:
        """The CPU time of the node so far."""
        return cpu_s(self._pid) * 1e6

    def send(self, commands: Sequence[bytes], together: int) -> float:
        """CPU microseconds of each command: random ones, of `together` connections at once."""
        turns, before = self.commands // together, self.cpu_us()
        for _ in range(turns):
            chosen = random.sample(self._sockets, together)
            for each in chosen:
                each.sendall(random.choice(commands))
            for each in chosen:
                reply = each.recv(1 << 16)
                assert reply[:1] != b"-", reply
        return (self.cpu_us() - before) / (turns * together)


@contextmanager
def one_node(workers: int = WORKERS, commands: int = 20_000) -> Iterator[Node]:
    """A cluster of one node."""
    with ExitStack() as stack:
        cluster = RedisCluster(masters=1, has_replicas=False)
        stack.callback(cluster.stop)
        yield Node(cluster.start(), workers, commands, stack)


def measure(node: Node, rounds: int, *, counters: int = COUNTERS, used: int = USED_KEYS) -> Units:
    """Measure each of them this many times."""
    units = Units()
    node.send([LOAD], 1)
    single = _decisions(counters, (_PLAN,))
    several = _decisions(counters // LIMITS, (_PLAN, *_MORE))
    batches = [build_command(_checks(number, (_PLAN,)) * TOGETHER, 0) for number in range(counters)]
    reads = _records(node, min(counters, 1_000))
    heartbeat = [HEARTBEAT, TIME]
    for commands in (single, several):
        node.send(commands, TOGETHER)  # most counters exist now
    for number in range(rounds):
        units.decision.append(node.send(single, 1))
        units.busy_decision.append(node.send(single, TOGETHER))
        units.batch_decision.append(node.send(batches, 1) / TOGETHER)
        more_us = node.send(several, TOGETHER) - units.busy_decision[-1]
        units.further_limit.append(more_us / (LIMITS - 1))
        units.look_up.append(node.send(reads, TOGETHER))
        units.heartbeat.append(sum(node.send([each], 1) for each in heartbeat))
        entry_us, merge_us = _usage_us(node, number, used)
        units.usage_entry.append(entry_us)
        units.usage_merge.append(merge_us)
    return units


def _checks(number: int, limits: tuple[Limit, ...]) -> list[Check]:
    names = tuple(f"gw:limit:{{account-{number}}}:key:{number}:{each.counter}" for each in limits)
    return [Check(limits, names)]


def _decisions(counters: int, limits: tuple[Limit, ...]) -> list[bytes]:
    return [build_command(_checks(number, limits), 0) for number in range(counters)]


def _records(node: Node, count: int) -> list[bytes]:
    """Commands that read keys, which exist."""
    keys = make_many(count)
    with node.server.client() as client:
        for key in keys:
            client.set(key_name(key.id), write_record(record_of(key, is_full=True)))
    return [command(*value_range(key_name(key.id))) for key in keys]


def _usage_us(node: Node, round_: int, used: int) -> tuple[float, float]:
    """What it costs to write the usage of a key, and to merge it."""
    begin_s = bucket_start("minute", int(time.time())) + round_ * _MINUTES * 60
    numbers = count(begin_s)

    async def run() -> tuple[float, float]:
        added_us = merged_us = 0.0
        async with Redis(port=node.server.port) as client:
            scripts = UsageScripts(client.execute_command)
            scripts.pause_s = 0.0
            for at_s in range(begin_s, begin_s + _MINUTES * 60, 60):
                before = node.cpu_us()
                for start in range(0, used, CHUNK):
                    await scripts.add(_batch(next(numbers), at_s, start, min(start + CHUNK, used)))
                between = node.cpu_us()
                await scripts.merge(_WRITER, at_s + 120)
                added_us += between - before
                merged_us += node.cpu_us() - between
        return added_us / (_MINUTES * used), merged_us / (_MINUTES * used)

    return asyncio.run(run())


def _batch(number: int, at_s: int, start: int, end: int) -> UsageBatch:
    """Some requests of each of these keys."""
    subjects = [f"key:{at:012}" for at in range(start, end)]
    counts = {(subject, "api", "admitted:2xx"): 7 for subject in subjects}
    measures = {(subject, "api"): Measures(0, 700, {9: 4, 10: 3}) for subject in subjects}
    return UsageBatch(_WRITER, number, at_s, counts, measures)
