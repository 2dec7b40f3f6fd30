"""Takes a worker's warnings of limits to the store: each once in its window, of all gateways.

In the background, so that a warning costs no request anything.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.domain.ports import StoreDown
from gateway.domain.warnings import LimitWarning
from gateway.observe.metrics import Metrics
from gateway.observe.seldom import Seldom
from gateway.observe.warned import Warned
from gateway.tasks import spawn

log = logging.getLogger("gateway")

EVERY_S: Final = 1.0
_SAID_EVERY_S: Final = 60.0


class Warner:
    """Between `start` and `stop` the one who empties a worker's `Warned`.

    warn: as `domain.ports.WarningStore.warn`; the metric counts what it keeps, and what it has no
          room for
    """

    def __init__(
        self,
        warned: Warned,
        warn: Callable[[LimitWarning], Awaitable[bool]],
        metrics: Metrics,
    ) -> None:
        self._warned = warned
        self._warn = warn
        self._metrics = metrics
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
            while waiting:
                await self._take(waiting.popleft())
        except StoreDown as error:
            if self._seldom.left_out("warnings", time.monotonic()) is not None:
                log.warning("limits cannot be warned of for now: %s", error)

    async def _take(self, warning: LimitWarning) -> None:
        try:
            is_first = await self._warn(warning)
        except StoreDown:
            # At the end: if it alone is what the store does not take, the others need not wait.
            self._warned.waiting.append(warning)
            raise
        if is_first:
            self._metrics.limit_warned(warning.limit, warning.plan, warning.level)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.warn()
