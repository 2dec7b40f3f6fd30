"""Usage reports: of a key, an account, a plan, all requests; and the busiest keys.

A report covers a range of dates, or a window that ends with the current step. It has every step of
it, also those without requests.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from gateway.domain.keys import KeyRecord
from gateway.domain.patterns import is_word
from gateway.domain.ports import KeyFilter, KeyStore, UsageStore
from gateway.domain.usage import GRAIN_S, WINDOWS, Grain, Window, bucket_start, measured_in
from gateway.manage.accounts import key_words
from gateway.manage.batches import AT_ONCE, ask_each
from gateway.manage.problems import Conflict, Fault, Invalid, NotThere
from gateway.manage.usage_sums import Sum, UsageReport

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
#: The most keys of an account whose usage is added up: each takes some requests to the store.
MOST_KEYS: Final = 1_000
#: The longest range of dates: as long as days are kept.
_MOST_DAYS: Final = 400
_DATE: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
#: Reported plans that are not in the policies: each report takes 5 KB.
_MOST_OTHER_PLANS: Final = 100
#: Reported routes to MCP servers.
_MOST_MCP_ROUTES: Final = 200


@dataclass(frozen=True, slots=True)
class Busy:
    """A key among the busiest. name, account, plan: as `key_words` returns them"""

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

    async def each_key(
        self, name: str, window: Window
    ) -> AsyncIterator[tuple[KeyRecord, UsageReport]]:
        """The usage of each key of an account, revoked ones too. Raises NotThere, Conflict.

        A few are read at a time, and none is kept: a report of a year has 1 MB or more.
        """
        records = await self._keys.page(KeyFilter(account=name), count=MOST_KEYS + 1)
        if not records and await self._keys.account(name) is None:
            raise NotThere(f"there is no account {name}, and no key has it")
        if len(records) > MOST_KEYS:
            raise Conflict(
                f"account {name} has more than {MOST_KEYS:,} keys: ask for the usage of single keys"
            )
        for start in range(0, len(records), AT_ONCE):
            some = records[start : start + AT_ONCE]
            ids = [record.id for record in some]
            reports = await ask_each(lambda key_id: self._report(f"key:{key_id}", window), ids)
            for record, report in zip(some, reports, strict=True):
                yield record, report

    async def of_account(
        self, name: str, window: Window, route: str | None = None
    ) -> tuple[list[tuple[KeyRecord, Sum]], UsageReport]:
        """The sum of each key of an account, and their usage together; perhaps of one route only.

        Raises NotThere, Conflict.
        """
        keys, whole = list[tuple[KeyRecord, Sum]](), self._empty(window, "key:")
        async for record, report in self.each_key(name, window):
            part = report if route is None else report.of_route(route)
            keys.append((record, part.total))
            whole.add(part)
        return keys, whole

    async def of_all(self, window: Window) -> UsageReport:
        """The usage of all requests, also of those without a known key."""
        return self.added((await self.overview(window)).values(), window)

    def added(self, reports: Iterable[UsageReport], window: Window) -> UsageReport:
        """The sum of reports in one window."""
        whole = self._empty(window, "key:")
        for report in reports:
            whole.measured_s = report.measured_s
            whole.add(report)
        return whole

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

        They are chosen among more candidates, by their exact numbers. None are known of days that
        are longer ago than a month.
        """
        grain = _BUSY_GRAINS.get(window.name, "day")
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
        return Busy(key_id, *await key_words(self._keys, key_id), requests)

    async def of_tools(self, window: Window) -> dict[str, UsageReport]:
        """Calls of MCP servers' tools by route, each with tools in the place of routes.

        Of all keys and gateways. Of very many routes, only some.
        """
        names = (await self._usage.mcp_routes())[:_MOST_MCP_ROUTES]
        found = await ask_each(lambda name: self._of_tools(name, window), names)
        return {
            name: report for name, report in zip(names, found, strict=True) if report.total.counts
        }

    async def _of_tools(self, route: str, window: Window) -> UsageReport:
        report = self._empty(window, f"mcp:{route}")
        span = report.start_s, report.end_s
        buckets = await self._usage.read(f"mcp:{route}", window.grain, *span)
        report.count(buckets, with_measures=False)
        return report

    async def _report(self, subject: str, window: Window) -> UsageReport:
        report = self._empty(window, subject)
        span = report.start_s, report.end_s
        is_measured = measured_in(subject, window.grain)
        report.count(
            await self._usage.read(subject, window.grain, *span), with_measures=is_measured
        )
        if not is_measured and report.total.counts:
            grain = _measured_grain(subject)
            report.measure(await self._usage.read(subject, grain, *report.measured_s))
        return report

    def _empty(self, window: Window, subject: str) -> UsageReport:
        start_s, end_s = _span(window, self._now_s())
        grain = window.grain if measured_in(subject, window.grain) else _measured_grain(subject)
        last_s = bucket_start(grain, end_s - 1) + GRAIN_S[grain]
        return UsageReport(window, start_s, end_s, (bucket_start(grain, start_s), last_s))

    def _now_s(self) -> int:
        return self._clock_us() // 1_000_000


def read_window(text: str) -> Window:
    """The window with this name. Raises Invalid."""
    window = WINDOWS.get(text)
    if window is None:
        found = text if len(text) <= _FOUND_SHOWN else f"{text[:_FOUND_SHOWN]}…"
        raise Invalid(Fault("window", repr(found), f"one of {', '.join(WINDOWS)}"))
    return window


def read_span(window: str | None, start: str | None, end: str | None, now_us: int) -> Window:
    """The window with this name, by default 24h; or days from a date to another. Raises Invalid.

    start: a date, "2026-07-01", which is included; end: a date, excluded; by default tomorrow
    """
    if start is None and end is None:
        return read_window(window or "24h")
    if window is not None:
        raise Invalid(Fault("window", "from or to as well", "one or the other"))
    if start is None:
        raise Invalid(Fault("from", "nothing, with to", "a date such as 2026-07-01"))
    start_s = _read_date("from", start)
    tomorrow_s = bucket_start("day", now_us // 1_000_000) + GRAIN_S["day"]
    end_s = tomorrow_s if end is None else _read_date("to", end)
    days = (end_s - start_s) // GRAIN_S["day"]
    if days < 1:
        raise Invalid(Fault("to", end or "tomorrow", f"a date after from, which is {start}"))
    if days > _MOST_DAYS:
        raise Invalid(Fault("from", start, f"at most {_MOST_DAYS} days before to"))
    return Window("", end_s - start_s, GRAIN_S["day"], "day", end_s)


def _read_date(name: str, text: str) -> int:
    try:
        if _DATE.fullmatch(text) is None:
            raise ValueError
        at = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        if at.timestamp() < 0:
            raise ValueError
    except ValueError:
        found = repr(text if len(text) <= _FOUND_SHOWN else f"{text[:_FOUND_SHOWN]}…")
        raise Invalid(Fault(name, found, "a date such as 2026-07-01, in UTC")) from None
    return int(at.timestamp())


def _measured_grain(subject: str) -> Grain:
    """The finest grain of a subject's measures."""
    return "hour" if measured_in(subject, "hour") else "day"


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
    """The start and end of the window, which by default ends with the current step."""
    end_s = window.end_s
    if end_s is None:
        end_s = (now_s // window.step_s + 1) * window.step_s
    return end_s - window.span_s, end_s
