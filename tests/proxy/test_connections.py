"""The bounds on connections, and on the bytes that they hold together."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.policy import Bounds
from gateway.observe.metrics import Metrics
from gateway.proxy import connections as connections_module
from gateway.proxy.connections import (
    HEAVY_BYTES,
    MOST_EACH_BYTES,
    MOST_UNCOUNTED,
    WORTH_GIVING_BACK_BYTES,
    Connections,
    Entry,
)

MANY = 1 << 20
BUDGET = 4 * MOST_EACH_BYTES


class One:
    """A connection that holds a given number of bytes."""

    def __init__(self, size: int = 0, known: bool = False) -> None:
        self.size, self.known, self.is_cut = size, known, False

    def held_bytes(self) -> int:
        return self.size

    def is_known(self) -> bool:
        return self.known

    def shed(self) -> None:
        self.is_cut = True


def made(budget: int = BUDGET, descriptors: int = MANY) -> Connections:
    return Connections(Metrics("test"), lambda: budget, descriptors)


def entries(connections: Connections, bounds: Bounds, subjects: str) -> list[Entry]:
    """The result for each connection in sequence; a letter is its subject."""
    found = []
    for subject in subjects:
        connections.add(One())
        found.append(connections.enter(subject, bounds, is_trusted=subject == "T"))
    return found


def test_the_bounds() -> None:
    """Over the bound some get a refusal, others are dropped; a subject has its own bound."""
    bounds = Bounds(connections=32, connections_per_address=3)
    found = entries(made(), bounds, "aaaaTTTTT" + "bcdefghijklmnopqrstuvwx" + "yyyy")
    assert found == [
        *[Entry.SERVED] * 3,
        *[Entry.REFUSED],
        *[Entry.SERVED] * 28,
        *[Entry.REFUSED] * 2,
        *[Entry.DROPPED] * 2,
    ]


def test_descriptors_are_a_bound() -> None:
    """Whatever the policy allows, a part of the process's descriptors is reserved."""
    bounds = Bounds(connections=10_000, connections_per_address=10_000)
    found = entries(made(descriptors=1024), bounds, "a" * 1024)
    served = found.count(Entry.SERVED)
    assert served == 1024 * 3 // 4 - 64
    assert set(found[served:]) == {Entry.REFUSED, Entry.DROPPED}


async def test_a_closed_connection_makes_room() -> None:
    """A closed connection makes room for its subject; an empty subject leaves nothing behind."""
    connections, bounds = made(), Bounds(connections_per_address=1)
    one = One()
    connections.add(one)
    assert connections.enter("a", bounds, is_trusted=False) is Entry.SERVED
    connections.leave("a")
    assert connections.enter("a", bounds, is_trusted=False) is Entry.SERVED
    assert entries(connections, bounds, "a") == [Entry.REFUSED]
    for connection in connections:
        connections.discard(connection)
        connections.leave("a")
    await asyncio.wait_for(connections.all_gone(), 1)
    assert not connections._of


async def test_the_worst_are_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """Those that hold most, those without a valid key first, and no more than needed."""
    connections = made()
    small, known, worst, worse = (
        One(HEAVY_BYTES),
        One(BUDGET, known=True),
        One(BUDGET // 2),
        One(BUDGET // 4),
    )
    for one in (small, known, worst, worse):
        connections.add(one)
        connections.mark(one)
    connections.keep_to_budget()
    assert [one.is_cut for one in (small, known, worst, worse)] == [False, False, True, True]
    known.size += 1
    connections.mark(known)
    connections.keep_to_budget()
    assert known.is_cut
    (first,) = [record.getMessage() for record in caplog.records]
    assert "bounds.memory" in first


async def test_freed_bytes_are_not_counted() -> None:
    """Bytes that a connection has freed are not counted any more."""
    connections = made()
    ones = [One(BUDGET) for _ in range(3)]
    for one in ones:
        connections.add(one)
        connections.mark(one)
        one.size = 0
    heavy = One(BUDGET)
    connections.add(heavy)
    connections.mark(heavy)
    connections.keep_to_budget()
    assert not any(one.is_cut for one in (*ones, heavy))
    assert set(connections._heavy) == {heavy}


@given(st.lists(st.tuples(st.integers(0, MOST_EACH_BYTES), st.booleans()), max_size=120))
def test_the_budget_holds(sizes: list[tuple[int, bool]]) -> None:
    """Whatever connections hold, all together stay within the budget, or just above."""

    async def scenario() -> None:
        connections = made()
        ones = []
        for size, known in sizes:
            ones.append(one := One(size, known))
            connections.add(one)
            connections.mark(one)
            held = sum(one.size for one in ones if not one.is_cut and one.size > HEAVY_BYTES)
            assert held <= BUDGET + (MOST_UNCOUNTED + 1) * MOST_EACH_BYTES
        connections.keep_to_budget()
        left = [one for one in ones if not one.is_cut]
        assert sum(one.size for one in left if one.size > HEAVY_BYTES) <= BUDGET

    asyncio.run(scenario())


def test_a_policy_may_change_the_budget() -> None:
    """It is read each time."""
    budget = [BUDGET]
    connections = Connections(Metrics("test"), lambda: budget[0], MANY)
    one = One(BUDGET)

    async def scenario() -> None:
        connections.add(one)
        connections.mark(one)
        connections.keep_to_budget()
        assert not one.is_cut
        budget[0] = replace(Bounds(), memory_bytes=BUDGET - 1).memory_bytes
        connections.keep_to_budget()
        assert one.is_cut

    asyncio.run(scenario())


def test_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """When enough held bytes were freed, and once for them."""
    calls: list[None] = []
    monkeypatch.setattr(connections_module, "give_memory_back", lambda: calls.append(None))
    connections = made(budget=100 * MOST_EACH_BYTES)
    ones = [One(MOST_EACH_BYTES) for _ in range(WORTH_GIVING_BACK_BYTES // HEAVY_BYTES + 1)]

    async def scenario() -> None:
        for one in ones[:10]:
            connections.add(one)
            connections.mark(one)
        for one in ones[:10]:
            connections.discard(one)
        connections.check()
        assert calls == []
        for one in ones:
            connections.add(one)
            connections.mark(one)
        connections.check()
        assert len(calls) == 1
        connections.check()
        assert len(calls) == 1

    asyncio.run(scenario())


def test_giving_memory_back() -> None:
    """It has no visible effect here, and does not fail."""
    connections_module.give_memory_back()
