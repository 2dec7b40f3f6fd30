"""Runs a process: its event loop, signals, garbage collection and limit of descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import uvloop

from gateway.observe.slow_steps import SlowSteps

_Result = TypeVar("_Result")

#: For gc.set_threshold. A request makes no cycles, so collecting after every 700 allocations,
#: Python's default, is wasted time. The larger the oldest generation, the longer its collection
#: blocks everything: 50 ms with 100,000 keys.
GC_THRESHOLDS = (20_000, 2, 100)


class Service(Protocol):
    """What `serve` runs."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def stop_now(self) -> None: ...

    def reload(self) -> None: ...


def run(main: Callable[[], Awaitable[_Result]]) -> _Result:
    """Run a coroutine function on uvloop."""

    async def entered() -> _Result:
        return await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(entered())


async def serve(
    service: Service,
    *,
    announce: Callable[[Callable[[], None]], None],
    steps: SlowSteps | None = None,
) -> None:
    """Run a service until SIGTERM or SIGINT; a second one stops it now; SIGHUP reloads.

    announce: called once the service has started, with a function that stops it like a SIGTERM
    steps:    looks at the steps of the loop from then on: a start may take as long as it takes
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    running = asyncio.current_task()
    assert running is not None
    has_started = False

    def stop() -> None:
        if stopping.is_set():
            service.stop_now()
        elif not has_started:
            running.cancel()
        stopping.set()

    def reload() -> None:
        if has_started:  # a start reads everything anyway
            service.reload()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    # By default it would end the process. A serving supervisor handles it, but a starting one, a
    # worker and the private Redis, which inherits this, may get it too: from `systemctl kill`.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        await service.start()
    except asyncio.CancelledError:
        if stopping.is_set():
            return
        raise
    has_started = True
    try:
        # Objects created by the start stay; scanning them at each full collection is wasted time.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        announce(stop)
        if steps is not None:
            steps.start()
        await stopping.wait()
    finally:
        await service.stop()
        if steps is not None:
            steps.stop()


def raise_limit() -> int:
    """Raise the soft limit of descriptors to the hard one, which needs no rights; returns it.

    The soft limit is often 1,024, for programs that call select().
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS reports its hard limit as infinite, but accepts only less.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
