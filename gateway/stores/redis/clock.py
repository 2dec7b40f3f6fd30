"""The store's time of day in this process: what keys expire by.

The clocks of hosts differ, and step. The store's is the one that all gateways on it share, as its
limits do. So it is asked now and then, and in between a clock of this host tells how much time has
passed: one that never steps, whatever becomes of the time of day here. While the store is away that
goes on; before its first answer there is only the host's time of day.

When the store has read its clock is known to within a round trip: after the question left, before
the answer was read. So each answer gives two bounds of the difference between both clocks, and what
was known of it is moved between them, no further than that takes. It is then wrong by no more than
one round trip, and does not change with each answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from gateway.domain.ports import StoreDown
from gateway.stores.wire import command
from gateway.tasks import spawn

TIME: Final = command("TIME")
#: A time beyond it is none: what a limit counts in is exact until then, the year 2112.
LATEST_US: Final = 2**52
#: How often a `ClockKeeper` asks.
REFRESH_S: Final = 1.0


def host_us() -> int:
    """The host's time of day, Unix microseconds."""
    return time.time_ns() // 1000


class StoreClock:
    """now_us: the store's time, Unix microseconds.

    host_us:   the time of day until the store has been heard
    steady_us: microseconds of any beginning, by a clock that never steps
    """

    def __init__(
        self,
        host_us: Callable[[], int] = host_us,
        steady_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
    ) -> None:
        self.steady_us = steady_us
        self._host_us = host_us
        #: How far ahead of the steady clock the store's is; None: not known yet.
        self._ahead_us: int | None = None

    def now_us(self) -> int:
        if self._ahead_us is None:
            return self._host_us()
        return self.steady_us() + self._ahead_us

    def heard(self, asked_us: int, reply: object) -> bool:
        """Take up what TIME was answered, just now; False: it is no time.

        asked_us: by the steady clock, when it was asked
        """
        store_us = _read_time(reply)
        if store_us is None:
            return False
        least, most = store_us - self.steady_us(), store_us - asked_us
        ahead_us = (least + most) // 2 if self._ahead_us is None else self._ahead_us
        self._ahead_us = min(max(ahead_us, least), most)
        return True


class ClockKeeper:
    """Keeps a StoreClock for whoever has no connection that a heartbeat goes over.

    ask: asks for TIME; raises StoreDown
    """

    def __init__(self, clock: StoreClock, ask: Callable[[], Awaitable[object]]) -> None:
        self._clock = clock
        self._ask = ask
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def sync(self) -> None:
        """Ask now. Raises StoreDown."""
        asked_us = self._clock.steady_us()
        reply = await self._ask()
        if not self._clock.heard(asked_us, reply):
            raise StoreDown("the store does not tell the time")

    def start(self) -> None:
        """Ask now and from now on, until `stop`. Needs a running loop."""
        self._task = spawn(self._run(), "store clock")

    async def stop(self) -> None:
        """Ask no more; harmless when repeated."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        # redis-py waits by `asyncio.wait_for`, which in Python 3.11 forgets a cancellation that
        # comes together with what is waited for.
        while not self._is_stopped:
            with suppress(StoreDown):
                await self.sync()
            if not self._is_stopped:
                await asyncio.sleep(REFRESH_S)


def _read_time(reply: object) -> int | None:
    """Unix microseconds from what TIME is answered with: seconds, and microseconds of the next."""
    match reply:
        case [bytes(seconds), bytes(micros)] if _is_number(seconds) and _is_number(micros):
            store_us = int(seconds) * 1_000_000 + int(micros)
            return store_us if store_us < LATEST_US else None
    return None


def _is_number(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= 16
