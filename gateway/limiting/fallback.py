"""Decides while the store is unavailable, as `on_store_failure` says, and reconciles afterwards.

"open" admits every request and counts nothing; "closed" leaves every check unanswered. With
"local", all workers together admit each limit at most once more during an outage, and what they
admitted is written back to the store. The states are those of `outage`:

- OUTAGE: a check that the store does not answer is decided by the worker's own counters, within its
  share of each limit (`shares`). What is admitted is owed to the store (`owed`). While anything is
  owed to a counter, the store is not asked about it, as its counter is too low.
- RECONCILING: all that is owed is written back in batches, by a check in shadow mode for each
  counter, which counts and refuses nothing. Later checks of the same counter come after it.
- STABILIZING: the store may have lost its data, and other workers may not have reconnected yet. So
  for STABILIZE_S after its first answer both the worker's share and the store decide.

The worker's own counters are kept after an outage: a second one in the same window grants no second
share.

A check whose answer was lost may have been counted; it is then counted twice, but at least once.
Leases are not owed: their holders renew them (`stores/limits/leases.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from gateway.domain.limits import Check, Decision, Standing, governing
from gateway.domain.policy import OnStoreFailure
from gateway.domain.ports import ReviewedLimiter
from gateway.limiting.callbacks import deliver
from gateway.limiting.memory import MemoryLimiter
from gateway.limiting.outage import TABLE, Event, State
from gateway.limiting.owed import Debt, Owed
from gateway.limiting.shares import LocalCounters

log = logging.getLogger("gateway")

Done = Callable[[Decision | None], None]

#: Read for each request. As an attribute of the class it would take several times as long.
_NORMAL: Final = State.NORMAL
#: How long both are asked. Every worker reconnects to a recovered store within 0.25 s.
STABILIZE_S: Final = 0.5
#: How often the store is probed in an outage, and the most counters written back at once.
PROBE_S: Final = 0.1
BATCH_COUNTERS: Final = 64


class Handle(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """The part of an event loop that is used here."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[[], object], /) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Handle: ...


@dataclass(slots=True)
class _Outage:
    """Totals of an outage, for the log.

    since_s: when it began, by the loop's clock
    dropped: `Owed.dropped` at its start
    decided: checks decided without the store
    written: units written back; beyond: those of them that exceeded a limit
    """

    since_s: float
    dropped: int
    decided: int = 0
    written: int = 0
    beyond: int = 0


