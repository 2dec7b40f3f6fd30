"""Tests of every limiter, whatever store it uses.

Three sources define what is right: recorded traces, a recount from all admissions at each check,
and properties that hold for any values.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.domain.limits import LEASE_US, PERIODS_US, Check, Decision, Limit
from tests.kit.reach import reached, reaches
from tests.kit.rows import each_row
from tests.suites import every_rig

VECTORS = Path(__file__).parent.parent / "vectors"
START_US = 1_767_292_772_747_369

#: Of a request in all limits, or in each of them.
Cost = int | tuple[int, ...]
#: A moment and a cost.
Step = tuple[int, int]
#: Limits, and the steps under them.
Part = tuple[tuple[Limit, ...], list[Step]]
#: Before a step, by its index, the steps whose requests have ended by then.
Ends = Mapping[int, Sequence[int]]
#: The connection of each step, 0: none, and the worker that has it.
Tags = Sequence[tuple[int, int]]


class Rig(Protocol):
    """A limiter under test, and its clock."""

    def ask(self, asked: Sequence[tuple[int, Check]]) -> list[Decision]:
        """Decide each check at its time, in order."""
        ...

    def fresh(self, limits: Sequence[Limit]) -> Check:
        """A check of these limits with unused counters."""
        ...

    def release(self, check: Check) -> None:
        """End the check's request."""
        ...


def at_cost(check: Check, cost: Cost) -> Check:
    if isinstance(cost, int):
        return check.at_cost(cost)
    return Check(check.limits, check.counters, max(cost), costs=cost)


def replay(
    rig: Rig,
    limits: Sequence[Limit],
    steps: Sequence[tuple[int, Cost]],
    ends: Ends | None = None,
    tags: Tags | None = None,
) -> list[Decision]:
    """Steps with a cost take leases of concurrency limits, and hold them until their end, if they
    have one.
    """
    check = rig.fresh(limits)
    asked = [(now_us, at_cost(check, cost)) for now_us, cost in steps]
    if check.leases:
        asked = [
            (now_us, held(one, number, tags[number - 1] if tags else (0, 0)) if one.cost else one)
            for number, (now_us, one) in enumerate(asked, 1)
        ]
    decisions: list[Decision] = []
    for turn in sorted(ends or ()):
        decisions += rig.ask(asked[len(decisions) : turn])
        for ended in (ends or {})[turn]:
            rig.release(asked[ended][1])
    return decisions + rig.ask(asked[len(decisions) :])


def held(check: Check, number: int, tags: tuple[int, int]) -> Check:
    """The check with its lease, as that of a connection in a worker."""
    leased = check.leased(number, tags[0])
    leased.holder = tags[1]
    return leased


def replay_changes(rig: Rig, parts: Sequence[Part]) -> list[Decision]:
    """Steps under limits that change: each part continues with the counters of the previous one."""
    of_all = {limit.counter: limit for limits, _ in parts for limit in limits}
    names = dict(zip(of_all, rig.fresh(list(of_all.values())).counters, strict=True))
    return rig.ask(
        [
            (now_us, Check(limits, tuple(names[limit.counter] for limit in limits), cost))
            for limits, taken in parts
            for now_us, cost in taken
        ]
    )


# -- the recount ----------------------------------------------------------------------------------


