"""Requests in flight over all workers: one memory, a row for each, read by all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.policy import Policy
from gateway.domain.upstreams import Upstream
from gateway.errors import UPSTREAM_BUSY
from gateway.proxy.inflight import CELLS, Inflight, SharedMemory
from gateway.proxy.upstream_pool import UpstreamPools
from tests.kit.pools import ask, policy_of, pools_for, refused, server_of
from tests.kit.reach import mostly, reached, reaches
from tests.kit.upstream import ScriptedUpstream

WORKERS = 3


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    made = SharedMemory(WORKERS)
    yield made
    made.close()


def open_row(memory: SharedMemory, worker: int) -> Inflight:
    return Inflight.open(os.dup(memory.fileno()), worker, WORKERS)


def test_each_sees_the_sum_and_changes_its_own(memory: SharedMemory) -> None:
    """Whatever upstreams each worker has, in any order, a name has one sum."""
    names = ["a", "b", "c"]
    rows = [open_row(memory, worker).use(names[worker:] + names[:worker]) for worker in range(3)]
    for worker, counts in enumerate(rows):
        for number, name in enumerate(names):
            counts[name].add(10**worker * (number + 1))
    for worker, counts in enumerate(rows):
        assert [counts[name].own for name in names] == [10**worker * n for n in (1, 2, 3)]
        assert [counts[name].total() for name in names] == [111, 222, 333]


def test_a_worker_that_has_ended_holds_nothing(memory: SharedMemory) -> None:
    """Its row is cleared, and the next worker begins at 0; no other row changes."""
    one, other = (open_row(memory, worker).use(["a"])["a"] for worker in (0, 2))
    one.add(2)
    other.add(5)
    memory.clear(2)
    assert (one.own, one.total()) == (2, 2)
    again = open_row(memory, 2).use(["b", "a"])["a"]
    assert again.total() == 2
    again.add(1)
    assert (one.total(), again.total()) == (3, 3)


def test_cells_are_used_again(memory: SharedMemory) -> None:
    """Reloads may bring new names; one with requests in flight keeps its cell."""
    mine, other = open_row(memory, 0), open_row(memory, 1)
    held = mine.use(["held"])["held"]
    held.add(1)
    for number in range(3 * CELLS):
        mine.use([f"upstream-{number}"])["upstream-" + str(number)].add(0)
    assert other.use(["held"])["held"].total() == 1
    held.add(-1)
    assert set(mine.use(["last"])) == {"last"}
    assert mine.use(["held"])["held"].total() == 0


def test_without_room_each_worker_counts_for_itself(
    memory: SharedMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """With more upstreams than cells, the last has a limit per worker, and the log says so."""
    names = [f"upstream-{number}" for number in range(CELLS + 1)]
    mine, other = (open_row(memory, worker) for worker in (0, 1))
    for each in (mine, other):
        each.use(names)[names[-1]].add(1)
        each.use(names)[names[0]].add(1)
    assert mine.use(names)[names[-1]].total() == 1
    assert mine.use(names)[names[0]].total() == 2
    assert [record.args for record in caplog.records] == [(names[-1],)] * 2


STEPS = st.lists(
    mostly(
        st.tuples(st.just("use"), st.integers(0, 2), st.sets(st.sampled_from("abcd"), min_size=1)),
        st.tuples(st.just("add"), st.integers(0, 2), st.sampled_from("abcd")),
        st.tuples(st.just("add"), st.integers(0, 2), st.sampled_from("abcd")),
        st.tuples(st.just("end"), st.integers(0, 2), st.none()),
    ),
    min_size=1,
    max_size=40,
)


@reaches(0.3)
@given(STEPS)
def test_the_sum_is_always_true(steps: list[tuple[str, int, object]]) -> None:
    """Policies change, requests begin, workers are replaced: each worker reads the true sum."""
    memory = SharedMemory(WORKERS)
    rows = [open_row(memory, worker) for worker in range(WORKERS)]
    counts: list[dict[str, object]] = [{} for _ in rows]
    true: Counter[tuple[int, str]] = Counter()
    for step, worker, what in steps:
        if step == "use":
            assert isinstance(what, set)
            counts[worker] = dict(rows[worker].use(sorted(what)))
        elif step == "add" and what in counts[worker]:
            counts[worker][what].add(1)  # type: ignore[attr-defined, index]
            true[worker, str(what)] += 1
        elif step == "end":
            memory.clear(worker)
            rows[worker], counts[worker] = open_row(memory, worker), {}
            for name in "abcd":
                del true[worker, name]
    for known in counts:
        for name, count in known.items():
            reached()
            expected = sum(number for (_, other), number in true.items() if other == name)
            assert count.total() == expected  # type: ignore[attr-defined]
    memory.close()


def limited(upstream: ScriptedUpstream, most: int | None) -> Policy:
    return policy_of(Upstream("api", (server_of(upstream),), inflight=most))


async def test_a_limit_holds_over_workers(memory: SharedMemory) -> None:
    """A request on one worker counts on the other, until it or its worker ends."""
    async with ScriptedUpstream() as upstream:
        policy = limited(upstream, 2)
        async with (
            pools_for(policy, inflight=open_row(memory, 0)) as one,
            pools_for(policy, inflight=open_row(memory, 1)) as other,
        ):
            mine, theirs = await ask(one), await ask(other)
            assert await refused(one) is UPSTREAM_BUSY
            assert await refused(other) is UPSTREAM_BUSY
            theirs.finish(reusable=True)
            await ask(one)
            assert await refused(other) is UPSTREAM_BUSY
            memory.clear(0)
            assert await ask(other) is theirs
            del mine


async def test_a_limit_that_comes_and_goes() -> None:
    """A reload sets and removes one; requests that began without it do not count."""
    async with ScriptedUpstream() as upstream:
        pools: UpstreamPools
        async with pools_for(limited(upstream, None)) as pools:
            before = await ask(pools)
            pools.use(limited(upstream, 1))
            held = await ask(pools)
            assert await refused(pools) is UPSTREAM_BUSY
            before.finish(reusable=True)
            assert before.transport.is_closing()
            assert await refused(pools) is UPSTREAM_BUSY
            pools.use(limited(upstream, 2))
            held.finish(reusable=True)
            assert await ask(pools) is held
            pools.use(limited(upstream, None))
            held.finish(reusable=True)
            for _ in range(3):
                await ask(pools)
