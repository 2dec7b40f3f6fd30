"""Usage reports: of a key, of a plan, and the busiest keys.

A report covers a window that ends with the current step, and has every step of it, also those
without requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from gateway.domain.patterns import is_word
from gateway.domain.ports import CorruptRecord, KeyStore, UsageStore
from gateway.domain.usage import WINDOWS, Grain, Window, bucket_start
from gateway.manage.accounts import account_plan
from gateway.manage.batches import ask_each
from gateway.manage.problems import Fault, Invalid, NotThere

Group = Literal["admitted", "limited", "refused", "failed"]
GROUPS: Final[tuple[Group, ...]] = ("admitted", "limited", "refused", "failed")

#: Window -> the buckets whose busiest keys are read: few enough for one request.
_BUSY_GRAINS: Final[Mapping[str, Grain]] = {
    "1h": "minute",
    "24h": "hour",
    "7d": "hour",
    "30d": "day",
}
#: The busiest keys are chosen among this many times as many candidates.
_CHOICE: Final = 3
_FOUND_SHOWN: Final = 12
#: Reported plans that are not in the policies: each report takes 5 KB.
_MOST_OTHER_PLANS: Final = 100
#: The name of a key whose record cannot be read.
UNREADABLE: Final = "(unreadable)"


@dataclass(frozen=True, slots=True)
class Point:
    """One step of a report. start_s: its start, Unix time; counts: requests by outcome"""

    start_s: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The usage in a window.

    points: every step, by time
    totals: requests by outcome; routes: by route, then by outcome
    """

    window: Window
    points: tuple[Point, ...]
    totals: Mapping[str, int]
    routes: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Busy:
    """A key among the busiest.

    name, account: "" if the key no longer exists; name: UNREADABLE if its record cannot be read
    plan:          the effective one, its own or its account's; "": none
    """

    key_id: str
    name: str
    account: str
    plan: str
    requests: int


class UsageBook:
    """Reads usage. Every method may raise StoreDown.

    plans: returns the plans of the policies
    """

    def __init__(
        self,
        usage: UsageStore,
        keys: KeyStore,
        clock_us: Callable[[], int],
        plans: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._usage = usage
        self._keys = keys
        self._clock_us = clock_us
        self._plans = plans

    async def of_key(self, key_id: str, window: Window) -> UsageReport:
        """The usage of a key. Raises NotThere."""
        if await self._keys.get(key_id) is None:
            raise NotThere(f"there is no key with the id {key_id}")
        return await self._report(f"key:{key_id}", window)

    async def of_plan(self, plan: str, window: Window) -> UsageReport:
        """The usage of a plan; empty if it was not used. plan: "": without a known key"""
        return await self._report(f"plan:{plan}", window)

    async def overview(self, window: Window) -> Mapping[str, UsageReport]:
        """Usage by plan; "": requests without a known key.

        It has all used plans of the policies, and the first 100 others in the store: foreign
        entries there do not hide plans of the policies.
        """
        ours, noted = {"", *self._plans()}, await self._usage.plans()
        others = [plan for plan in noted if plan not in ours and is_word(plan)]
        wanted = sorted((*ours, *others[:_MOST_OTHER_PLANS]))
        reports = {plan: await self.of_plan(plan, window) for plan in wanted}
        return {plan: one for plan, one in reports.items() if plan in noted or one.totals}

    async def busiest(self, window: Window, count: int = 10) -> tuple[Busy, ...]:
        """The keys with the most requests, most first; the window's first bucket counts in full.

        They are chosen among more candidates, by their exact numbers.
        """
        grain = _BUSY_GRAINS[window.name]
        start_s, end_s = _span(window, self._now_s())
        start_s = bucket_start(grain, start_s)
        noted = await self._usage.busiest(grain, start_s, end_s, _CHOICE * count)
        ids = [key_id for key_id, _ in noted]
        uses = await ask_each(
            lambda key_id: self._usage.read(f"key:{key_id}", grain, start_s, end_s), ids
        )
        requests = {
            key_id: sum(sum(bucket.counts.values()) for bucket in buckets)
            for key_id, buckets in zip(ids, uses, strict=True)
        }
        busiest = sorted(ids, key=lambda key_id: (-requests[key_id], key_id))[:count]
        return tuple([await self._busy(key_id, requests[key_id]) for key_id in busiest])

    async def _busy(self, key_id: str, requests: int) -> Busy:
        try:
            record = await self._keys.get(key_id)
        except CorruptRecord:
            return Busy(key_id, UNREADABLE, "", "", requests)
        if record is None:
            return Busy(key_id, "", "", "", requests)
        plan = record.plan or await account_plan(self._keys, record.account)
        return Busy(key_id, record.name, record.account, plan, requests)

    async def _report(self, subject: str, window: Window) -> UsageReport:
        start_s, end_s = _span(window, self._now_s())
        steps: dict[int, dict[str, int]] = {
            at_s: {} for at_s in range(start_s, end_s, window.step_s)
        }
        totals: dict[str, int] = {}
        routes: dict[str, dict[str, int]] = {}
        for bucket in await self._usage.read(subject, window.grain, start_s, end_s):
            step = steps[bucket.start_s - bucket.start_s % window.step_s]
            for (route, outcome), requests in bucket.counts.items():
                for counts in (step, totals, routes.setdefault(route, {})):
                    counts[outcome] = counts.get(outcome, 0) + requests
        points = tuple(Point(at_s, counts) for at_s, counts in steps.items())
        return UsageReport(window, points, totals, dict(sorted(routes.items())))

    def _now_s(self) -> int:
        return self._clock_us() // 1_000_000


def read_window(text: str) -> Window:
    """The window with this name. Raises Invalid."""
    window = WINDOWS.get(text)
    if window is None:
        found = text if len(text) <= _FOUND_SHOWN else f"{text[:_FOUND_SHOWN]}…"
        raise Invalid(Fault("window", repr(found), f"one of {', '.join(WINDOWS)}"))
    return window


def group(outcome: str) -> Group:
    """The group of an outcome: "limited:search" is "limited"."""
    word = outcome.partition(":")[0]
    return word if word in GROUPS else "failed"


def grouped(counts: Mapping[str, int]) -> dict[str, int]:
    """Requests by group (all four), from requests by outcome."""
    sums: dict[str, int] = dict.fromkeys(GROUPS, 0)
    for outcome, requests in counts.items():
        sums[group(outcome)] += requests
    return sums


def report_as_json(report: UsageReport) -> dict[str, object]:
    """The report as the admin API and `gateway keys usage --json` show it."""
    return {
        "window": report.window.name,
        "step_seconds": report.window.step_s,
        "requests": sum(report.totals.values()),
        "totals": dict(report.totals),
        "groups": grouped(report.totals),
        "routes": {route: dict(counts) for route, counts in report.routes.items()},
        "points": [
            {"start": _moment(point.start_s), "counts": dict(point.counts)}
            for point in report.points
        ],
    }


def busy_as_json(one: Busy) -> dict[str, object]:
    """A busy key as the admin API shows it."""
    return {
        "id": one.key_id,
        "name": one.name or None,
        "account": one.account or None,
        "plan": one.plan or None,
        "requests": one.requests,
    }


def _span(window: Window, now_s: int) -> tuple[int, int]:
    """The start and end of the window, which ends with the current step."""
    end_s = (now_s // window.step_s + 1) * window.step_s
    return end_s - window.span_s, end_s


def _moment(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
