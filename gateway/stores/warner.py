"""Takes a worker's warnings of limits to the store: each once in its window, of all gateways.

In the background, so that a warning costs no request anything. The audit log gets those that the
store has room for, the metric counts all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.domain.audit import Entry, Event
from gateway.domain.ports import StoreDown
from gateway.domain.usage import Turn
from gateway.observe.metrics import Metrics
from gateway.observe.seldom import Seldom
from gateway.observe.warned import LimitWarning, Warned
from gateway.tasks import spawn

log = logging.getLogger("gateway")

EVERY_S: Final = 1.0
_SAID_EVERY_S: Final = 60.0
_ACTIONS: Final = {80: "limit.near", 100: "limit.reached"}


class Warner:
    """Between `start` and `stop` the one who empties a worker's `Warned`.

    first_to_warn: as `domain.ports.UsageStore.first_to_warn`; append: as `AuditStore.append`
    """

    def __init__(
        self,
        warned: Warned,
        first_to_warn: Callable[[str, int, int], Awaitable[Turn]],
        append: Callable[[Event], Awaitable[Entry]],
        metrics: Metrics,
    ) -> None:
        self._warned = warned
        self._first_to_warn = first_to_warn
        self._append = append
        self._metrics = metrics
        #: What the store has told us to log, and has not taken yet.
        self._event: Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._seldom = Seldom(_SAID_EVERY_S)

    def start(self) -> None:
        """Warn from now on, until `stop`. Needs a running loop."""
        self._task = spawn(self._run(), "limit warnings")

    async def stop(self) -> None:
        """Warn no more; what waits is not worth waiting for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def warn(self) -> None:
        """Take all that waits to the store; while it is away, the rest waits."""
        waiting = self._warned.waiting
        try:
            await self._log()
            while waiting:
                await self._take(waiting.popleft())
        except StoreDown as error:
            if self._seldom.left_out("warnings", time.monotonic()) is not None:
                log.warning("limits cannot be warned of for now: %s", error)

    async def _take(self, warning: LimitWarning) -> None:
        try:
            turn = await self._first_to_warn(warning.count, warning.level, warning.for_us)
        except StoreDown:
            # At the end: if it alone is what the store does not take, the others need not wait.
            self._warned.waiting.append(warning)
            raise
        if turn == "leave":
            return
        self._metrics.limit_warned(warning.limit, warning.plan, warning.level)
        if turn == "log":
            self._event = _event(warning)
            await self._log()

    async def _log(self) -> None:
        if self._event is not None:
            await self._append(self._event)
            self._event = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.warn()


def _event(warning: LimitWarning) -> Event:
    return Event(
        at_us=warning.at_us,
        actor="gateway",
        action=_ACTIONS[warning.level],
        subject=f"key:{warning.key_id}",
        after={"limit": warning.limit, "plan": warning.plan, "level": warning.level},
    )
