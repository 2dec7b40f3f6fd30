"""The audit log of customers' changes: each has a bound, so that none displaces the others.

It is a log of its own, so that customers never displace entries of operators.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from gateway.domain.audit import Entry, Event
from gateway.domain.ports import AuditStore
from gateway.observe.log_throttle import LogThrottle

log = logging.getLogger("gateway")

#: The entries of one key, or of one watch that is disabled, in an hour.
MOST_AN_HOUR: Final = 300
_HOUR_S: Final = 3_600.0
_LOG_EVERY_S: Final = 60.0


class CustomerAudit:
    """domain.ports.AuditWriter over a store, with the bound."""

    def __init__(
        self, store: AuditStore, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._monotonic_s = monotonic_s
        self._of: Counter[str] = Counter()
        self._until_s = 0.0
        self._throttle = LogThrottle(_LOG_EVERY_S)

    async def append(self, event: Event) -> Entry | None:
        """None: it is beyond the bound, and is not written."""
        now_s = self._monotonic_s()
        if now_s >= self._until_s:
            self._of.clear()
            self._until_s = now_s + _HOUR_S
        # The courier's own entries are of a watch, so that one cannot use up the room of all.
        who = event.actor if event.actor != "courier" else event.subject
        if self._of[who] >= MOST_AN_HOUR:
            if self._throttle.suppressed(who, now_s) is not None:
                log.warning(
                    "changes of %s are not in the audit log until the hour has ended: "
                    "there are more than %d",
                    *(who, MOST_AN_HOUR),
                )
            return None
        self._of[who] += 1
        return await self._store.append(event)
