"""Counts failed authentications of one address several at a time.

A client that tries key after key would cost the store a decision each. So once an address fails
often, one decision counts several units at once, and the next failures are admitted from them
without asking the store. While a decision is awaited, further failures of the address wait, and
share the next one.

Nothing is admitted beyond the limit: units are counted before they are used, and are used within
the slot of the window in which the store counted them (see `domain.window`). Units that are not
used by then are lost: the address may be refused that much earlier. So at most an eighth of what
was used in the slot is counted ahead, and a sixteenth of what remains.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from gateway.domain.limits import SECOND_US, Check, Decision, Limit, Standing
from gateway.limiting.callbacks import deliver
from gateway.limiting.refusal_cache import RefusingLimiter

Done = Callable[[Decision | None], None]
Waiting = tuple[Check, Done]

#: The most units at once; at most this part of those used in the slot, and of what remained after
#: the last decision.
MOST_UNITS: Final = 1_024
PART_OF_USED: Final = 8
PART_OF_REST: Final = 16
#: How long they can be used at most, where slots are longer.
MOST_US: Final = SECOND_US
#: The most addresses kept; beyond it, the one that is kept for longest is dropped.
MOST_KEPT: Final = 4_096


@dataclass(slots=True, eq=False)
class _Prepaid:
    """The units of one counter.

    limits:   those of its checks; after a reload others, which are counted apart
    asked:    the check that the store decides now; None: it decides none
    covered:  the checks that it decides; waiting: those that came later
    size:     how many units the last decision counted
    decision: that decision, and when it was asked for
    left:     units that are not used yet; until_ns: when they are lost
    used:     units that were used until then
    """

    limits: tuple[Limit, ...]
    asked: Check | None = None
    covered: list[Waiting] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    size: int = 1
    decision: Decision | None = None
    at_ns: int = 0
    left: int = 0
    until_ns: int = 0
    used: int = 0

    def admit(self, decision: Decision, sent_ns: int) -> None:
        """Note units that the store has counted. sent_ns: when it was asked"""
        slot_us = self.limits[0].slot_us
        if sent_ns >= self.until_ns:
            self.used = 0
        self.decision, self.at_ns, self.left = decision, sent_ns, self.size
        self.until_ns = sent_ns + min(slot_us - decision.now_us % slot_us, MOST_US) * 1000

    def more(self, now_ns: int) -> int:
        """How many units to count next for failures to come: more, the more came in this slot."""
        if self.decision is None or now_ns >= self.until_ns:
            return 0
        rest = self.decision.remaining // PART_OF_REST
        return min(self.used // PART_OF_USED, rest, MOST_UNITS)

    def spend(self, now_ns: int) -> Decision:
        """The decision on a check that uses one of the units."""
        decision, passed_us = self.decision, (now_ns - self.at_ns) // 1000
        assert decision is not None
        self.left -= 1
        self.used += 1
        standing = Standing(decision.remaining + self.left, max(0, decision.reset_us - passed_us))
        return Decision(
            *(True, 0, None, decision.now_us + passed_us, (standing,)), local=decision.local
        )


class PrepaidLimiter:
    """Implements `RefusingLimiter` around one, for checks with `Check.ahead`; others pass.

    now_ns: a clock that never steps back, in nanoseconds
    """

    def __init__(
        self, limiter: RefusingLimiter, now_ns: Callable[[], int], *, capacity: int = MOST_KEPT
    ) -> None:
        self.on_refused: Callable[[Check, Decision], None] = lambda _check, _decision: None
        self._limiter = limiter
        limiter.on_refused = self._refused
        self._now_ns = now_ns
        self._capacity = capacity
        #: By the name of the counter, the oldest first.
        self._kept: OrderedDict[str, _Prepaid] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def decide(self, check: Check, done: Done) -> None:
        if not check.ahead:
            self._limiter.decide(check, done)
            return
        prepaid = self._kept.get(check.counters[0])
        if prepaid is None or prepaid.limits is not check.limits:
            prepaid = self._add(check)
        if prepaid.asked is not None:
            prepaid.waiting.append((check, done))
            return
        now_ns = self._now_ns()
        if prepaid.left and now_ns < prepaid.until_ns:
            done(prepaid.spend(now_ns))
            return
        prepaid.waiting.append((check, done))
        self._ask(prepaid)

    def _add(self, check: Check) -> _Prepaid:
        self._kept.pop(check.counters[0], None)
        if len(self._kept) >= self._capacity:
            self._kept.popitem(last=False)
        prepaid = self._kept[check.counters[0]] = _Prepaid(check.limits)
        return prepaid

    def _ask(self, prepaid: _Prepaid) -> None:
        """Have the checks that wait counted, and units for others to come."""
        prepaid.covered, prepaid.waiting = prepaid.waiting, []
        now_ns, check = self._now_ns(), prepaid.covered[0][0]
        prepaid.size = size = len(prepaid.covered) + prepaid.more(now_ns)
        prepaid.asked = asked = check if size == 1 else check.at_cost(size)
        self._limiter.decide(asked, partial(self._answered, prepaid, now_ns))

    def _answered(self, prepaid: _Prepaid, sent_ns: int, decision: Decision | None) -> None:
        asked, prepaid.asked = prepaid.asked, None
        covered, prepaid.covered = prepaid.covered, []
        assert asked is not None
        if decision is None or not decision.allowed:
            if self._kept.get(asked.counters[0]) is prepaid:
                del self._kept[asked.counters[0]]
            self._not_admitted(covered + prepaid.waiting, prepaid.size, decision)
            return
        prepaid.admit(decision, sent_ns)
        # The store has counted them, however long its answer took. All are decided before one is
        # delivered: a callback may bring the next check, which uses a unit, or asks for more.
        decisions = [prepaid.spend(sent_ns) for _ in covered]
        for (_, done), spent in zip(covered, decisions, strict=True):
            deliver(done, spent)
        later, prepaid.waiting = deque(prepaid.waiting), []
        while later and prepaid.left and (now_ns := self._now_ns()) < prepaid.until_ns:
            deliver(later.popleft()[1], prepaid.spend(now_ns))
        prepaid.waiting += later
        if prepaid.waiting and prepaid.asked is None:
            self._ask(prepaid)

    def _not_admitted(self, checks: list[Waiting], size: int, decision: Decision | None) -> None:
        """Deliver that nothing was counted; if several were refused, ask for each, all at once."""
        for check, done in checks:
            if decision is not None and size > 1:
                self._limiter.decide(check, done)
            else:
                deliver(done, decision)

    def _refused(self, check: Check, decision: Decision) -> None:
        """Pass on a refusal, unless it is of several units: fewer may be admitted."""
        prepaid = self._kept.get(check.counters[0])
        if prepaid is None or prepaid.asked is not check or prepaid.size == 1:
            self.on_refused(check, decision)
