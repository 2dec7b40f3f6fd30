"""The store's time of day in this process, by which keys expire.

The clocks of hosts differ, and step. The store's clock is the one that all gateways on it share. So
it is read periodically, and this host's monotonic clock measures the time since. That continues in
an outage; before the store's first answer the host's time of day is used.

The store reads its clock between the sending of the command and the reading of the reply. So each
reply gives two bounds for the difference of the two clocks, and the known difference is clamped to
them. It is then wrong by one round trip at most, and does not change with each reply.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from gateway.domain.ports import StoreDown
from gateway.stores.redis.connection import command
from gateway.tasks import end, spawn

TIME: Final = command("TIME")
#: Later times are invalid. Until then, the year 2112, limits are exact in microseconds.
LATEST_US: Final = 2**52
#: How often a `ClockKeeper` asks.
REFRESH_S: Final = 1.0


def host_us() -> int:
    """The host's time of day, Unix microseconds."""
    return time.time_ns() // 1000


class StoreClock:
    """The store's clock. now_us: Unix microseconds.

    host_us:   the time of day until the store's is known
    steady_us: microseconds since any fixed moment, by a clock that never steps
    """

    def __init__(
        self,
        host_us: Callable[[], int] = host_us,
        steady_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
    ) -> None:
        self.steady_us = steady_us
        self._host_us = host_us
        #: The store's time less that of the steady clock; None: not known yet.
        self._ahead_us: int | None = None

    def now_us(self) -> int:
        if self._ahead_us is None:
            return self._host_us()
        return self.steady_us() + self._ahead_us

    def update(self, sent_us: int, reply: object) -> bool:
        """Update the clock by a reply to TIME that has just arrived. False: it is not a time.

        sent_us: when it was sent, by the steady clock
        """
        store_us = _read_time(reply)
        if store_us is None:
            return False
        least, most = store_us - self.steady_us(), store_us - sent_us
        ahead_us = (least + most) // 2 if self._ahead_us is None else self._ahead_us
        self._ahead_us = min(max(ahead_us, least), most)
        return True


class ClockKeeper:
    """Keeps a StoreClock up to date in a process without a heartbeat to the store.

    ask: sends TIME; raises StoreDown
    """

    def __init__(self, clock: StoreClock, ask: Callable[[], Awaitable[object]]) -> None:
        self._clock = clock
        self._ask = ask
        self._task: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        """Read the store's time now. Raises StoreDown."""
        sent_us = self._clock.steady_us()
        reply = await self._ask()
        if not self._clock.update(sent_us, reply):
            raise StoreDown("the store's reply to TIME is not a time")

    def start(self) -> None:
        """Read it now and once a second, until `stop`. Needs a running loop."""
        self._task = spawn(self._run(), "store clock")

    async def stop(self) -> None:
        """Stop reading it; harmless when repeated."""
        await end(self._task)

    async def _run(self) -> None:
        while True:
            with suppress(StoreDown):
                await self.sync()
            await asyncio.sleep(REFRESH_S)


def _read_time(reply: object) -> int | None:
    """Unix microseconds from a reply to TIME: seconds, and microseconds."""
    match reply:
        case [bytes(seconds), bytes(micros)] if _is_number(seconds) and _is_number(micros):
            store_us = int(seconds) * 1_000_000 + int(micros)
            return store_us if store_us < LATEST_US else None
    return None


def _is_number(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= 16
