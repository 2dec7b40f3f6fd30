"""Warnings of limits: a counter that passed 80 % of its limit, or reached it.

There is one warning per counter, level and window, or per minute if the window is shorter. It costs
a request one dictionary look-up; the writer fetches waiting warnings and stores them.

Only limits per key and per account cause warnings: a client can use any number of addresses and
header values. A used-up concurrency limit is normal, and a limit in shadow mode refuses nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gateway.domain.identity import Identity
from gateway.domain.limits import Decision, Limit, Standing
from gateway.domain.warnings import LimitWarning

#: The most counters with a warning that are cached; beyond it all are dropped: the store has them.
MOST_COUNTERS: Final = 100_000
#: The most warnings that wait; beyond it a warning is dropped, and repeated by a later request.
MOST_WAITING: Final = 1_000
#: At most one warning a minute, also for a limit per second.
LEAST_US: Final = 60_000_000


class LimitWarnings:
    """The warnings of one worker.

    near, reached: counter -> until when there is no further warning, Unix microseconds
    waiting:       warnings that are not stored yet
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
        """Note that a counter reached a level, first in this window. level: 80 or 100"""
        if (
            identity is None
            or decision.local
            or limit.shadow
            or limit.is_leased
            or limit.per not in {"key", "account"}
            or len(self.waiting) >= MOST_WAITING
        ):
            return
        # A quota is available again when its period ends.
        window_us = standing.reset_us if limit.rules.calendar else limit.window_us
        for_us = max(window_us, LEAST_US)
        until = self.near if level < 100 else self.reached
        if len(until) >= MOST_COUNTERS:
            until.clear()
        until[counter] = decision.now_us + for_us
        now_us = decision.now_us
        resets_us = now_us + standing.reset_us
        self.waiting.append(
            LimitWarning(
                *(counter, level, limit.name, plan, identity.record.id, now_us, for_us),
                account=identity.record.account,
                per=limit.per,
                amount=limit.amount,
                used=max(0, limit.amount - standing.remaining),
                window_us=limit.window_us,
                resets_us=resets_us,
                window=resets_us if limit.rules.calendar else now_us // for_us,
            )
        )
