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
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Window:
    """The state of a rate.

    slot:       the number of the newest slot: 1_767_292_772
    counts:     admitted in that slot, in the one before it, and so on; at most 61
    full_at_us: when the bucket is full again; 0: it is full, or the limit had no burst
    unit_us:    the T that full_at_us was computed with; 0: not known (written by an older version,
                or without a burst)
    """

    slot: int
    counts: tuple[int, ...]
    full_at_us: int = 0
    unit_us: int = 0


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
    advanced = [
        advance(state, limit, now_us) for state, limit in zip(states, check.limits, strict=True)
    ]
    costs, differ = check.each_cost, check.costs is not None
    tag = check.lease and (check.connection or check.lease)
    waits = [
        # A limit in which the request counts nothing does not refuse it.
        0 if differ and not cost else wait_us(state, limit, cost, now_us, tag)
        for (state, _), limit, cost in zip(advanced, check.limits, costs, strict=True)
    ]
    refusing = sum(1 << index for index, wait in enumerate(waits) if wait != 0)
    refusals = {
        index: wait
        for index, (wait, limit) in enumerate(zip(waits, check.limits, strict=True))
        if wait != 0 and not limit.shadow
    }
    kept: tuple[State | None, ...] = tuple(state if moved else None for state, moved in advanced)
    views = [state for state, _ in advanced]
    if not refusals and check.cost > 0 and not check.dry:
        views = [
            count(state, limit, cost, now_us, check.lease and check.member(limit))
            if cost
            else state
            for state, limit, cost in zip(views, check.limits, costs, strict=True)
        ]
        kept = tuple(
            view if cost else state for view, state, cost in zip(views, kept, costs, strict=True)
        )
    standings = tuple(
        Standing(
            0 if wait != 0 else remaining(state, limit, now_us), reset_us(state, limit, now_us)
        )
        for wait, state, limit in zip(waits, views, check.limits, strict=True)
    )
    index = governing(check.limits, standings, refusals)
    decision = Decision(not refusals, index, refusals.get(index), now_us, standings, refusing)
    return decision, kept


def advance(state: State | None, limit: Limit, now_us: int) -> tuple[State, bool]:
    """A state as of this time, and whether it must be stored even if nothing is counted."""
    if limit.rules.calendar:
        return _advance_period(state, limit, now_us)
    if limit.is_leased:
        return _advance_leases(state, now_us, now_us + limit.window_us)
    if not isinstance(state, Window):
        return Window(now_us // limit.slot_us, (0,)), False
    slot = now_us // limit.slot_us
    passed = slot - state.slot
    if passed >= 0:
        counts = ((0,) * min(passed, LOOK_BACK) + state.counts)[:LOOK_BACK]
    else:
        counts = (sum(state.counts[: 1 - passed]), *state.counts[1 - passed :])
    if limit.burst is None:
        return Window(slot, counts, state.full_at_us, state.unit_us), passed < 0
    full_at_us, latest_us = state.full_at_us, now_us + limit.peak * limit.unit_us
    if state.unit_us not in {0, limit.unit_us}:
        # Another T: the units that are missing stay.
        full_at_us = now_us - (-ahead_us(state, now_us) * limit.unit_us // state.unit_us)
    # The clock stepped back, or a change of policy made the bucket smaller.
    overfull = full_at_us > latest_us
    bucket = min(full_at_us, latest_us), limit.unit_us
    return Window(slot, counts, *bucket), passed < 0 or overfull


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
    excess = sum(state.counts) + cost - limit.peak
    if excess > 0:
        wait = _leaves_us(state.slot - _age_of_excess(state.counts, excess), limit) - now_us
    if limit.burst is not None:
        wait = max(wait, ahead_us(state, now_us) - (limit.peak - cost) * limit.unit_us)
    return wait


def count(state: State, limit: Limit, cost: int, now_us: int, member: Member = 0) -> State:
    """A state as of now with the cost counted, or with the lease added, if it is not 0."""
    if isinstance(state, Period):
        return Period(state.index, state.count + cost)
    if isinstance(state, Leases):
        return renew(state, (member,), now_us) if member else state
    added = min(cost, MOST - sum(state.counts))
    counts = (state.counts[0] + added, *state.counts[1:])
    if limit.burst is None:
        return Window(state.slot, counts)
    ahead = min(ahead_us(state, now_us) + cost * limit.unit_us, limit.peak * limit.unit_us)
    return Window(state.slot, counts, now_us + ahead, limit.unit_us)


def remaining(state: State, limit: Limit, now_us: int) -> int:
    """What remains of the amount. The part that a burst adds to it is not reported."""
    if isinstance(state, Period):
        return max(0, limit.amount - state.count)
    if isinstance(state, Leases):
        return max(0, limit.amount - state.held(limit))
    left = limit.peak - sum(state.counts)
    if limit.burst is not None:
        left = min(left, limit.peak - -(-ahead_us(state, now_us) // limit.unit_us))
    return max(0, left - (limit.peak - limit.amount))


def reset_us(state: State, limit: Limit, now_us: int) -> int:
    """The time until the whole amount is available again; of a quota, until its period ends.

    Of a concurrency limit, until the last lease expires, if none is released or renewed.
    """
    if isinstance(state, Period):
        end_us = (state.index + 1) * limit.window_us if limit.calendar is None else state.index
        return end_us - now_us
    if isinstance(state, Leases):
        return max(state.until_us.values(), default=now_us) - now_us
    age = next((age for age, counted in enumerate(state.counts) if counted), None)
    reset = 0 if age is None else _leaves_us(state.slot - age, limit) - now_us
    return max(reset, ahead_us(state, now_us)) if limit.burst is not None else reset


def expires_us(state: State, limit: Limit, now_us: int) -> int:
    """When a state no longer affects any decision and may be deleted: one slot after its reset."""
    return now_us + max(1_000_000, reset_us(state, limit, now_us) + limit.slot_us)


def renew(state: State | None, members: Iterable[Member], now_us: int) -> Leases:
    """The state with these leases renewed for their full time, lost ones included."""
    held = state.until_us if isinstance(state, Leases) else {}
    return Leases({**held, **dict.fromkeys(members, now_us + LEASE_US)})


def release(state: State | None, member: Member) -> Leases:
    """The state with a lease released; it may have expired before."""
    held = state.until_us if isinstance(state, Leases) else {}
    return Leases({other: until_us for other, until_us in held.items() if other != member})


def ahead_us(state: Window, now_us: int) -> int:
    """The time until the bucket is full again."""
    return max(0, state.full_at_us - now_us)


def _advance_period(state: State | None, limit: Limit, now_us: int) -> tuple[State, bool]:
    if limit.calendar is None:
        index = first = now_us // limit.window_us
    else:
        index, first = limit.calendar.bounds(now_us).end, now_us + 1
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