class FallbackLimiter:
    """Asks the store; while it is unavailable, decides as the policy's `on_store_failure` says.

    mode:      `on_store_failure`, read at each use
    position:  this worker's rank, from 0, and the number of workers that share the limits
    on_active: called with True when the state leaves NORMAL, with False when it returns there
    on_overadmitted: called with a limit's name and the units by which writing back exceeded it
    """

    def __init__(
        self,
        primary: ReviewedLimiter,
        local: MemoryLimiter,
        mode: Callable[[], OnStoreFailure],
        *,
        position: Callable[[], tuple[int, int]] = lambda: (0, 1),
        owed: Owed | None = None,
        loop: Loop | None = None,
        on_active: Callable[[bool], None] = lambda _: None,
        on_overadmitted: Callable[[str, int], None] = lambda _name, _units: None,
    ) -> None:
        #: Called with each refusal by the store.
        self.on_refused: Callable[[Check, Decision], None] = lambda _check, _decision: None
        self._primary = primary
        self._review = self._reviewed
        self._local = LocalCounters(local, position)
        self._clock_us = local.clock_us
        self._mode = mode
        self._position = position
        self._owed = Owed() if owed is None else owed
        self._loop: Loop = loop or asyncio.get_running_loop()
        self._on_active = on_active
        self._on_overadmitted = on_overadmitted
        self._state = _NORMAL
        #: The last check that the store did not answer; probes repeat it.
        self._unanswered: Check | None = None
        #: Until then, in every state but NORMAL, both the share and the store are asked.
        self._stable_s = 0.0
        #: Answers to write-backs that have not arrived yet.
        self._in_flight = 0
        self._outage: _Outage | None = None
        self._timer: Handle | None = None
        #: Checks of this turn of the loop that are decided here.
        self._waiting: list[tuple[Check, Done]] = []

    @property
    def is_active(self) -> bool:
        """Are decisions made without the store, or not by the store alone?"""
        return self._state not in (State.NORMAL, State.CLOSED)

    @property
    def description(self) -> str:
        """How checks are decided without the store: "on_store_failure: local, share 1 of 4"."""
        mode = self._mode()
        share_of = f", share 1 of {self._position()[1]}" if mode == "local" else ""
        return f"on_store_failure: {mode}{share_of}"

    def decide(self, check: Check, done: Done) -> None:
        if (
            self._state is not _NORMAL
            and self._mode() == "local"
            and self._decides_here(check, done)
        ):
            return
        self._primary.decide(check, done, self._review)

    def connected(self) -> None:
        """The connection to the store is up: write back at once, then stabilize."""
        self._step(Event.CONNECTED)
        self._stable_s = self._loop.time() + STABILIZE_S
        self._schedule(0.0)

    def close(self) -> None:
        """Stop probing the store."""
        self._step(Event.CLOSED)
        if self._timer is not None:
            self._timer.cancel()

    # -- deciding ----------------------------------------------------------------------------------

    def _reviewed(self, check: Check, decision: Decision | None) -> Decision | None:
        """Review a refusal by the store, or its failure to answer."""
        if decision is None:
            return self._decide_unanswered(check)
        self.on_refused(check, decision)
        return decision

    def _decides_here(self, check: Check, done: Done) -> bool:
        """Decide a check that the store must not decide alone. False: the store may."""
        if self._owed.owes(check.counters):
            if not self._waiting:
                self._loop.call_soon(self._decide_waiting)
            self._waiting.append((check, done))
            return True
        if self._loop.time() >= self._stable_s:
            return False
        decision = self._local.decide(check)
        if decision.allowed:
            self._primary.decide(check, partial(self._store_answered, check, decision, done))
        else:
            done(decision)
        return True

    def _decide_waiting(self) -> None:
        """Decide the checks of one turn of the loop, and only then deliver: as a batch's answers.

        What follows an admission is a write to the upstream. If decisions came between those
        writes, each would wake the upstream again, which costs half as much as the request.
        """
        waiting, self._waiting = self._waiting, []
        decisions = [self._decide_locally(check) for check, _ in waiting]
        for (_, done), decision in zip(waiting, decisions, strict=True):
            deliver(done, decision)

    def _store_answered(
        self, check: Check, decision: Decision, done: Done, stored: Decision | None
    ) -> None:
        """The store's answer, while stabilizing, to a check that the share admits."""
        if stored is None:
            self._note_unanswered(check)
            self._owe(check)
            done(decision)
            return
        if not stored.allowed:
            self._local.release(check)
        done(stored)

    def _decide_unanswered(self, check: Check) -> Decision | None:
        """The decision on a check that the store did not answer."""
        self._note_unanswered(check)
        match self._mode():
            case "closed":
                return None
            case "open":
                self._count_local()
                return _admitted(check, self._clock_us())
            case "local":
                return self._decide_locally(check)

    def _decide_locally(self, check: Check) -> Decision:
        decision = self._local.decide(check)
        self._count_local()
        if decision.allowed:
            self._owe(check)
        return decision

    def _owe(self, check: Check) -> None:
        """Note an admission that the store does not know of."""
        if not check.cost or check.dry:
            return
        now_us = self._clock_us()
        for name, limit, cost in zip(check.counters, check.limits, check.each_cost, strict=True):
            if cost and not limit.is_leased:
                self._owed.add(name, limit, cost, now_us)

    # -- states ------------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        before, self._state = self._state, TABLE[self._state, event]
        if self._state is before or self._state is State.CLOSED:
            return
        if self._state is State.OUTAGE and self._outage is None:
            self._outage = _Outage(self._loop.time(), self._owed.dropped)
            log.warning("store unavailable: deciding by %s", self.description)
        if before is State.NORMAL:
            self._on_active(True)
            self._schedule(PROBE_S)
        elif self._state is State.NORMAL:
            self._on_active(False)
            self._log_recovery()

    def _note_unanswered(self, check: Check) -> None:
        self._unanswered = check
        self._step(Event.UNANSWERED)

    def _note_answered(self) -> None:
        """The store answered a probe or a write-back."""
        if self._state is State.OUTAGE:
            self._stable_s = self._loop.time() + STABILIZE_S
        self._step(Event.ANSWERED)

    def _schedule(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._state is not State.CLOSED:
            self._timer = self._loop.call_later(wait_s, self._tick)

    def _tick(self) -> None:
        """Do what the state requires, and again until it is NORMAL."""
        self._timer = None
        if not self._in_flight:
            if len(self._owed):
                self._write_back()
            elif self._state is State.OUTAGE:
                self._probe()
            elif self._state is State.RECONCILING:
                self._step(Event.RECONCILED)
        if self._state is State.STABILIZING and self._loop.time() >= self._stable_s:
            self._step(Event.STABILIZED)
        elif self._timer is None:
            self._schedule(PROBE_S)

    def _log_recovery(self) -> None:
        outage, self._outage = self._outage, None
        if outage is not None:
            log.warning(
                "store recovered after %.0f s; %d checks were decided without it, %d units were "
                "written back, %d of them beyond a limit, and %d counters were dropped",
                self._loop.time() - outage.since_s,
                *(outage.decided, outage.written, outage.beyond),
                self._owed.dropped - outage.dropped,
            )

    def _probe(self) -> None:
        """Nothing is owed, so no write-back shows whether the store answers: repeat a check."""

        def answered(decision: Decision | None) -> None:
            if decision is not None:
                self._note_answered()

        if self._unanswered is not None:
            self._primary.decide(self._unanswered.at_cost(0), answered)

    def _write_back(self) -> None:
        """Send the oldest debts: one batch, as the store may still be unavailable."""
        now_us = self._clock_us()
        for debt in self._owed.take(BATCH_COUNTERS):
            due = debt.due(now_us)
            self._in_flight += 2
            names = (debt.name,)
            # Checks of one turn of the loop are one batch, so no other check comes between these.
            wrote = partial(self._written_back, debt, due)
            self._primary.decide(Check((debt.shadow,), names, due), wrote)
            gauged = partial(self._gauge_read, debt, due)
            self._primary.decide(Check((debt.gauge,), names, 0), gauged)

    def _written_back(self, debt: Debt, due: int, decision: Decision | None) -> None:
        self._in_flight -= 1
        if decision is None:
            self._step(Event.UNANSWERED)
            self._owed.put_back(debt)
            return
        debt.written = True
        self._note_answered()
        if self._outage is not None:
            self._outage.written += due

    def _gauge_read(self, debt: Debt, due: int, decision: Decision | None) -> None:
        """The counter after a write-back. A limit in shadow mode cannot be exceeded."""
        self._in_flight -= 1
        if decision is not None and debt.written and not debt.limit.shadow:
            beyond = debt.beyond(due, decision.standings[0].remaining)
            if beyond:
                self._on_overadmitted(debt.limit.name, beyond)
                if self._outage is not None:
                    self._outage.beyond += beyond
        if not self._in_flight and debt.written and len(self._owed):
            self._schedule(0.0)

    def _count_local(self) -> None:
        if self._outage is not None:
            self._outage.decided += 1


def _admitted(check: Check, now_us: int) -> Decision:
    """An admission that is not counted."""
    standings = tuple(Standing(limit.amount, 0) for limit in check.limits)
    index = governing(check.limits, standings, {})
    return Decision(True, index, None, now_us, standings, local=True)
