"""What is done while the store cannot be asked, and on its return: as `on_store_failure` says.

"open" lets everything pass and counts nothing, "closed" leaves every question unanswered. With
"local", all workers together admit no more than the limit once again, and the store learns of it:

- Away. A question that the store leaves unanswered is decided by the worker's own counts, of which
  its share of each limit (`shares`) is the bound. What is admitted is owed to the store (`ledger`).
  While a count is owed anything the store is not asked about it: it would know too little.
- Back. All that is owed is written back, a batch at a time: a check per count in shadow mode, which
  counts and refuses nothing. Whatever is asked about the count afterwards stands in line behind it.
- Settling. The store may have lost what it knew, and other workers may not be back yet. So for a
  while both are asked, the own share and the store; after that the store alone.

The own counts outlive all this: a second outage in the same window hands out no second share.

An answer that was lost on its way may have been counted; it is then counted twice, never not at
all. Leases are not owed: whoever holds them puts them back (`leases`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from gateway.domain.limits import Check, Decision, Standing
from gateway.domain.policy import OnStoreFailure
from gateway.domain.ports import ReviewedLimiter
from gateway.stores.ledger import Debt, Ledger
from gateway.stores.memory import MemoryLimiter
from gateway.stores.shares import OwnCounts

log = logging.getLogger("gateway")

Done = Callable[[Decision | None], None]

#: How long both are asked. Every worker finds a store that is back within a quarter of a second.
SETTLE_S: Final = 0.5
#: How often it is tried whether the store answers again, and the most counts written back at once.
LOOK_S: Final = 0.1
BATCH_COUNTS: Final = 64


class Handle(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """What is needed of an event loop."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Handle: ...


@dataclass(slots=True)
class _Tally:
    """What an outage came to, for the log. forgotten: that of the ledger at its start."""

    forgotten: int
    decided: int = 0
    written: int = 0
    beyond: int = 0