@dataclass
class Recount:
    """One limit, counted in the simplest way: a list of (slot or period, cost)."""

    limit: Limit
    events: list[tuple[int, int]] = field(default_factory=list)
    full_at: int = 0
    #: The time of a token by which `full_at` was reckoned; 0: there is no bucket.
    kept_token: int = 0
    #: Both, as they stay unless something is admitted now.
    stored: tuple[int, int] = (0, 0)

    @property
    def width(self) -> int:
        return (
            self.limit.window_us if self.limit.kind == "quota" else -(-self.limit.window_us // 60)
        )

    @property
    def reach(self) -> int:
        return 0 if self.limit.kind == "quota" else 60

    @property
    def token(self) -> int:
        return -(-self.limit.window_us // self.limit.amount)

    @property
    def peak(self) -> int:
        return self.limit.amount if self.limit.burst is None else self.limit.burst

    def look(self, now: int) -> None:
        """After a step back of the clock, admissions in the future count as of now."""
        self.events = [(min(slot, now // self.width), cost) for slot, cost in self.events]
        if self.limit.burst is not None and self.kept_token in {0, self.token}:
            self.full_at = min(self.full_at, now + self.peak * self.token)
        self.stored = self.full_at, self.kept_token
        if self.limit.burst is not None and self.kept_token not in {0, self.token}:
            # The tokens that are missing stay, whatever time each takes now.
            missing = -(-max(0, self.full_at - now) * self.token // self.kept_token)
            self.full_at = now + min(missing, self.peak * self.token)
            self.kept_token = self.token
            if missing > self.peak * self.token:
                self.stored = self.full_at, self.kept_token

    def used(self, now: int) -> int:
        last = now // self.width
        first = last - self.reach
        return sum(cost for slot, cost in self.events if first <= slot <= last)

    def ahead(self, now: int) -> int:
        return 0 if self.limit.burst is None else max(0, self.full_at - now)

    def admits(self, now: int, cost: int) -> bool:
        fits = self.ahead(now) + cost * self.token <= self.peak * self.token
        return self.used(now) + cost <= self.peak and (self.limit.burst is None or fits)

    def admit(self, now: int, cost: int, _member: object) -> None:
        last = now // self.width
        ahead = min(self.ahead(now) + cost * self.token, self.peak * self.token)
        has_bucket = self.limit.burst is not None
        self.full_at, self.kept_token = (now + ahead, self.token) if has_bucket else (0, 0)
        kept = [event for event in self.events if event[0] >= last - self.reach]
        self.events = [*kept, (last, cost)]

    def remaining(self, now: int) -> int:
        tokens = self.peak - -(-self.ahead(now) // self.token)
        reserve = self.peak - self.limit.amount
        return max(0, min(self.peak - self.used(now), tokens) - reserve)

    def moments(self, now: int, cost: int) -> list[int]:
        """All future times at which an answer can change."""
        first = now // self.width
        turns = [slot * self.width for slot in range(first + 1, first + self.reach + 2)]
        return sorted(
            {now, *turns, self.full_at, self.full_at - (self.peak - cost) * self.token} - {0}
        )

    def reset(self, now: int) -> int:
        if self.limit.kind == "quota":
            return (now // self.width + 1) * self.width - now
        return next(
            moment - now
            for moment in self.moments(now, 0)
            if moment >= now and self.used(moment) == 0 and self.ahead(moment) == 0
        )

    def retry(self, now: int, cost: int) -> float:
        moments = self.moments(now, cost)
        waits = (m - now for m in moments if m >= now and self.admits(m, cost))
        return next(waits, float("inf"))


@dataclass
class HeldCount:
    """One concurrency limit: when each lease expires, of a step or of a connection in a worker.

    asking: who asks: a step; or a connection, with the worker
    """

    limit: Limit
    until: dict[object, int] = field(default_factory=dict)
    asking: object = None

    def look(self, now: int) -> None:
        """As with rates, a check by a clock that was ahead removes nothing."""
        latest = now + LEASE_US
        if any(until > latest for until in self.until.values()):
            self.until = {n: min(until, latest) for n, until in self.living(now).items()}

    def living(self, now: int) -> dict[object, int]:
        return {n: until for n, until in self.until.items() if until > now}

    def counted(self, now: int) -> set[object]:
        return set(self.living(now))

    def admits(self, now: int, cost: int) -> bool:
        return len(self.counted(now)) + (cost > 0) <= self.limit.amount

    def admit(self, now: int, _cost: int, member: object) -> None:
        self.until = {**self.living(now), member: now + LEASE_US}

    def remaining(self, now: int) -> int:
        return max(0, self.limit.amount - len(self.counted(now)))

    def reset(self, now: int) -> int:
        return max((until - now for until in self.living(now).values()), default=0)

    def retry(self, _now: int, _cost: int) -> float:
        return 1_000_000


class ConnectionCount(HeldCount):
    """One limit of connections."""

    def counted(self, now: int) -> set[object]:
        return {member[0] for member in self.living(now) if isinstance(member, tuple)}

    def admits(self, now: int, cost: int) -> bool:
        assert isinstance(self.asking, tuple)
        return self.asking[0] in self.counted(now) or super().admits(now, cost)


@dataclass
class PeriodCount:
    """A quota whose periods differ in length: counted by the local dates on which they begin."""

    limit: Limit
    #: The end of the period in which something was counted last, and how much.
    ends: int = 0
    counted: int = 0

    def look(self, now: int) -> None:
        if self.ends <= now:
            self.counted = 0
        self.ends = self.end(now)

    def end(self, now: int) -> int:
        """The next moment at which a period begins, tried in steps, then exactly.

        No step is longer than a period: a day has at least 23 hours.
        """
        zone = ZoneInfo(self.limit.zone)
        step_s = 3_600 if self.limit.unit == "hour" else 12 * 3_600
        high = now // 1_000_000
        current = self.period(high, zone)
        while self.period(high, zone) == current:
            high += step_s
        low = high - step_s
        while high - low > 1:
            middle = (low + high) // 2
            is_same = self.period(middle, zone) == current
            low, high = (middle, high) if is_same else (low, middle)
        return high * 1_000_000

    def period(self, at_s: int, zone: ZoneInfo) -> object:
        local = datetime.fromtimestamp(at_s, zone)
        if self.limit.unit == "hour":
            # Clocks are put back by a whole hour, and show that hour twice.
            return (at_s + int((local.utcoffset() or timedelta()).total_seconds()) % 3600) // 3600
        if self.limit.unit == "day":
            return local.date()
        if self.limit.unit == "week":
            return local.isocalendar()[:2]
        # Days in advance of the month's beginning belong to the month before.
        day, month = local.day, local.year * 12 + local.month
        last = (local.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
        return month if day >= min(self.limit.month_day, last.day) else month - 1

    def admits(self, _now: int, cost: int) -> bool:
        return self.counted + cost <= self.limit.amount

    def admit(self, _now: int, cost: int, _member: object) -> None:
        self.counted += cost

    def remaining(self, _now: int) -> int:
        return max(0, self.limit.amount - self.counted)

    def reset(self, now: int) -> int:
        return self.ends - now

    def retry(self, now: int, cost: int) -> float:
        return self.reset(now) if cost <= self.limit.amount else float("inf")


def count_of(limit: Limit) -> Recount | PeriodCount | HeldCount:
    if limit.kind == "concurrency":
        return HeldCount(limit)
    if limit.kind == "connections":
        return ConnectionCount(limit)
    return Recount(limit) if limit.calendar is None else PeriodCount(limit)


def recount(
    limits: Sequence[Limit],
    steps: Sequence[tuple[int, Cost]],
    ends: Ends | None = None,
    tags: Tags | None = None,
) -> Iterator[dict[str, Any]]:
    yield from recount_with([count_of(limit) for limit in limits], steps, ends, tags)


def recount_changes(parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    """A limit with the same counter continues with its counts."""
    kept: dict[str, Recount | PeriodCount | HeldCount] = {}
    for limits, taken in parts:
        for limit in limits:
            kept.setdefault(limit.counter, count_of(limit)).limit = limit
        yield from recount_with([kept[limit.counter] for limit in limits], taken)


def recount_with(
    counts: Sequence[Recount | PeriodCount | HeldCount],
    steps: Sequence[tuple[int, Cost]],
    ends: Ends | None = None,
    tags: Tags | None = None,
) -> Iterator[dict[str, Any]]:
    limits = [count.limit for count in counts]

    def member(turn: int, count: object) -> object:
        if not isinstance(count, ConnectionCount):
            return turn
        return tags[turn] if tags and tags[turn][0] else (f"the request of step {turn}", 0)

    all_costs = [(cost,) * len(limits) if isinstance(cost, int) else cost for _, cost in steps]
    for turn, (now, cost) in enumerate(steps):
        costs = all_costs[turn]
        # Only where all cost the same does one refuse at cost 0: it has admitted too much before.
        asked = [isinstance(cost, int) or units > 0 for units in costs]
        for i, count in enumerate(counts):
            if isinstance(count, HeldCount):
                for ended in (ends or {}).get(turn, ()):
                    if all_costs[ended][i]:
                        count.until.pop(member(ended, count), None)
                # Without a cost a step has no lease, and is of no connection.
                count.asking = member(turn, count) if any(costs) else (None, 0)
            count.look(now)
        refusing = {
            i for i, count in enumerate(counts) if asked[i] and not count.admits(now, costs[i])
        }
        enforced = [i for i, limit in enumerate(limits) if not limit.shadow]
        refused = [i for i in enforced if i in refusing]
        admitted = [not refused and units > 0 for units in costs]
        for count, units, counted in zip(counts, costs, admitted, strict=True):
            if counted:
                count.admit(now, units, member(turn, count))
        left = [0 if i in refusing else c.remaining(now) for i, c in enumerate(counts)]
        retry: float | None = None
        if refused:
            retry = max(counts[i].retry(now, costs[i]) for i in refused)
            governing = next(i for i in refused if counts[i].retry(now, costs[i]) == retry)
        else:
            counted = [i for i in enforced if not isinstance(counts[i], HeldCount)]
            governing = min(counted or enforced or [0], key=left.__getitem__)
        yield {
            "allowed": not refused,
            "governing": governing,
            "remaining": left,
            "reset_us": [count.reset(now) for count in counts],
            "retry_us": None if retry == float("inf") else retry,
            "refusing": refusing,
        }
        for count, counted in zip(counts, admitted, strict=True):
            if isinstance(count, Recount) and not counted:
                count.full_at, count.kept_token = count.stored


def as_figures(decision: Decision) -> dict[str, Any]:
    return {
        "allowed": decision.allowed,
        "governing": decision.governing,
        "remaining": [standing.remaining for standing in decision.standings],
        "reset_us": [standing.reset_us for standing in decision.standings],
        "retry_us": decision.retry_us,
        "refusing": {bit for bit in range(32) if decision.refusing >> bit & 1},
    }


# -- what is tried --------------------------------------------------------------------------------


# Strategies are made once: to make one for each draw takes as long as the draw.
KINDS = st.sampled_from(("rate", "rate", "burst", "burst", "quota"))
AMOUNTS = st.integers(1, 9)
WINDOWS_US = st.sampled_from((1_000_000, 60_000_000, 100_003, 3_600_000_000))
MORE = st.integers(0, 6)
ONE_OF_FIVE = st.integers(0, 4)
ONE_OF_SIX = st.integers(0, 5)
NEARLY = st.integers(-1, 1)
COSTS = st.sampled_from((1, 1, 1, 1, 2, 3, 0, 12))
EACH_COST = st.sampled_from((0, 0, 1, 1, 2, 3, 12))
LEAPS_US = st.sampled_from((0, 0, 1, 3_600_000_000, 86_400_000_000))
UNITS = st.sampled_from((1, 1, 1, 0))
TAGS = st.tuples(st.sampled_from((0, 101, 102, 103, 2**52)), st.sampled_from((21, 22, 2**52)))


@st.composite
def limit(draw: st.DrawFn, name: str = "plan") -> Limit:
    kind = draw(KINDS)
    amount = draw(AMOUNTS)
    window_us = draw(WINDOWS_US)
    burst = amount + draw(MORE) if kind == "burst" else None
    return Limit(name, "quota" if kind == "quota" else "rate", amount, window_us, burst)


@st.composite
def limits(draw: st.DrawFn) -> tuple[Limit, ...]:
    names = ("plan", "search", "daily")[: draw(st.integers(1, 3))]
    return tuple(replace(draw(limit(name)), shadow=draw(ONE_OF_FIVE) == 0) for name in names)


@st.composite
def steps(draw: st.DrawFn, of: Sequence[Limit], *, back: bool = False) -> list[Step]:
    """Times at and around the boundaries of slots, tokens and windows."""
    units = [0, 0, 1, *(u for x in of for u in (x.slot_us, x.unit_us, x.window_us, x.slot_us * 61))]
    now_us = START_US + draw(st.integers(0, 2 * of[0].window_us))
    leaps = st.sampled_from(units)
    taken: list[Step] = []
    for _ in range(draw(st.integers(1, 40))):
        leap = draw(leaps) + draw(NEARLY)
        forward = not back or draw(ONE_OF_SIX) > 0
        now_us += max(0, leap) if forward else -abs(leap)
        taken.append((now_us, draw(COSTS)))
    return taken


@st.composite
def traces(draw: st.DrawFn, *, back: bool = False) -> tuple[tuple[Limit, ...], list[Step]]:
    of = draw(limits())
    return of, draw(steps(of, back=back))


@st.composite
def leased(
    draw: st.DrawFn, *, back: bool = False
) -> tuple[tuple[Limit, ...], list[Step], dict[int, list[int]]]:
    """Limits of all kinds, steps, and the ends of some of them: soon after, late, twice, never."""
    of = [*draw(limits())] if draw(st.booleans()) else []
    for name in ("connections", "sessions")[: draw(st.integers(1, 2))]:
        held = Limit(name, "concurrency", draw(st.integers(1, 4)), LEASE_US)
        held = replace(held, shadow=draw(ONE_OF_FIVE) == 0)
        of.insert(draw(st.integers(0, len(of))), held)
    taken = draw(steps([Limit("x", "concurrency", 3, LEASE_US), *of], back=back))
    ends: dict[int, list[int]] = {}
    for turn in range(1, len(taken)):
        if draw(st.integers(0, 2)) == 0:
            ends[turn] = draw(st.lists(st.integers(max(0, turn - 4), turn - 1), max_size=3))
    return tuple(of), taken, ends


@st.composite
def costed(
    draw: st.DrawFn,
) -> tuple[tuple[Limit, ...], list[tuple[int, Cost]], dict[int, list[int]]]:
    """The same, where some steps have another cost in each limit."""
    of, taken, ends = draw(leased(back=True))
    each = st.tuples(*(EACH_COST for _ in of))
    costs = ((at_us, draw(each) if draw(st.booleans()) else cost) for at_us, cost in taken)
    return of, list(costs), ends


#: Limits, steps, the ends of some of them, and the connection of each.
Connected = tuple[tuple[Limit, ...], list[tuple[int, Cost]], Ends, Tags]


@st.composite
def connected(draw: st.DrawFn) -> Connected:
    """The same for limits of all kinds: few connections, with requests in several workers."""
    of, taken, ends = draw(costed())
    counting = Limit("clients", "connections", draw(st.integers(1, 3)), LEASE_US)
    counting = replace(counting, shadow=draw(ONE_OF_FIVE) == 0)
    at = draw(st.integers(0, len(of)))
    wider: list[tuple[int, Cost]] = [
        (now_us, cost if isinstance(cost, int) else (*cost[:at], draw(UNITS), *cost[at:]))
        for now_us, cost in taken
    ]
    return (*of[:at], counting, *of[at:]), wider, ends, [draw(TAGS) for _ in taken]


@st.composite
def changes(draw: st.DrawFn) -> list[Part]:
    """Parts of a trace: between them, amounts and bursts change, and sometimes kinds."""
    of, now_us = draw(limits()), 0
    parts: list[Part] = []
    for _ in range(draw(st.integers(2, 4))):
        taken = draw(steps(of))
        shift = max(0, now_us - taken[0][0])
        parts.append((of, [(at_us + shift, cost) for at_us, cost in taken]))
        now_us = parts[-1][1][-1][0]
        of = tuple(draw(changed(x)) for x in of)
    return parts


@st.composite
def changed(draw: st.DrawFn, of: Limit) -> Limit:
    other = draw(limit(of.name))
    if draw(ONE_OF_SIX):
        burst = other.burst if of.kind == "rate" else None
        return replace(of, amount=other.amount, burst=burst)
    return replace(other, shadow=of.shadow)


@st.composite
def dated(draw: st.DrawFn) -> tuple[tuple[Limit, ...], list[Step]]:
    """Quotas whose periods differ in length, and steps at and around the ends of their periods."""
    of: list[Limit] = [draw(limit())] if draw(st.booleans()) else []
    zones = ("UTC", "Europe/Berlin", "America/Santiago", "Asia/Kolkata", "America/Havana")
    for name in ("weekly", "monthly")[: draw(st.integers(1, 2))]:
        window_us = PERIODS_US[draw(st.sampled_from(("hour", "day", "week", "month", "month")))]
        plain = Limit(name, "quota", draw(st.integers(1, 9)), window_us, shadow=draw(st.booleans()))
        day = draw(st.sampled_from((1, 2, 15, 28, 29, 30, 31)))
        of.append(replace(plain, zone=draw(st.sampled_from(zones)), month_day=day))
    now_us = START_US + draw(st.integers(0, 3 * 366 * 24)) * 3_600_000_000
    taken: list[Step] = []
    calendars = st.sampled_from([x.calendar for x in of])
    for _ in range(draw(st.integers(1, 30))):
        calendar = draw(calendars)
        leap = draw(LEAPS_US)
        if calendar is not None and draw(st.booleans()):
            leap = calendar.bounds(now_us).end - now_us + draw(NEARLY)
        now_us += leap
        taken.append((now_us, draw(COSTS)))
    return tuple(of), taken


def vectors(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def assert_as_recorded(of: Sequence[Limit], decision: Decision, wanted: dict[str, Any]) -> None:
    """Is a decision the recorded one? Times may differ by 1 ms."""
    assert decision.allowed == wanted["allowed"]
    assert of[decision.governing].name == wanted["limit"]
    assert decision.remaining == wanted["remaining"]
    assert abs(decision.reset_us - wanted["reset_us"]) <= 1_000
    retry_us = wanted.get("retry_us")
    assert (decision.retry_us is None) == (retry_us is None)
    assert abs((decision.retry_us or 0) - (retry_us or 0)) <= 1_000


def read_limit(written: dict[str, Any]) -> Limit:
    kind = "rate" if "rate" in written else "quota"
    amount, _, unit = written[kind].partition("/")
    return Limit(written["name"], kind, int(amount), PERIODS_US[unit], written.get("burst"))


#: The fixture only hands over a limiter; each example counts under names of its own. The same test
#: runs for several stores: without a database no run replays what another one found.
examples = settings(
    max_examples=min(80, settings().max_examples),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)

FREE = Limit("plan", "rate", 60, 60_000_000, 100)
FIVE = Limit("webhook-test", "rate", 5, 60_000_000)
HELD = Limit("connections", "concurrency", 3, LEASE_US)
CLIENTS = Limit("clients", "connections", 2, LEASE_US)


class LimiterSuite:
    """Inherit, and provide the fixture `rig`."""

    @each_row("case", vectors("limiter"))
    def test_recorded_traces(self, rig: Rig, case: dict[str, Any]) -> None:
        """Each step of a recorded trace gives the recorded decision, times within 1 ms."""
        of = tuple(map(read_limit, case["limits"]))
        decisions = replay(rig, of, [(now_us, cost) for now_us, cost, _ in case["steps"]])
        assert decisions
        for (_, _, wanted), decision in zip(case["steps"], decisions, strict=True):
            assert_as_recorded(of, decision, wanted)

    @each_row("case", vectors("limiter-changes"))
    def test_recorded_changes(self, rig: Rig, case: dict[str, Any]) -> None:
        """So does each step of a trace in which the values of its limits change."""
        of = tuple(map(read_limit, case["limits"]))
        parts: list[Part] = [(of, [])]
        wanted: list[tuple[tuple[Limit, ...], dict[str, Any]]] = []
        for now_us, step, *found in case["steps"]:
            if found:
                parts[-1][1].append((now_us, step))
                wanted.append((parts[-1][0], found[0]))
            else:
                parts.append((tuple(map(read_limit, step["limits"])), []))
        decisions = replay_changes(rig, parts)
        assert decisions
        for (of, expected), decision in zip(wanted, decisions, strict=True):
            assert_as_recorded(of, decision, expected)

    @every_rig
    @given(parts=changes())
    @examples
    def test_changes_recounted(self, rig: Rig, parts: list[Part]) -> None:
        """Limits whose values change are decided as by a recount."""
        answers = [as_figures(decision) for decision in replay_changes(rig, parts)]
        assert answers == list(recount_changes(parts))

    @given(trace=traces(back=True))
    @examples
    def test_recount(self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step]]) -> None:
        """Any trace, with clock steps back, is decided as by a recount."""
        of, taken = trace
        assert [as_figures(d) for d in replay(rig, of, taken)] == list(recount(of, taken))

    @reaches(0.1)
    @given(trace=traces())
    @examples
    def test_promise(self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step]]) -> None:
        """No span of one window has more than the peak, and none more than the bucket gives."""
        of, taken = trace
        decisions = replay(rig, of, taken)
        passed = [step for step, decision in zip(taken, decisions, strict=True) if decision.allowed]
        for x in of:
            for index, (start_us, _) in enumerate(passed):
                sent = 0
                for now_us, cost in () if x.shadow else passed[index:]:
                    reached()
                    sent += cost
                    if x.kind == "rate" and now_us - start_us < x.window_us:
                        assert sent <= x.peak
                    if x.burst is not None:
                        assert sent * x.unit_us <= x.peak * x.unit_us + now_us - start_us
                    if x.kind == "quota" and now_us // x.window_us == start_us // x.window_us:
                        assert sent <= x.amount

    @given(trace=traces())
    @examples
    def test_refusals_cost_nothing(
        self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step]]
    ) -> None:
        """A trace without its refused and cost-0 steps has the same decisions."""
        of, taken = trace
        whole = list(zip(taken, replay(rig, of, taken), strict=True))
        counted = [(step, decision) for step, decision in whole if decision.allowed and step[1]]
        assert replay(rig, of, [step for step, _ in counted]) == [d for _, d in counted]

    @reaches(0.05)
    @given(trace=traces(back=True), seconds=st.booleans())
    @examples
    def test_waiting_is_enough(
        self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step]], seconds: bool
    ) -> None:
        """A check passes after the returned wait, in microseconds or whole seconds; no sooner."""
        of, taken = trace
        for index, decision in enumerate(replay(rig, of, taken)):
            if decision.retry_us is None:
                continue
            now_us, cost = taken[index]
            wait_us = (
                -(-decision.retry_us // 1_000_000) * 1_000_000 if seconds else decision.retry_us
            )
            past = taken[: index + 1]
            early, late = (now_us + decision.retry_us - 1, cost), (now_us + wait_us, cost)
            reached()
            assert decision.retry_us >= 1
            *_, too_early, in_time = replay(rig, of, [*past, early, late])
            assert not too_early.allowed
            assert in_time.allowed
            break

    @reaches(0.3)
    @given(trace=leased(), values=limit("plan:candidate"), at=st.integers(0, 3))
    @examples
    def test_a_candidate_changes_nothing(
        self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step], Ends], values: Limit, at: int
    ) -> None:
        """With or without candidates, the other limits decide the same and report the same."""
        of, taken, ends = trace
        place = min(at, len(of) - 1) + 1
        tried = replace(values, shadow=True, is_candidate=True)
        with_it = replay(rig, (*of[:place], tried, *of[place:]), taken, ends)
        for plain, decision in zip(replay(rig, of, taken, ends), with_it, strict=True):
            low, high = decision.refusing & ((1 << place) - 1), decision.refusing >> (place + 1)
            reached()
            assert plain == replace(
                decision,
                governing=decision.governing - (decision.governing > place),
                standings=(*decision.standings[:place], *decision.standings[place + 1 :]),
                refusing=low | high << place,
            )
            assert decision.governing != place

    @given(trace=traces(back=True))
    @examples
    def test_reset(self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step]]) -> None:
        """After the resets of all limits each is full again."""
        of, taken = trace
        last = replay(rig, of, taken)[-1]
        rested_us = taken[-1][0] + max(standing.reset_us for standing in last.standings)
        rested = replay(rig, of, [*taken, (rested_us, 0)])[-1]
        assert [standing.remaining for standing in rested.standings] == [x.amount for x in of]

    @given(trace=dated())
    @examples
    def test_periods_recounted(self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step]]) -> None:
        """Quotas per week and month, in time zones and from a day, are decided as by a recount."""
        answers = [as_figures(decision) for decision in replay(rig, *trace)]
        assert answers == list(recount(*trace))

    @every_rig
    def test_months(self, rig: Rig) -> None:
        """A month from the 31st ends on the last day of a short one, at 0:00 in the zone."""
        billed = Limit("m", "quota", 2, PERIODS_US["month"], zone="Europe/Berlin", month_day=31)
        zone = ZoneInfo("Europe/Berlin")
        begins = [datetime(2026, 1, 31, tzinfo=zone), datetime(2026, 2, 28, tzinfo=zone)]
        first_us, second_us = (round(one.timestamp()) * 1_000_000 for one in begins)
        asked = [(first_us, 2), (second_us - 1, 1), (second_us, 2), (second_us, 1)]
        decisions = replay(rig, (billed,), asked)
        assert [decision.allowed for decision in decisions] == [True, False, True, False]
        assert [decision.retry_us for decision in decisions] == [
            *(None, 1, None),
            # To March 31, across the day on which the clocks are put forward.
            (31 * 24 - 1) * 3_600_000_000,
        ]

    @every_rig
    def test_another_billing_day(self, rig: Rig) -> None:
        """Another billing day changes when a period ends, and keeps what was counted in it."""
        zoned = Limit("m", "quota", 9, PERIODS_US["month"], billing=True, month_day=15)
        day_us, jan_20 = 86_400_000_000, 1_768_867_200_000_000
        check = rig.fresh((zoned,))
        days = {day: Check((replace(zoned, month_day=day),), check.counters) for day in (1, 15, 25)}
        first, sooner, later, renewed = rig.ask(
            [
                (jan_20, days[15].at_cost(4)),
                (jan_20, days[25]),
                (jan_20, days[1]),
                (jan_20 + 12 * day_us, days[1]),
            ]
        )
        assert [one.remaining for one in (first, sooner, later, renewed)] == [5, 4, 3, 8]
        ends = [(one.reset_us // day_us) for one in (first, sooner, later, renewed)]
        assert ends == [26, 5, 12, 28]

    @given(trace=leased(back=True))
    @examples
    def test_leases_recounted(
        self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step], dict[int, list[int]]]
    ) -> None:
        """Limits of all kinds, with requests that end, are decided as by a recount."""
        answers = [as_figures(decision) for decision in replay(rig, *trace)]
        assert answers == list(recount(*trace))

    @reaches(0.1)
    @given(trace=leased())
    @examples
    def test_never_more_leases(
        self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step], dict[int, list[int]]]
    ) -> None:
        """Never are more leases held than a limit allows, even if other limits refuse."""
        of, taken, ends = trace
        held: dict[int, int] = {}
        for turn, decision in enumerate(replay(rig, of, taken, ends)):
            now_us, cost = taken[turn]
            for ended in ends.get(turn, ()):
                held.pop(ended, None)
            if decision.allowed and cost:
                held[turn] = now_us + LEASE_US
            living = sum(until_us > now_us for until_us in held.values())
            for x in of:
                reached()
                assert x.kind != "concurrency" or x.shadow or living <= x.amount

    @given(trace=costed())
    @examples
    def test_costs_recounted(
        self,
        rig: Rig,
        trace: tuple[tuple[Limit, ...], list[tuple[int, Cost]], dict[int, list[int]]],
    ) -> None:
        """Limits of all kinds, with another cost in each, are decided as by a recount."""
        answers = [as_figures(decision) for decision in replay(rig, *trace)]
        assert answers == list(recount(*trace))

    @given(trace=leased(back=True))
    @examples
    def test_equal_costs(
        self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step], dict[int, list[int]]]
    ) -> None:
        """A cost for each limit, all the same, gives what one cost gives."""
        of, taken, ends = trace
        each = [(now_us, (cost,) * len(of) if cost else 0) for now_us, cost in taken]
        assert replay(rig, of, each, ends) == replay(rig, of, taken, ends)

    def test_a_limit_that_costs_nothing(self, rig: Rig) -> None:
        """It is reported and may govern, but counts nothing, takes no lease and refuses nothing."""
        of = (FIVE, HELD, FREE)
        taken: list[tuple[int, Cost]] = [
            (START_US, 5),
            (START_US, (0, 0, 4)),
            (START_US, (1, 0, 0)),
        ]
        full, passed, refused = replay(rig, of, taken)
        assert (full.allowed, passed.allowed, refused.allowed) == (True, True, False)
        left = [[standing.remaining for standing in one.standings] for one in (full, passed)]
        assert left == [[0, 2, 55], [0, 2, 51]]
        assert (passed.governing, passed.refusing) == (0, 0)
        assert (refused.governing, refused.refusing) == (0, 1)

    def test_a_cost_of_each_limit_is_all_or_nothing(self, rig: Rig) -> None:
        """If one limit refuses its cost, no other counts its own."""
        taken: list[tuple[int, Cost]] = [
            (START_US, (6, 30)),
            (START_US, (0, 0)),
            (START_US, (1, 30)),
        ]
        refused, asked, admitted = replay(rig, (FIVE, FREE), taken)
        assert (refused.allowed, refused.governing, refused.retry_us) == (False, 0, None)
        assert [standing.remaining for standing in asked.standings] == [5, 60]
        assert [standing.remaining for standing in admitted.standings] == [4, 30]

    def test_who_takes_no_lease_of_one(self, rig: Rig) -> None:
        """All leases are held: a request that costs nothing there passes, and takes none."""
        check = rig.fresh((FIVE, HELD))
        held = [check.leased(number) for number in (1, 2, 3)]
        free = at_cost(check, (1, 0)).leased(4)
        *_, last = rig.ask([(START_US, one) for one in (*held, free)])
        assert last.allowed
        assert [standing.remaining for standing in last.standings] == [1, 0]
        assert free.leases == ()
        rig.release(free)
        rig.release(held[0])
        decisions = rig.ask([(START_US, check.leased(5)), (START_US, check.leased(6))])
        assert [decision.allowed for decision in decisions] == [True, False]

    @every_rig
    @given(trace=connected())
    @examples
    def test_connections_recounted(self, rig: Rig, trace: Connected) -> None:
        """Limits of all kinds, of requests of connections in several workers, are decided as by a
        recount.
        """
        answers = [as_figures(decision) for decision in replay(rig, *trace)]
        assert answers == list(recount(*trace))

    def test_connections(self, rig: Rig) -> None:
        """A connection counts once, however many requests it has; a further one is refused."""
        second = 1_000_000
        tags = [(11, 1), (11, 1), (12, 1), (11, 1), (13, 1), (0, 0), (13, 1), (12, 1)]
        taken = [(START_US + n * second, 1) for n in range(len(tags))]
        decisions = replay(rig, (CLIENTS,), taken, {6: [2]}, tags)
        assert [decision.allowed for decision in decisions] == [
            *(True, True, True, True),
            *(False, False),
            *(True, False),
        ]
        assert [decision.remaining for decision in decisions] == [1, 1, 0, 0, 0, 0, 0, 0]
        assert {d.retry_us for d in decisions if not d.allowed} == {second}
        assert [decision.reset_us // second for decision in decisions] == [6, 6, 6, 6, 5, 4, 6, 5]

    @every_rig
    def test_a_connection_in_two_workers(self, rig: Rig) -> None:
        """It counts until it holds a lease in neither of them."""
        one = replace(CLIENTS, amount=1)
        tags = [(11, 1), (11, 2), (12, 1), (12, 1), (11, 1)]
        taken = [(START_US, 1)] * 5
        decisions = replay(rig, (one,), taken, {2: [0], 3: [1]}, tags)
        assert [decision.allowed for decision in decisions] == [True, True, False, True, False]

    def test_requests_without_a_connection(self, rig: Rig) -> None:
        """Each counts as one of its own."""
        decisions = replay(rig, (CLIENTS, HELD), [(START_US, 1)] * 3, {2: [0]})
        assert [decision.allowed for decision in decisions] == [True] * 3
        assert [one.remaining for one in decisions[2].standings] == [0, 1]
        assert not replay(rig, (CLIENTS, HELD), [(START_US, 1)] * 3)[2].allowed

    def test_connections_lapse(self, rig: Rig) -> None:
        """A connection counts for the time of a lease after its last request was admitted."""
        one, end_us = replace(CLIENTS, amount=1), START_US + LEASE_US
        taken = [(START_US, 1), (START_US + 5, 1), (end_us + 4, 1), (end_us + 5, 1)]
        decisions = replay(rig, (one,), taken, None, [(11, 1), (11, 1), (12, 1), (12, 1)])
        assert [decision.allowed for decision in decisions] == [True, True, False, True]

    def test_a_connection_beyond_the_limit(self, rig: Rig) -> None:
        """After a reduction, connections that are open continue, and no new one is admitted."""
        check = rig.fresh((CLIENTS,))
        less = Check((replace(CLIENTS, amount=1),), check.counters)
        asked = [(check, 11), (check, 12), (less, 11), (less, 12), (less, 13)]
        decisions = rig.ask(
            [(START_US, held(one, n, (tag, 1))) for n, (one, tag) in enumerate(asked, 1)]
        )
        assert [decision.allowed for decision in decisions] == [True] * 4 + [False]
        dry = Check(less.limits, less.counters, 1, dry=True, lease=9, connection=12, holder=3)
        other = Check(less.limits, less.counters, 1, dry=True, lease=9, connection=13, holder=3)
        assert [one.allowed for one in rig.ask([(START_US, dry), (START_US, other)])] == [
            *(True, False)
        ]
        rig.release(held(check, 2, (12, 1)))
        assert rig.ask([(START_US, check.at_cost(0))])[0].remaining == 1

    def test_a_shadow_counts_connections(self, rig: Rig) -> None:
        """A limit in shadow mode counts connections beyond its amount, and refuses nothing."""
        watching = replace(CLIENTS, amount=1, shadow=True)
        tags = [(11, 1), (12, 1), (11, 1), (13, 1)]
        decisions = replay(rig, (watching,), [(START_US, 1)] * 4, None, tags)
        assert [decision.allowed for decision in decisions] == [True] * 4
        assert [decision.refusing for decision in decisions] == [0, 1, 0, 1]

    def test_a_request_that_opens_no_connection(self, rig: Rig) -> None:
        """One that costs nothing there passes, and its connection does not count."""
        one = replace(CLIENTS, amount=1)
        taken: list[tuple[int, Cost]] = [(START_US, (1, 1)), (START_US, (0, 1)), (START_US, (1, 1))]
        tags = [(11, 1), (12, 1), (12, 1)]
        decisions = replay(rig, (one, FIVE), taken, None, tags)
        assert [decision.allowed for decision in decisions] == [True, True, False]
        assert [[one.remaining for one in d.standings] for d in decisions[:2]] == [[0, 4], [0, 3]]

    def test_an_upgrade(self, rig: Rig) -> None:
        """Used units stay when the plan changes: the new plan's bucket lacks them."""
        pro = replace(FREE, amount=600, burst=1_000)
        parts: list[Part] = [
            ((FREE,), [(START_US, 100), (START_US, 1)]),
            ((pro,), [(START_US, 0), (START_US, 900), (START_US, 1)]),
            ((FREE,), [(START_US, 0), (START_US + 61_000_000, 61), (START_US + 61_000_000, 1)]),
        ]
        decisions = replay_changes(rig, parts)
        assert [decision.allowed for decision in decisions] == [
            *(True, False),
            *(True, True, False),
            # A bucket of 100 that is empty, and refills by one each second.
            *(False, True, False),
        ]
        # 900 of 1,000 are left, less the 400 that are not reported.
        assert decisions[2].remaining == 500

    def test_a_bucket_that_comes_and_goes(self, rig: Rig) -> None:
        """A limit that gets a burst starts with a full bucket; the window's count stays."""
        plain = replace(FREE, burst=None)
        later_us = START_US + 1_000_000
        parts: list[Part] = [
            ((FREE,), [(START_US, 60)]),
            ((plain,), [(later_us, 1), (later_us + 61_000_000, 1)]),
            ((FREE,), [(later_us + 61_000_000, 99), (later_us + 61_000_000, 1)]),
        ]
        decisions = replay_changes(rig, parts)
        assert [decision.allowed for decision in decisions] == [True, False, True, True, False]

    def test_a_concurrency_limit_governs_last(self, rig: Rig) -> None:
        """It is reported where it refuses, and where there is no other enforced limit."""
        watching = replace(FREE, name="watching", shadow=True)
        for of, governing in [((HELD, FREE), 1), ((FREE, HELD), 0), ((watching, HELD), 1)]:
            *admitted, refused = replay(rig, of, [(START_US, 1)] * 4)
            assert [decision.governing for decision in admitted] == [governing] * 3
            assert not refused.allowed
            assert of[refused.governing] is HELD
        two = replace(HELD, name="others", amount=2)
        assert replay(rig, (HELD, two), [(START_US, 1)])[0].governing == 1

    def test_leases(self, rig: Rig) -> None:
        """Each request holds one lease until its end, whatever it costs; a refusal waits 1 s."""
        second = 1_000_000
        taken = [(START_US + n * second, cost) for n, cost in enumerate((1, 9, 1, 1, 0, 1, 1))]
        decisions = replay(rig, (HELD,), taken, {5: [1, 1]})
        assert [decision.allowed for decision in decisions] == [True] * 3 + [
            False,
            True,
            True,
            True,
        ]
        assert [decision.remaining for decision in decisions] == [2, 1, 0, 0, 0, 0, 0]
        assert [decision.retry_us for decision in decisions] == [None] * 3 + [second] + [None] * 3
        # Asked at 4 s, the last of the first three has 4 s left; at 6 s the first has lapsed.
        assert [decision.reset_us // second for decision in decisions] == [6, 6, 6, 5, 4, 6, 6]

    def test_leases_lapse(self, rig: Rig) -> None:
        """A lease that is not renewed expires after the time of a lease, and not earlier."""
        end_us = START_US + LEASE_US
        *_, early, late, rest = replay(
            rig, (HELD,), [(START_US, 1)] * 3 + [(end_us - 1, 1), (end_us, 1), (end_us, 0)]
        )
        assert (early.allowed, late.allowed, rest.remaining) == (False, True, 2)

    @every_rig
    def test_who_takes_no_lease(self, rig: Rig) -> None:
        """A dry check, one at cost 0 and one without a number are decided and take no lease."""
        check = rig.fresh((HELD,))
        dry = Check(check.limits, check.counters, 1, dry=True)
        for one in (dry, check.at_cost(0).leased(7), check):
            decisions = rig.ask([(START_US, one)] * 5)
            assert [decision.remaining for decision in decisions] == [3] * 5
        rig.ask([(START_US, check.leased(number)) for number in (1, 2, 3)])
        assert [d.allowed for d in rig.ask([(START_US, dry), (START_US, check)])] == [False] * 2

    @every_rig
    def test_all_or_nothing_with_leases(self, rig: Rig) -> None:
        """A request that another limit refuses takes no lease; one that gets none costs nothing."""
        decisions = replay(rig, (HELD, FIVE), [(START_US, 4), (START_US, 4), (START_US, 1)])
        assert [decision.allowed for decision in decisions] == [True, False, True]
        assert [standing.remaining for standing in decisions[2].standings] == [1, 0]
        one = replace(HELD, amount=1)
        decisions = replay(rig, (one, FIVE), [(START_US, 1)] * 3, {2: [0]})
        assert [standing.remaining for standing in decisions[2].standings] == [0, 3]

    def test_a_shadow_takes_leases(self, rig: Rig) -> None:
        """A limit in shadow mode grants leases beyond its amount, and refuses nothing."""
        watching = replace(HELD, shadow=True)
        decisions = replay(rig, (watching,), [(START_US, 1)] * 5 + [(START_US, 0)], {5: [0, 1, 2]})
        assert [decision.allowed for decision in decisions] == [True] * 6
        assert [decision.refusing for decision in decisions] == [0, 0, 0, 1, 1, 0]
        assert decisions[-1].remaining == 1

    def test_fewer_leases_by_policy(self, rig: Rig) -> None:
        """If a change of policy leaves too many leases, enough of them must end first."""
        check = rig.fresh((HELD,))
        less = Check((replace(HELD, amount=1),), check.counters)
        held = [check.leased(number) for number in (1, 2, 3)]
        rig.ask([(START_US, one) for one in held])
        for one in held:
            assert not rig.ask([(START_US, less.leased(4))])[0].allowed
            rig.release(one)
        assert rig.ask([(START_US, less.leased(4))])[0].allowed

    def test_cost_beyond_the_peak(self, rig: Rig) -> None:
        """A cost above the peak is refused without a retry time; the peak includes the burst."""
        never, reserve = replay(rig, (FREE,), [(START_US, 101), (START_US, 100)])
        assert (never.allowed, never.retry_us, never.remaining) == (False, None, 0)
        assert (reserve.allowed, reserve.remaining) == (True, 0)

    @every_rig
    def test_ties(self, rig: Rig) -> None:
        """Among equals the first governs, on admission and on refusal."""
        twins = (FIVE, replace(FIVE, name="twin"))
        decisions = replay(rig, twins, [(START_US, 5), (START_US, 1)])
        assert [decision.governing for decision in decisions] == [0, 0]

    @every_rig
    def test_never_waits_longest(self, rig: Rig) -> None:
        """A limit that can never admit governs over one that will, whatever their order."""
        of = (Limit("small", "rate", 2, 60_000_000), Limit("full", "quota", 4, 86_400_000_000))
        check = rig.fresh(of)
        other = Check((of[1],), (check.counters[1],), 4)
        _, refused, turned = rig.ask(
            [
                (START_US, other),
                (START_US, check.at_cost(3)),
                (START_US, Check(of[::-1], check.counters[::-1], 3)),
            ]
        )
        assert (refused.governing, refused.retry_us, refused.refusing) == (0, None, 3)
        assert (turned.governing, turned.retry_us) == (1, None)

    def test_shadow(self, rig: Rig) -> None:
        """A shadow limit counts admissions, never refuses, reports, and never governs."""
        watching = Limit("watching", "rate", 1, 60_000_000, shadow=True)
        decisions = replay(rig, (watching, FIVE), [(START_US, 1)] * 6)
        assert [decision.allowed for decision in decisions] == [True] * 5 + [False]
        assert {decision.governing for decision in decisions} == {1}
        assert [decision.refusing for decision in decisions] == [0, 1, 1, 1, 1, 3]
        assert decisions[1].standings[0].remaining == 0

    def test_only_shadows(self, rig: Rig) -> None:
        """If every limit is in shadow mode, the first one is reported and nothing is refused."""
        watching = replace(FIVE, shadow=True)
        decisions = replay(rig, (watching, replace(FREE, shadow=True)), [(START_US, 4)] * 40)
        assert all(decision.allowed for decision in decisions)
        assert {decision.governing for decision in decisions} == {0}

    @every_rig
    def test_a_shadow_cannot_overflow(self, rig: Rig) -> None:
        """However much a shadow limit admits, it still answers, and expires in time."""
        watching = (replace(FIVE, shadow=True), replace(FREE, shadow=True))
        later = [(START_US + after_s * 1_000_000, after_s % 2) for after_s in (31, 70, 102)]
        *_, full, still, gone = replay(rig, watching, [(START_US, 2**32 - 1)] * 3 + later)
        assert [standing.remaining for standing in full.standings] == [0, 0]
        assert [standing.remaining for standing in still.standings] == [5, 29]
        assert [standing.remaining for standing in gone.standings] == [5, 60]

    @pytest.mark.parametrize("others", [(), (FREE,)], ids=["alone", "with another"])
    def test_what_a_full_shadow_does_not_count(self, rig: Rig, others: tuple[Limit, ...]) -> None:
        """Units beyond the most that a window counts do not put off its reset."""
        limits = (replace(FIVE, shadow=True), *others)
        full, beyond = replay(
            rig, limits, [(START_US, (2**32 - 1, *[0] * len(others))), (START_US + 31_000_000, 1)]
        )
        resets_us = [each.now_us + each.standings[0].reset_us for each in (full, beyond)]
        assert resets_us == [(START_US // 1_000_000 + 61) * 1_000_000] * 2

    def test_a_shadow_bucket_refills_in_its_time(self, rig: Rig) -> None:
        """However much a limit in shadow mode admits, it lacks no more than its bucket."""
        watching = (replace(FREE, shadow=True),)
        taken = [(START_US, 100), (START_US, 100), (START_US + 100_000_000, 0)]
        *_, rested = replay(rig, watching, taken)
        assert rested.remaining == 60

    def test_changed_values(self, rig: Rig) -> None:
        """New values apply to old counts; a smaller bucket refuses no longer than its own time."""
        check = rig.fresh((FREE,))
        less = Check((replace(FREE, amount=5, burst=10),), check.counters)
        full, refused = rig.ask([(START_US, check.at_cost(80)), (START_US, less)])
        assert (full.remaining, refused.allowed) == (0, False)
        assert refused.retry_us is not None
        (passed,) = rig.ask([(START_US + refused.retry_us, less)])
        assert passed.allowed

    def test_step_back_over_empty_slots(self, rig: Rig) -> None:
        """A step back to before the counts does not change when they leave the window."""
        check = rig.fresh((FREE,))
        smaller = Check((replace(FREE, burst=61),), check.counters)
        plain = Check((replace(FREE, burst=None),), check.counters, 0)
        first, refused, later = rig.ask(
            [
                (START_US, check.at_cost(80)),
                (START_US + 5_000_000, smaller),  # not counted, but kept: its bucket shrank
                (START_US + 3_000_000, plain),
            ]
        )
        leaves_us = (START_US // 1_000_000 + 61) * 1_000_000
        assert (first.allowed, refused.allowed) == (True, False)
        assert later.now_us + later.reset_us == leaves_us

    def test_a_bucket_that_shrinks_again(self, rig: Rig) -> None:
        """It is kept in its own unit, also long after the last units were counted."""
        check = rig.fresh((replace(FREE, amount=60, burst=240),))
        smaller, smallest = (
            Check((replace(FREE, amount=60, burst=burst),), check.counters, 0)
            for burst in (160, 120)
        )
        *_, shrunk, later = rig.ask(
            [
                (START_US, check.at_cost(240)),
                (START_US + 60_000_000, smaller),  # it would be full in 180 s
                (START_US + 70_000_000, smallest),  # then in 150 s
                (START_US + 71_000_000, smallest),
            ]
        )
        assert [shrunk.reset_us, later.reset_us] == [120_000_000, 119_000_000]

    def test_a_bucket_that_shrinks_before_a_step_back(self, rig: Rig) -> None:
        """It is kept in its own unit, also if the window is empty."""
        check = rig.fresh((replace(FREE, amount=60, burst=240),))
        smaller = Check((replace(FREE, amount=60, burst=160),), check.counters, 0)
        *_, back, later = rig.ask(
            [
                (START_US, check.at_cost(240)),
                (START_US + 70_000_000, smaller),  # it would be full in 170 s
                (START_US + 69_000_000, smaller),
                (START_US + 75_000_000, smaller),
            ]
        )
        assert [back.reset_us, later.reset_us] == [160_000_000, 154_000_000]

    @every_rig
    def test_batch_shares_a_count(self, rig: Rig) -> None:
        """Checks of one subject in one batch count for each other."""
        check = rig.fresh((FIVE,))
        decisions = rig.ask([(START_US, check)] * 7)
        assert [decision.remaining for decision in decisions] == [4, 3, 2, 1, 0, 0, 0]
        assert [decision.allowed for decision in decisions] == [True] * 5 + [False] * 2

    @every_rig
    def test_no_limits(self, rig: Rig) -> None:
        """A check without limits is admitted."""
        (decision,) = replay(rig, (), [(START_US, 1)])
        assert decision.allowed
        assert decision.standings == ()
