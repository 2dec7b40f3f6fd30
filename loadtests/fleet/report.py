"""Writes what was measured, and the fleets that follow from it, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final

from loadtests.compare.report import table
from loadtests.compare.spread import Spread
from loadtests.fleet.plan import NODE_LOAD, WORKER_LOAD, Costs, Fleet, Plan, most_keys, plan
from loadtests.fleet.units import LIMITS, TOGETHER, WORKERS
from loadtests.fleet.worker import MASTERS

_TITLES: Final = {
    "decision": "a decision that comes alone",
    "busy_decision": f"a decision, {TOGETHER} at once",
    "batch_decision": f"a decision in one command for {TOGETHER} of an account",
    "further_limit": f"each further limit, of {LIMITS}",
    "look_up": f"reading a key's record, {TOGETHER} at once",
    "usage_entry": "writing an entry of usage",
    "usage_merge": "merging an entry of usage",
    "heartbeat": "a heartbeat of a worker",
}


def write(
    of_node: Mapping[str, Spread],
    of_worker: tuple[Spread, Spread],
    gateways: int,
    requests_s: float,
    keys: Sequence[int],
) -> str:
    """The report.

    of_node:   by the names of `units.Units`
    of_worker: a request's cost with one Redis, and with a cluster
    """
    single, cluster = of_worker
    rows = [(_TITLES[name], found.text(1)) for name, found in of_node.items()]
    rows += [
        ("a worker, a request, with one Redis", single.text(1)),
        (f"a worker, a request, with a cluster of {MASTERS}", cluster.text(1)),
    ]
    costs = Costs(
        cluster.middle,
        *(of_node[each.name].middle for each in fields(Costs) if each.name != "worker"),
    )
    parts = [table(("", "CPU µs"), rows)]
    for by_key, where in ((False, "each key at every gateway"), (True, "each key at one gateway")):
        fleets = [Fleet(gateways, requests_s, count, by_key) for count in keys]
        plans = [plan(fleet, costs) for fleet in fleets]
        parts += [
            table((where, *(f"{count:,} keys" for count in keys)), _rows(plans)),
            _limit(most_keys(fleets[0], costs)),
        ]
    parts.append(
        f"{gateways} gateways, {requests_s:,.0f} requests a second, each with a key at random. "
        f"Workers are {WORKER_LOAD:.0%} busy, masters {NODE_LOAD:.0%}; shares are of one core. "
        f"A node was measured with {WORKERS} connections."
    )
    return "\n\n".join(parts) + "\n"


def _limit(keys: int | None) -> str:
    if keys == 0:
        return f"With a thousand keys already the keys' node is more than {NODE_LOAD:.0%} busy."
    if keys is None:
        return f"The keys' node is less than {NODE_LOAD:.0%} busy with any number of keys."
    return f"With {keys:,} keys the keys' node is {NODE_LOAD:.0%} busy."


def _rows(plans: Sequence[Plan]) -> list[tuple[str, ...]]:
    return [
        ("workers", *(f"{one.workers:,}" for one in plans)),
        ("masters for decisions", *(" to ".join(map(str, one.masters)) for one in plans)),
        ("keys' node: usage", *(f"{one.usage:.1%}" for one in plans)),
        ("keys' node: look-ups", *(f"{one.look_ups:.1%}" for one in plans)),
        ("keys' node: idle workers", *(f"{one.idle:.1%}" for one in plans)),
        ("seconds until all keys are cached", *(f"{one.start_s:,.1f}" for one in plans)),
    ]
