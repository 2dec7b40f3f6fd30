"""Writes a worker's warnings of limits to the store, in the background.

Each warning is stored once in its window, however many workers write it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.domain.ports import StoreDown
from gateway.domain.warnings import LimitWarning
from gateway.observe.limit_warnings import LimitWarnings
from gateway.observe.log_throttle import LogThrottle
from gateway.observe.metrics import Metrics
from gateway.tasks import end, spawn

log = logging.getLogger("gateway")

EVERY_S: Final = 1.0
_LOG_EVERY_S: Final = 60.0


class WarningWriter:
    """Empties a worker's `LimitWarnings` between `start` and `stop`.

    warn: as `domain.ports.WarningStore.warn`. The metric counts the first warning of a window, even
          if the store has no room for it
    """

    def __init__(
        self,
        warned: LimitWarnings,
        warn: Callable[[LimitWarning], Awaitable[bool]],
        metrics: Metrics,
    ) -> None:
        self._warned = warned
        self._warn = warn
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        self._throttle = LogThrottle(_LOG_EVERY_S)

    def start(self) -> None:
        """Write until `stop`. Needs a running loop."""
        self._task = spawn(self._run(), "limit warnings")

    async def stop(self) -> None:
        """Stop; warnings that are not written are dropped."""
        await end(self._task)

    async def warn(self) -> None:
        """Write all warnings; after a failure, keep the rest for the next try."""
        waiting = self._warned.waiting
        try:
            while waiting:
                await self._take(waiting.popleft())
        except StoreDown as error:
            if self._throttle.suppressed("warnings", time.monotonic()) is not None:
                log.warning(
                    "warnings of limits could not be written, and will be retried: %s", error
                )

    async def _take(self, warning: LimitWarning) -> None:
        try:
            is_first = await self._warn(warning)
        except StoreDown:
            # At the end, so that a warning which the store refuses does not block the others.
            self._warned.waiting.append(warning)
            raise
        if is_first:
            self._metrics.limit_warned(warning.limit, warning.plan, warning.level)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.warn()
