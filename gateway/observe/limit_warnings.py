"""Which limits' counts this worker has warned of: past 80 % of a limit, and where it refuses.

A count is warned of once in its window, or once a minute where that is shorter. On the way of a
request this is a look into a dictionary; the warnings themselves wait until somebody fetches them.

Warned of is what one caller uses up alone: limits per key and per account. Addresses and headers
are as many as a client likes, and a request that holds a place of a concurrency limit is no news.
A limit in shadow refuses nobody.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gateway.domain.limits import Decision, Limit, Standing
from gateway.domain.ports import Identity
from gateway.domain.warnings import LimitWarning

#: Counts that are remembered as warned of; beyond, all are forgotten, and the store still knows.
MOST_COUNTS: Final = 100_000
#: Warnings that wait; beyond, a count is not taken for warned of, and comes again.
MOST_WAITING: Final = 1_000
#: A limit a second is not worth a warning a second.
LEAST_US: Final = 60_000_000


class Warned:
    """What one worker has warned of.

    until: by level, until when a count is not warned of again, Unix microseconds
    """

    def __init__(self) -> None:
        self.near: dict[str, int] = {}
        self.reached: dict[str, int] = {}
        self.waiting: deque[LimitWarning] = deque()

    def note(
        self,
        level: int,
        count: str,
        limit: Limit,
        standing: Standing,
        decision: Decision,
        plan: str,
        identity: Identity | None,
    ) -> None:
        """A count has reached a level that was not warned of in this window."""
        if (
            identity is None
            or decision.local
            or limit.shadow
            or limit.kind == "concurrency"
            or limit.per not in {"key", "account"}
            or len(self.waiting) >= MOST_WAITING
        ):
            return
        # A quota's period ends for all at once, and its allowance is back then.
        window_us = standing.reset_us if limit.kind == "quota" else limit.window_us
        for_us = max(window_us, LEAST_US)
        until = self.near if level < 100 else self.reached
        if len(until) >= MOST_COUNTS:
            until.clear()
        until[count] = decision.now_us + for_us
        self.waiting.append(
            LimitWarning(
                count, level, limit.name, plan, identity.record.id, decision.now_us, for_us
            )
        )
