"""The assertions about every answer, and a witness for each key that checks them.

No I/O: nothing here sends, waits or reads a clock. A witness gets each answer with the times of its
sending and arrival, and the limits that the request meets by the policies; it returns the broken
assertions, in words. It asserts only what holds wherever between these times the decision was, so
that a slow machine breaks nothing.

While the gateway decides without its store (X-RateLimit-Fallback), and for one window after that,
it may admit up to twice a limit, and its headers report what the worker has counted: then only that
is asserted. For a gateway that does not send this field, the strict assertions hold.

Some assertions need a key that no other client uses: how far Remaining may fall, and that
Retry-After is enough.
Where several callers share a key these are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.domain.limits import SECOND_US, Limit
from loadtests.traffic.answers import Answer, Told, read_told
from loadtests.traffic.counts import Counts
from loadtests.traffic.figures import Met

#: The assertions, by the names under which a run reports them.
ADMISSIONS: Final = "no more is admitted than the limit"
LONG_RUN: Final = "no more is admitted than the rate in the long run"
FORM: Final = "every answer has the four fields"
LIMIT: Final = "Limit is one of the route's"
REMAINING: Final = "Remaining is no more than is left"
STEADY: Final = "Remaining falls by admissions only"
RESET: Final = "Reset agrees with the clock"
REFUSAL: Final = "a refusal says when to come back"
RETRY: Final = "waiting Retry-After is enough"
PACED: Final = "a client that paces its requests gets no 429"
TRUTHS: Final = (ADMISSIONS, LONG_RUN, FORM, LIMIT, REMAINING, STEADY, RESET, REFUSAL, RETRY, PACED)
#: Those that the first admissions of any key check.
_BY_ALL: Final = frozenset((ADMISSIONS, FORM, LIMIT, REMAINING, RESET))

#: Date has whole seconds, and Reset and Reset-After are rounded separately.
_CLOCK_S: Final = 2.0
#: Until a refusal's retry time ends, and shortly after, another worker may repeat the refusal.
_REPEATED_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Broken:
    """An assertion that an answer broke, and the message."""

    truth: str
    words: str


@dataclass(slots=True)
class _Tally:
    """The state of one limit besides its counts.

    limit:           with its values
    spent:           all that may have been admitted so far
    remaining:       as last reported, and `spent` at that time; None: not reported yet
    refused_until_s: the end of the last refusal's retry time
    is_mixed:        routes that share this counter have other values for it
    """

    limit: Limit
    counts: Counts
    spent: int = 0
    remaining: tuple[int, int] | None = None
    refused_until_s: float = float("-inf")
    is_mixed: bool = False


class Witness:
    """The answers to one key. checks: how often each assertion was checked."""

    def __init__(self, *, exclusive: bool = True) -> None:
        self.checks: Counter[str] = Counter()
        self.callers = 0
        #: Changes with the clients: what began in one turn is checked in that one only.
        self.turn = 0
        self._exclusive = exclusive
        self._tallies: dict[str, _Tally] = {}
        self._fallback_s = {"local": float("-inf"), "open": float("-inf")}

    @property
    def is_alone(self) -> bool:
        """Does one client use this key, and no other process?"""
        return self._exclusive and self.callers == 1

    def join(self) -> None:
        """Add a client. Answers then overlap, so the last reported values are not used any more."""
        self._change(1)

    def leave(self) -> None:
        """Remove a client; its last request may have been cut off, and counted nevertheless."""
        self._change(-1)

    def hear(self, met: Met, answer: Answer) -> list[Broken]:
        """Check an answer against all previous ones, and record it."""
        if answer.fallback is not None:
            for kind in self._fallback_s:
                if kind in ("local", answer.fallback):
                    self._fallback_s[kind] = answer.told_s
            self._forget()
            for tally in self._tallies.values():
                tally.counts.restart()
        broken = list(self._broken_by(met, answer)) if answer.status else []
        self._remember(met, answer)
        if answer.is_admitted and met.cost:
            broken += self._beyond(met, answer)
        return broken

    def hear_after_wait(self, answer: Answer, waited_s: float, turn: int) -> list[Broken]:
        """Also check an answer to a client that had been refused and waited.

        turn: at the refusal
        """
        if not self.is_alone or turn != self.turn:
            return []
        if self._fallback_s["local"] >= answer.sent_s - waited_s:
            return []
        if not (answer.is_admitted or answer.status == 429):
            return []
        self.checks[RETRY] += 1
        if answer.is_admitted:
            return []
        return [Broken(RETRY, f"refused again after a wait of {waited_s:.1f} s, as told")]

    def _broken_by(self, met: Met, answer: Answer) -> Iterator[Broken]:
        told = read_told(answer.fields)
        self.checks[FORM] += 1
        if isinstance(told, str):
            yield Broken(FORM, told)
            return
        if told.remaining > told.limit:
            yield Broken(REMAINING, f"Remaining {told.remaining} of Limit {told.limit}")
        if answer.status == 429:
            yield from self._refusal(told, answer)
        if not (answer.is_admitted or answer.status == 429):
            return  # which limit these report depends on why they are refused
        if answer.fallback is None and met.told:
            yield from self._limit(met, told, answer)
            yield from self._reset(told, answer)

    def _refusal(self, told: Told, answer: Answer) -> Iterator[Broken]:
        self.checks[REFUSAL] += 1
        if answer.retry_after_s is None:
            said = answer.fields.get("retry-after")
            yield Broken(REFUSAL, f"429 with Retry-After {said!r}, not a number from 1 on")
        if told.remaining:
            yield Broken(REFUSAL, f"429 with Remaining {told.remaining}")

    def _limit(self, met: Met, told: Told, answer: Answer) -> Iterator[Broken]:
        self.checks[LIMIT] += 1
        if told.limit not in met.told:
            yield Broken(LIMIT, f"Limit {told.limit}, not one of {sorted(met.told)}")
            return
        # Two limits may have the same amount; then it is not known which one is meant.
        meant = [limit for limit in met.limits if limit.amount == told.limit]
        if not meant or told.limit in met.shared or self._is_clouded(meant, answer):
            return
        self.checks[REMAINING] += 1
        left = max(self._left(limit, met, answer) for limit in meant)
        if told.remaining > left:
            yield Broken(REMAINING, f"Remaining {told.remaining} where at most {left} is left")
        longest_s = max(map(_longest_s, meant))
        if told.reset_after > longest_s:
            yield Broken(RESET, f"Reset-After {told.reset_after} of a limit of {longest_s} s")
        if len(meant) == 1 and not meant[0].is_leased and self.is_alone:
            yield from self._steady(self._tally(meant[0]), met, told, answer)

    def _left(self, limit: Limit, met: Met, answer: Answer) -> int:
        """The most that can be left of a limit after this request."""
        if limit.is_leased:
            return limit.amount
        counts = self._tally(limit).counts
        used = counts.standing(answer.sent_s, answer.told_s, answer.told_unix_s)
        return max(0, limit.amount - used - (met.cost if answer.is_admitted else 0))

    def _steady(self, tally: _Tally, met: Met, told: Told, answer: Answer) -> Iterator[Broken]:
        if tally.remaining is None or tally.is_mixed:
            return
        remaining, spent = tally.remaining
        between = tally.spent - spent
        if answer.status == 429:
            if answer.sent_s <= tally.refused_until_s + _REPEATED_S:
                return
            # If a request costs more than one, the rest may be too little for it.
            between += met.cost - 1
        else:
            between += met.cost
        self.checks[STEADY] += 1
        if told.remaining < remaining - between:
            how = "refused" if answer.status == 429 else f"Remaining {told.remaining}"
            yield Broken(STEADY, f"{how} after Remaining {remaining}, and {between} spent since")

    def _reset(self, told: Told, answer: Answer) -> Iterator[Broken]:
        date_s = answer.date_unix_s
        if date_s is None:
            return
        self.checks[RESET] += 1
        apart_s = told.reset - told.reset_after - date_s
        if abs(apart_s) > _CLOCK_S + answer.told_s - answer.sent_s:
            yield Broken(RESET, f"Reset less Reset-After is {apart_s:+.0f} s from Date")

    def _beyond(self, met: Met, answer: Answer) -> Iterator[Broken]:
        """Was more admitted than allowed, including this one?"""
        for limit in met.limits:
            if limit.is_leased:
                continue
            tally = self._tally(limit)
            counts = tally.counts
            since_s = answer.told_s - limit.window_us / SECOND_US
            if self._fallback_s["open"] >= since_s:
                continue
            self.checks[ADMISSIONS] += 1
            most = limit.peak * (2 if self._fallback_s["local"] >= since_s else 1)
            admitted = counts.in_last_window(answer.told_s)
            if admitted > most:
                yield Broken(
                    ADMISSIONS, f"{limit.name}: {admitted} admitted, at most {most} may be"
                )
            if limit.burst is not None and most == limit.peak and not tally.is_mixed:
                self.checks[LONG_RUN] += 1
                if beyond := counts.beyond_rate(answer.told_s):
                    yield Broken(
                        LONG_RUN, f"{limit.name}: {beyond} beyond {limit.peak} and its rate"
                    )

    def _remember(self, met: Met, answer: Answer) -> None:
        told = read_told(answer.fields)
        for limit in met.limits:
            tally = self._tally(limit)
            if answer.is_admitted and met.cost and not limit.is_leased:
                tally.counts.add(answer.sent_s, answer.told_s, answer.told_unix_s, met.cost)
            if not answer.is_refused:
                tally.spent += met.cost
            if isinstance(told, str) or told.limit != limit.amount or answer.fallback:
                continue
            if answer.status == 429:
                until_s = answer.told_s + (answer.retry_after_s or 0)
                tally.refused_until_s = max(tally.refused_until_s, until_s)
            elif answer.is_admitted:
                tally.remaining = told.remaining, tally.spent

    def _is_clouded(self, limits: list[Limit], answer: Answer) -> bool:
        """Was anything decided without the store within the longest window of these?"""
        longest_us = max(limit.window_us for limit in limits)
        return self._fallback_s["local"] >= answer.sent_s - longest_us / SECOND_US

    def _tally(self, limit: Limit) -> _Tally:
        found = self._tallies.get(limit.counter)
        if found is None:
            found = self._tallies[limit.counter] = _Tally(limit, Counts(limit))
        elif found.limit != limit:
            found.is_mixed = True
        return found

    def _change(self, callers: int) -> None:
        self.callers += callers
        self.turn += 1
        self._forget()

    def _forget(self) -> None:
        for tally in self._tallies.values():
            tally.remaining = None


def unchecked(
    checks: Collection[str], witnesses: Iterable[Witness], paced: Witness | None
) -> frozenset[str]:
    """The assertions that were not checked yet, and that a few more answers will check.

    Whether a client is refused, and waits, depends on the load: REFUSAL and RETRY are not among
    them. checks: what was checked; paced: the witness of a client that paces its requests
    """
    steady = {STEADY} if any(each.is_alone for each in witnesses) else set()
    pacing = {PACED} if paced is not None and paced.is_alone else set()
    return _BY_ALL.union(steady, pacing).difference(checks)


def _longest_s(limit: Limit) -> int:
    """The longest time until a limit is full again, in seconds, rounded up."""
    longest_us = limit.window_us
    if limit.kind == "rate":
        longest_us += limit.slot_us
        if limit.burst is not None:
            longest_us = max(longest_us, limit.peak * limit.unit_us)
    return -(-longest_us // SECOND_US)