class FallbackLimiter:
    """Asks the store, and where that cannot be asked does as the policy says.

    mode:      read at each use
    place:     this worker's rank, from 0, and how many workers share the limits
    on_active: told when decisions begin to be made without the store alone, and when that is over
    on_beyond: told of units by which a count went beyond its limit when they were written back, and
               the limit's name
    """

    def __init__(
        self,
        primary: ReviewedLimiter,
        local: MemoryLimiter,
        mode: Callable[[], OnStoreFailure],
        *,
        place: Callable[[], tuple[int, int]] = lambda: (0, 1),
        ledger: Ledger | None = None,
        loop: Loop | None = None,
        on_active: Callable[[bool], None] = lambda _: None,
        on_beyond: Callable[[str, int], None] = lambda _name, _units: None,
    ) -> None:
        #: Told of each refusal by the store.
        self.on_refused: Callable[[Check, Decision], None] = lambda _check, _decision: None
        self._primary = primary
        self._review = self._reviewed
        self._own = OwnCounts(local, place)
        self._clock_us = local.clock_us
        self._mode = mode
        self._place = place
        self._ledger = Ledger() if ledger is None else ledger
        self._loop: Loop = loop or asyncio.get_running_loop()
        self._on_active = on_active
        self._on_beyond = on_beyond
        #: False: the store alone decides, and nothing below is looked at.
        self._unsettled = False
        #: The store did not answer when it was last asked; this is what it was asked.
        self._is_away = False
        self._unanswered: Check | None = None
        self._settles_s = 0.0
        #: Answers to what was written back that are still to come.
        self._flying = 0
        self._tally: _Tally | None = None
        self._timer: Handle | None = None
        self._is_closed = False

    @property
    def is_active(self) -> bool:
        """Are decisions made without the store, or not by it alone?"""
        return self._unsettled

    @property
    def manner(self) -> str:
        """How it is decided without the store: "on_store_failure: local, share 1 of 4"."""
        mode = self._mode()
        share_of = f", share 1 of {self._place()[1]}" if mode == "local" else ""
        return f"on_store_failure: {mode}{share_of}"

    def decide(self, check: Check, done: Done) -> None:
        if self._unsettled and self._mode() == "local" and self._decides(check, done):
            return
        self._primary.decide(check, done, self._review)

    def returned(self) -> None:
        """The store can be asked again, after it could not: write back at once, and settle."""
        self._is_away = False
        self._settles_s = self._loop.time() + SETTLE_S
        self._unsettle()
        self._look_in(0.0)

    def close(self) -> None:
        """Try no more to reach the store."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # -- deciding ----------------------------------------------------------------------------------

    def _reviewed(self, check: Check, decision: Decision | None) -> Decision | None:
        """The store has not admitted a request, or has not answered."""
        if decision is None:
            return self._instead(check)
        self.on_refused(check, decision)
        return decision

    def _decides(self, check: Check, done: Done) -> bool:
        """Decide here what the store is not to decide, or not alone; False: nothing of that."""
        if self._ledger.owes(check.counters):
            done(self._locally(check))
            return True
        if self._loop.time() >= self._settles_s:
            return False
        decision = self._own.decide(check)
        if decision.allowed:
            self._primary.decide(check, partial(self._confirmed, check, decision, done))
        else:
            done(decision)
        return True

    def _confirmed(
        self, check: Check, decision: Decision, done: Done, stored: Decision | None
    ) -> None:
        """The store's word, while settling, on what the own share admits."""
        if stored is None:
            self._went_away(check)
            self._owe(check)
            done(decision)
            return
        if not stored.allowed:
            self._own.release(check)
        done(stored)

    def _instead(self, check: Check) -> Decision | None:
        """The decision where the store has given none."""
        self._went_away(check)
        match self._mode():
            case "closed":
                return None
            case "open":
                self._count_decision()
                return _admitted(check, self._clock_us())
            case "local":
                return self._locally(check)

    def _locally(self, check: Check) -> Decision:
        decision = self._own.decide(check)
        self._count_decision()
        if decision.allowed:
            self._owe(check)
        return decision

    def _owe(self, check: Check) -> None:
        """The store does not know of this admission."""
        if not check.cost or check.dry:
            return
        now_us = self._clock_us()
        for name, limit in zip(check.counters, check.limits, strict=True):
            if limit.kind != "concurrency":
                self._ledger.add(name, limit, check.cost, now_us)

    # -- away and back -----------------------------------------------------------------------------

    def _went_away(self, check: Check) -> None:
        self._is_away = True
        self._unanswered = check
        if self._tally is None and not self._is_closed:
            self._tally = _Tally(self._ledger.forgotten)
            log.warning("store: cannot be asked; %s", self.manner)
        self._unsettle()

    def _came_back(self) -> None:
        """The store has answered."""
        if self._is_away:
            self._is_away = False
            self._settles_s = self._loop.time() + SETTLE_S

    def _unsettle(self) -> None:
        if not self._unsettled and not self._is_closed:
            self._unsettled = True
            self._on_active(True)
            self._look_in(LOOK_S)

    def _look_in(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_closed:
            self._timer = self._loop.call_later(wait_s, self._look)

    def _look(self) -> None:
        """Do what is due; comes by again until the store alone decides."""
        self._timer = None
        if not self._flying:
            if len(self._ledger):
                self._write_back()
            elif self._is_away:
                self._probe()
            elif self._loop.time() >= self._settles_s:
                self._settle()
                return
        if self._timer is None:
            self._look_in(LOOK_S)

    def _settle(self) -> None:
        self._unsettled = False
        self._on_active(False)
        tally, self._tally = self._tally, None
        if tally is not None:
            log.warning(
                "store: decides again; without it %d decisions were made here, %d units have been "
                "written back, %d of them beyond a limit, and %d counts were forgotten",
                *(tally.decided, tally.written, tally.beyond),
                self._ledger.forgotten - tally.forgotten,
            )

    def _probe(self) -> None:
        """Nothing is owed that would show whether the store answers: ask the last question."""

        def answered(decision: Decision | None) -> None:
            if decision is not None:
                self._came_back()

        if self._unanswered is not None:
            self._primary.decide(self._unanswered.at_cost(0), answered)

    def _write_back(self) -> None:
        """Send the oldest debts. One store that is away and owed much is not asked about all."""
        now_us = self._clock_us()
        for debt in self._ledger.take(BATCH_COUNTS):
            due = debt.due(now_us)
            self._flying += 2
            names = (debt.name,)
            # Asked in one turn they are one batch, so nothing comes between the two.
            wrote = partial(self._wrote, debt, due)
            self._primary.decide(Check((debt.shadow,), names, due), wrote)
            gauged = partial(self._gauged, debt, due)
            self._primary.decide(Check((debt.gauge,), names, 0), gauged)

    def _wrote(self, debt: Debt, due: int, decision: Decision | None) -> None:
        self._flying -= 1
        if decision is None:
            self._is_away = True
            self._ledger.put_back(debt, self._clock_us())
            return
        debt.written = True
        self._came_back()
        if self._tally is not None:
            self._tally.written += due

    def _gauged(self, debt: Debt, due: int, decision: Decision | None) -> None:
        """The count after the debt was written back; a limit in shadow mode has no bound."""
        self._flying -= 1
        if decision is not None and debt.written and not debt.limit.shadow:
            beyond = debt.beyond(due, decision.standings[0].remaining)
            if beyond:
                self._on_beyond(debt.limit.name, beyond)
                if self._tally is not None:
                    self._tally.beyond += beyond
        if not self._flying and debt.written and len(self._ledger):
            self._look_in(0.0)

    def _count_decision(self) -> None:
        if self._tally is not None:
            self._tally.decided += 1


def _admitted(check: Check, now_us: int) -> Decision:
    """An admission that nothing has counted."""
    standings = tuple(Standing(limit.amount, 0) for limit in check.limits)
    enforced = [index for index, limit in enumerate(check.limits) if not limit.shadow]
    governing = min(enforced, key=lambda index: check.limits[index].amount, default=0)
    return Decision(True, governing, None, now_us, standings, local=True)
