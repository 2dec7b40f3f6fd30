"""Computes a fleet: how many workers and nodes it needs, and which part is full first.

Requests are spread evenly: over the workers, and over keys with an account each. Where a load
balancer sends each key to one gateway, a worker serves only its part of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp
from typing import Final

from gateway.observe.usage_table import MOST_ENTRIES
from gateway.stores.keys.cache import CAPACITY
from gateway.stores.keys.directory import HEARTBEAT_S
from gateway.stores.usage.writer import LONGEST_S, is_due

#: How busy workers and nodes are to be: the rest is for peaks, and for the failure of others.
WORKER_LOAD: Final = 0.7
NODE_LOAD: Final = 0.6
#: More keys are not looked at.
MOST_KEYS: Final = 1_000_000_000
#: Records of a look-up: the key's and its account's.
RECORDS: Final = 2


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU microseconds: of a worker for a request, and of a node for the rest; see `units`."""

    worker: float
    decision: float
    busy_decision: float
    look_up: float
    usage_entry: float
    usage_merge: float
    heartbeat: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """gateways: of one or more workers each; requests_s, keys: of all of them together

    by_key: each key is sent to one gateway only
    """

    gateways: int
    requests_s: float
    keys: int
    by_key: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a fleet needs. Shares are of one core of the node that has keys, accounts and usage.

    workers:  each with a core, WORKER_LOAD busy; a whole number for each gateway
    masters:  for decisions, NODE_LOAD busy, if many come at once, and if each comes alone
    usage:    the share that takes writing and merging usage
    look_ups: the share that takes reading keys that a worker's cache has no room for
    idle:     the share that workers take which do nothing
    start_s:  seconds of the whole node until all workers have read all keys that they cache
    """

    workers: int
    masters: tuple[int, int]
    usage: float
    look_ups: float
    idle: float
    start_s: float

    @property
    def keys_node(self) -> float:
        """The share of all of it."""
        return self.usage + self.look_ups + self.idle


def plan(fleet: Fleet, costs: Costs) -> Plan:
    """Compute a fleet."""
    cores = fleet.requests_s * costs.worker / 1e6 / WORKER_LOAD
    workers = ceil(cores / fleet.gateways) * fleet.gateways
    rate_s = fleet.requests_s / workers
    keys = fleet.keys / fleet.gateways if fleet.by_key else fleet.keys
    entries_s = workers * entries_a_second(rate_s, keys)
    merges_s = workers * used_keys(rate_s * 60, keys) / 60
    read_s = fleet.requests_s * max(0.0, 1 - CAPACITY / keys) * RECORDS
    cached = workers * min(keys, CAPACITY) * RECORDS
    return Plan(
        workers=workers,
        masters=(
            ceil(fleet.requests_s * costs.busy_decision / 1e6 / NODE_LOAD),
            ceil(fleet.requests_s * costs.decision / 1e6 / NODE_LOAD),
        ),
        usage=(entries_s * costs.usage_entry + merges_s * costs.usage_merge) / 1e6,
        look_ups=read_s * costs.look_up / 1e6,
        idle=workers / HEARTBEAT_S * costs.heartbeat / 1e6,
        start_s=cached * costs.look_up / 1e6,
    )


def used_keys(requests: float, keys: float) -> float:
    """How many of these keys at least one of so many requests has, each with a key at random."""
    return keys * (1 - exp(-requests / keys))


def entries_a_second(rate_s: float, keys: float) -> float:
    """How many entries of usage a worker writes a second, on average: see `usage.writer`."""
    for waited_s in range(1, LONGEST_S + 1):
        entries = min(used_keys(rate_s * waited_s, keys), MOST_ENTRIES)
        if is_due(int(entries), waited_s):
            break
    return entries / waited_s


def most_keys(fleet: Fleet, costs: Costs) -> int | None:
    """The number of keys, to a thousand, with which the keys' node is NODE_LOAD busy; None: any."""
    low, high = 0, MOST_KEYS // 1_000
    if _is_bearable(fleet, costs, MOST_KEYS):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _is_bearable(fleet, costs, middle * 1_000) else (low, middle)
    return low * 1_000


def _is_bearable(fleet: Fleet, costs: Costs, keys: int) -> bool:
    other = Fleet(fleet.gateways, fleet.requests_s, keys, fleet.by_key)
    return plan(other, costs).keys_node <= NODE_LOAD
