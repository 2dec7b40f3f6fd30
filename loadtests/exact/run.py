"""One run: a load, and the result for each limit."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Final

from loadtests.exact.judge import Record
from loadtests.exact.load import Answer, Load
from loadtests.exact.site import LIMITS, SHORT, TARGETS, Site
from tests.kit.store_tap import Decided

#: A run that has not sent enough after this extra time ends anyway, and fails.
_TIMEOUT_S: Final = 60.0
#: How often a short window is to fill up, at least.
_WINDOWS: Final = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one limit.

    requests:   requests that met it
    admitted:   by the store's replies
    allowed:    the most that it may admit in the time of the run
    over:       admitted beyond the limit
    untimely:   refused although no limit of the request was used up
    """

    limit: str
    requests: int
    admitted: int
    allowed: int
    over: int
    untimely: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run's results, and how reliable they are.

    passed:     requests that arrived upstream; told: admissions in answers to clients
    decided:    admissions in the store's replies
    unexpected: answers that were neither an admission nor a refusal, by status
    local:      limits decided without the store, and overadmitted: beyond their limit, by the
                gateways' own metrics
    """

    verdicts: list[Verdict]
    passed: int
    told: int
    decided: int
    unexpected: dict[int, int]
    local: float
    overadmitted: float

    @property
    def is_sound(self) -> bool:
        """Was every admission seen, and every decision made by the store?"""
        seen = self.passed == self.told == self.decided
        return seen and not (self.unexpected or self.local or self.overadmitted)

    @property
    def is_exact(self) -> bool:
        """Was exactly the limit admitted?"""
        return self.is_sound and not any(row.over or row.untimely for row in self.verdicts)


async def run(site: Site, seconds: float) -> Outcome:
    """Send requests for this time, and until every limit got more than it may admit."""
    load = Load(site)
    until_s = time.monotonic() + seconds

    def is_enough() -> bool:
        now_s = time.monotonic()
        return now_s > until_s and (_has_filled(load) or now_s > until_s + _TIMEOUT_S)

    await load.run(is_enough)
    statuses = Counter(answer.status for answer in load.answers)
    return Outcome(
        verdicts(load.answers, site.tap.decisions),
        len(site.upstream.requests),
        statuses[200],
        sum(decided.allowed for decided in _asked(site.tap.decisions)),
        {status: count for status, count in statuses.items() if status not in (200, 429)},
        await site.metric("gateway_ratelimit_decisions_total", decision="local"),
        await site.metric("gateway_ratelimit_overadmitted_total"),
    )


def verdicts(answers: list[Answer], decisions: list[Decided]) -> list[Verdict]:
    """One for each limit that was met, in the order of LIMITS."""
    records = {
        name: Record(
            limit,
            (
                decided.at_us
                for decided in _asked(decisions)
                if decided.allowed and name in map(_limit_of, decided.counters)
            ),
        )
        for name, limit in LIMITS.items()
    }
    if not answers:
        return []
    from_us = min(answer.asked_us for answer in answers)
    until_us = max(answer.told_us for answer in answers)
    judge = _Judge(records, answers)
    untimely = Counter(
        answer.target for answer in answers if answer.status == 429 and judge.had_room(answer)
    )
    requests = Counter(answer.target for answer in answers)
    return [
        Verdict(
            name,
            sum(requests[target] for target, names in TARGETS.items() if name in names),
            record.admitted,
            record.at_most(from_us, until_us),
            record.over,
            sum(untimely[target] for target, names in TARGETS.items() if name in names),
        )
        for name, record in records.items()
    ]


class _Judge:
    """Checks whether refusals were justified."""

    def __init__(self, records: dict[str, Record], answers: list[Answer]) -> None:
        self._records = records
        self._answers = sorted(answers, key=_told_us)

    def had_room(self, refused: Answer) -> bool:
        """Was no limit of the request used up, from its sending to its answer?"""
        records = [self._records[name] for name in TARGETS[refused.target]]
        if any(record.was_full(refused.asked_us, refused.told_us) for record in records):
            return False
        # A worker caches a refusal for its retry time from when it received it. That is later than
        # the decision, but by no more than the first refused request took.
        window_us = max(record.limit.window_us for record in records)
        first = bisect_left(self._answers, refused.asked_us - window_us, key=_told_us)
        last = bisect_right(self._answers, refused.told_us, key=_told_us)
        late_us = max(answer.told_us - answer.asked_us for answer in self._answers[first:last])
        return not any(
            record.was_full(refused.asked_us - late_us, refused.told_us) for record in records
        )


def _told_us(answer: Answer) -> int:
    return answer.told_us


def _has_filled(load: Load) -> bool:
    """Has each target been refused, and each short limit been used up several times?"""
    return all(load.refused(target) for target in TARGETS) and all(
        load.admitted(f"/{name}") >= _WINDOWS * SHORT[name].peak for name in SHORT
    )


def _asked(decisions: list[Decided]) -> list[Decided]:
    """The decisions about requests: not a connection's trial, and not checks at cost 0."""
    return [
        decided
        for decided in decisions
        if decided.cost and any(_limit_of(name) in LIMITS for name in decided.counters)
    ]


def _limit_of(counter: str) -> str:
    """The limit of a counter: gw:limit:{acme}:key:7h3k9m2p4q6r:plan:rate:60000000."""
    return counter.rsplit(":", 3)[1]
