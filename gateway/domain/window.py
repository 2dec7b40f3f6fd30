"""The arithmetic of limits, in integer microseconds, which every store follows.

This is the reference. The in-process limiter uses it directly; the script in Redis does the same in
Lua, and the tests compare the two.

A rate counts the admitted units in slots of a sixtieth of its window, and adds up the current slot
and the 60 before it. The oldest of these 61 is partly outside the window and is counted in full, so
any span of one window's length is within those slots, wherever it starts.

A rate with a burst also has a bucket, stored as two numbers: the time at which it is full again,
and the time T in which it refills by one unit. The time until it is full is T for each unit that
was taken and has not been refilled. If the limit changes to another T, the units stay and the time
changes, so that an upgrade takes effect at once. The new numbers are stored with the next
admission; at once if the bucket became smaller, or it would refuse until the old one is full.

A quota counts within the current calendar period and starts again with the next. Where periods
have different lengths (see `calendar`), a period is known by its end. If an account's billing day
changes, what was counted in a period that has not ended yet is counted in the new one.

A concurrency limit has a lease for each request in progress, at any cost. A lease has an expiry,
which its holder renews. When a lease will end is not known in advance, so the wait in a refusal is
an estimate. The holders restore leases that a store has lost; there may then be more than the
limit, until some of them end.

A limit of connections counts those that hold a lease, each once: the requests of one connection
share a lease in each worker. So a request of a connection that holds one is always admitted.

A store's clock may step back, when a failover selects a host whose clock is slow. Units counted in
the future are then treated as counted now: no client is refused for longer than one window, and
none is admitted early. Such a state must be stored even if nothing was counted. Otherwise each
check would move it to a later "now", and a client that waits for Retry-After would be refused
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.domain.limits import (
    LEASE_US,
    MAX_AMOUNT,
    SECOND_US,
    SLOTS,
    Check,
    Decision,
    Limit,
    Member,
    Standing,
    governing,
)

#: Slots that are added up: those of one window, and the one that is partly outside.
LOOK_BACK: Final = SLOTS + 1
#: The most units that a window counts: the largest amount in a policy, so that a slot fits 32 bits.
#: Only a limit in shadow mode, which refuses nothing, can reach it.
MOST: Final = MAX_AMOUNT
#: Retry-After where all leases are held.
LEASE_RETRY_US: Final = SECOND_US


@dataclass(slots=True)
class Window:
    """The state of a rate. It is not changed; that it could be makes a new one cheaper.

    slot:       the number of the newest slot: 1_767_292_772
    counts:     admitted in that slot, in the one before it, and so on; at most 61
    full_at_us: when the bucket is full again; 0: it is full, or the limit had no burst
    unit_us:    the T that full_at_us was computed with; 0: not known (written by an older version,
                or without a burst)
    total:      the sum of the counts; -1: it is computed
    """

    slot: int
    counts: tuple[int, ...]
    full_at_us: int = 0
    unit_us: int = 0
    total: int = field(default=-1, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.total < 0:
            self.total = sum(self.counts)


@dataclass(frozen=True, slots=True)
class Period:
    """The state of a quota: the period, and the units admitted in it.

    index: the number of the period since 1970; with a calendar the end of the period, in
           microseconds
    """

    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Leases:
    """The state of a concurrency limit, or of one of connections: until when each lease is held."""

    until_us: Mapping[Member, int]

    @property
    def connections(self) -> set[int]:
        """The tags of the connections that hold a lease."""
        return {member[0] for member in self.until_us if isinstance(member, tuple)}

    def held(self, limit: Limit) -> int:
        """How many leases or connections count in the limit."""
        return len(self.connections if limit.rules.shared else self.until_us)


State = Window | Period | Leases


def decide(
    states: Sequence[State | None], check: Check, now_us: int
) -> tuple[Decision, tuple[State | None, ...]]:
    """Decide a check by the states of its limits; None: nothing was counted yet.

    Returns the decision and, for each limit, the state to store; None: unchanged.
    """
    limits, costs, differ = check.limits, check.each_cost, check.costs is not None
    tag = check.lease and (check.connection or check.lease)
    views: list[State] = []
    waits: list[int | None] = []
    kept: list[State | None] = []
    refusals: dict[int, int | None] = {}
    refusing = 0
    for index, (state, limit, cost) in enumerate(zip(states, limits, costs, strict=True)):
        view, moved = advance(state, limit, now_us)
        # A limit in which the request counts nothing does not refuse it.
        wait = 0 if differ and not cost else wait_us(view, limit, cost, now_us, tag)
        if wait != 0:
            refusing |= 1 << index
            if not limit.shadow:
                refusals[index] = wait
        views.append(view)
        waits.append(wait)
        kept.append(view if moved else None)
    if not refusals and check.cost > 0 and not check.dry:
        for index, (limit, cost) in enumerate(zip(limits, costs, strict=True)):
            if cost:
                member = check.lease and check.member(limit)
                views[index] = kept[index] = count(views[index], limit, cost, now_us, member)
    standings = tuple(
        [
            Standing(
                0 if wait != 0 else remaining(view, limit, now_us), reset_us(view, limit, now_us)
            )
            for wait, view, limit in zip(waits, views, limits, strict=True)
        ]
    )
    index = governing(limits, standings, refusals) if len(limits) > 1 else 0
    decision = Decision(not refusals, index, refusals.get(index), now_us, standings, refusing)
    return decision, tuple(kept)


def advance(state: State | None, limit: Limit, now_us: int) -> tuple[State, bool]:
    """A state as of this time, and whether it must be stored even if nothing is counted."""
    if isinstance(state, Window) and limit.rules.slotted:
        return _advance_window(state, limit, now_us)
    if limit.rules.calendar:
        return _advance_period(state, limit, now_us)
    if limit.is_leased:
        return _advance_leases(state, now_us, now_us + limit.window_us)
    return Window(now_us // limit.slot_us, (0,)), False


def wait_us(state: State, limit: Limit, cost: int, now_us: int, tag: int = 0) -> int | None:
    """The time until a state as of now admits the cost, if nothing else is sent; None: never.

    tag: of the request's connection; 0: a new one
    """
    if isinstance(state, Period):
        if state.count + cost <= limit.amount:
            return 0
        return reset_us(state, limit, now_us) if cost <= limit.amount else None
    if isinstance(state, Leases):
        if limit.rules.shared and tag in state.connections:
            return 0
        return 0 if state.held(limit) + min(cost, 1) <= limit.amount else LEASE_RETRY_US
    if cost > limit.peak:
        return None
    wait = 0
    excess = state.total + cost - limit.peak
    if excess > 0:
        wait = _leaves_us(state.slot - _age_of_excess(state.counts, excess), limit) - now_us
    if limit.burst is not None:
        wait = max(wait, state.full_at_us - now_us - (limit.peak - cost) * limit.unit_us)
    return wait


def count(state: State, limit: Limit, cost: int, now_us: int, member: Member = 0) -> State:
    """A state as of now with the cost counted, or with the lease added, if it is not 0."""
    if isinstance(state, Period):
        return Period(state.index, state.count + cost)
    if isinstance(state, Leases):
        return renew(state, (member,), now_us) if member else state
    added = min(cost, MOST - state.total)
    counts, total = (state.counts[0] + added, *state.counts[1:]), state.total + added
    if limit.burst is None:
        return Window(state.slot, counts, 0, 0, total)
    unit_us, full_at_us = limit.unit_us, max(now_us, state.full_at_us) + cost * limit.unit_us
    full_at_us = min(full_at_us, now_us + limit.peak * unit_us)
    return Window(state.slot, counts, full_at_us, unit_us, total)


def remaining(state: State, limit: Limit, now_us: int) -> int:
    """What remains of the amount. The part that a burst adds to it is not reported."""
    if isinstance(state, Period):
        return max(0, limit.amount - state.count)
    if isinstance(state, Leases):
        return max(0, limit.amount - state.held(limit))
    taken = state.total
    if limit.burst is not None:
        missing = -((now_us - state.full_at_us) // limit.unit_us)
        taken = missing if missing > taken else taken
    return max(0, limit.amount - taken)


def reset_us(state: State, limit: Limit, now_us: int) -> int:
    """The time until the whole amount is available again; of a quota, until its period ends.

    Of a concurrency limit, until the last lease expires, if none is released or renewed.
    """
    if isinstance(state, Period):
        end_us = (state.index + 1) * limit.window_us if limit.calendar is None else state.index
        return end_us - now_us
    if isinstance(state, Leases):
        return max(state.until_us.values(), default=now_us) - now_us
    reset = 0
    if state.total:
        age = 0
        while not state.counts[age]:
            age += 1
        reset = _leaves_us(state.slot - age, limit) - now_us
    if limit.burst is not None and state.full_at_us - now_us > reset:
        return state.full_at_us - now_us
    return reset


def expires_us(reset: int, limit: Limit, now_us: int) -> int:
    """When a state no longer affects any decision and may be deleted: one slot after its reset.

    reset: the time until then, as `reset_us` returns it
    """
    return now_us + max(1_000_000, reset + limit.slot_us)


def counted_in(limit: Limit, now_us: int) -> tuple[int, int]:
    """The first slot or period that still counts in a rate or quota, and the current one."""
    if limit.rules.slotted:
        slot = now_us // limit.slot_us
        return slot - SLOTS, slot
    if limit.calendar is None:
        index = now_us // limit.window_us
        return index, index
    return now_us + 1, limit.calendar.bounds(now_us).end


def renew(state: State | None, members: Iterable[Member], now_us: int) -> Leases:
    """The state with these leases renewed for their full time, lost ones included."""
    held = state.until_us if isinstance(state, Leases) else {}
    return Leases({**held, **dict.fromkeys(members, now_us + LEASE_US)})


def release(state: State | None, member: Member) -> Leases:
    """The state with a lease released; it may have expired before."""
    held = state.until_us if isinstance(state, Leases) else {}
    return Leases({other: until_us for other, until_us in held.items() if other != member})


def _advance_window(state: Window, limit: Limit, now_us: int) -> tuple[Window, bool]:
    slot, burst = now_us // limit.slot_us, limit.burst
    latest_us = 0 if burst is None else now_us + burst * limit.unit_us
    if slot == state.slot and (
        burst is None or (state.unit_us == limit.unit_us and state.full_at_us <= latest_us)
    ):
        return state, False
    passed = slot - state.slot
    if passed >= 0:
        counts = ((0,) * min(passed, LOOK_BACK) + state.counts)[:LOOK_BACK]
    else:
        counts = (sum(state.counts[: 1 - passed]), *state.counts[1 - passed :])
    if burst is None:
        return Window(slot, counts, state.full_at_us, state.unit_us), passed < 0
    full_at_us = state.full_at_us
    if state.unit_us not in {0, limit.unit_us}:
        # Another T: the units that are missing stay.
        ahead_us = max(0, full_at_us - now_us)
        full_at_us = now_us - (-ahead_us * limit.unit_us // state.unit_us)
    # The clock stepped back, or a change of policy made the bucket smaller.
    overfull = full_at_us > latest_us
    bucket = min(full_at_us, latest_us), limit.unit_us
    return Window(slot, counts, *bucket), passed < 0 or overfull


def _advance_period(state: State | None, limit: Limit, now_us: int) -> tuple[State, bool]:
    first, index = counted_in(limit, now_us)
    if not isinstance(state, Period) or state.index < first:
        return Period(index, 0), False
    return Period(index, state.count), state.index != index


def _advance_leases(state: State | None, now_us: int, latest_us: int) -> tuple[State, bool]:
    held = state.until_us if isinstance(state, Leases) else {}
    living = {member: until for member, until in held.items() if until > now_us}
    if max(living.values(), default=0) <= latest_us:
        return Leases(living), False
    return Leases({member: min(until, latest_us) for member, until in living.items()}), True


def _leaves_us(slot: int, limit: Limit) -> int:
    """The time from which a slot is no longer counted."""
    return (slot + LOOK_BACK) * limit.slot_us


def _age_of_excess(counts: tuple[int, ...], excess: int) -> int:
    """The age in slots of the newest slot that must leave the window to remove the excess."""
    age = len(counts)
    while excess > 0:
        age -= 1
        excess -= counts[age]
    return age
