"""Warnings of limits: a counter that passed 80 % of its limit, or reached it.

There is one warning per counter, level and window, or per minute where the window is shorter. For a
request this is a dictionary look-up; the warnings wait until the writer to the store fetches them.

Only limits per key and per account give warnings: a client can use any number of addresses and
header values. A used-up concurrency limit is normal, and a shadow limit refuses nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gateway.domain.identity import Identity
from gateway.domain.limits import Decision, Limit, Standing
from gateway.domain.warnings import LimitWarning

#: Counters that are remembered; beyond, all are dropped, and the store still has them.
MOST_COUNTERS: Final = 100_000
#: Warnings that wait; beyond, a warning is dropped, and comes again with a later request.
MOST_WAITING: Final = 1_000
#: At most one warning a minute, also for a limit per second.
LEAST_US: Final = 60_000_000


class LimitWarnings:
    """The warnings of one worker.

    near, reached: counter -> until when there is no further warning, Unix microseconds
    waiting:       those that the store does not have yet
    """

    def __init__(self) -> None:
        self.near: dict[str, int] = {}
        self.reached: dict[str, int] = {}
        self.waiting: deque[LimitWarning] = deque()

    def note(
        self,
        level: int,
        counter: str,
        limit: Limit,
        standing: Standing,
        decision: Decision,
        plan: str,
        identity: Identity | None,
    ) -> None:
        """A counter has reached a level for the first time in this window. level: 80 or 100"""
        if (
            identity is None
            or decision.local
            or limit.shadow
            or limit.is_leased
            or limit.per not in {"key", "account"}
            or len(self.waiting) >= MOST_WAITING
        ):
            return
        # A quota's period ends for all at once, and its allowance is back then.
        window_us = standing.reset_us if limit.rules.calendar else limit.window_us
        for_us = max(window_us, LEAST_US)
        until = self.near if level < 100 else self.reached
        if len(until) >= MOST_COUNTERS:
            until.clear()
        until[counter] = decision.now_us + for_us
        self.waiting.append(
            LimitWarning(
                counter, level, limit.name, plan, identity.record.id, decision.now_us, for_us
            )
        )
