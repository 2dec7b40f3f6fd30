"""The life of a process: its loop, its signals, its end."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable
from typing import Protocol

import uvloop

#: Young objects between two collections. A request makes no cycles, so collecting after every 700
#: allocations, Python's default, only costs.
GC_THRESHOLD = 20_000


class Service(Protocol):
    """What is run."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def hurry(self) -> None: ...

    def reload(self) -> None: ...


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine function on uvloop."""

    async def entered() -> None:
        await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(entered())


async def serve(service: Service, *, announce: Callable[[], None]) -> None:
    """Run a service until SIGTERM or SIGINT; a second one ends it at once; SIGHUP reloads."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            service.hurry()
        stopping.set()

    await service.start()
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, service.reload)
        # What a start has made stays; looking through it at each full collection is of no use.
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        announce()
        await stopping.wait()
    finally:
        await service.stop()
