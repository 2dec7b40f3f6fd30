"""A service runs until a signal ends it, and reloads at a signal. The limit on descriptors is
raised as far as possible without privileges."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from gateway.observe.slow_steps import SLOW_S, SlowSteps
from gateway.runtime.process import raise_limit, run, serve
from tests.kit.eventually import eventually


class Recorded:
    """A service that records calls; the test decides when it starts and stops."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.may_stop = asyncio.Event()
        self.may_stop.set()

    async def start(self) -> None:
        self.told.append("start")
        await self.may_start.wait()

    async def stop(self) -> None:
        self.told.append("stop")
        await self.may_stop.wait()

    def stop_now(self) -> None:
        self.told.append("hurry")
        self.may_stop.set()

    def reload(self) -> None:
        self.told.append("reload")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Undo lasting changes of the process after each test."""
    threshold = gc.get_threshold()
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
    handlers = {number: signal.getsignal(number) for number in numbers}
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def tell(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


async def told(service: Recorded, what: list[str]) -> None:
    await eventually(lambda: service.told == what, f"it was told {what}")


def test_signals_reload_and_end_it() -> None:
    """SIGHUP reloads, SIGTERM ends gracefully, a second SIGTERM ends quickly."""

    async def scenario() -> list[str]:
        service = Recorded()
        service.may_stop.clear()
        announced = asyncio.Event()
        serving = asyncio.gather(serve(service, announce=lambda _: announced.set()))
        await announced.wait()
        tell(signal.SIGHUP)
        await told(service, ["start", "reload"])
        tell(signal.SIGTERM)
        await told(service, ["start", "reload", "stop"])
        tell(signal.SIGINT)
        await serving
        return service.told

    assert run(scenario) == ["start", "reload", "stop", "hurry"]


def test_sigusr2_ends_nothing() -> None:
    """Without a handler it is ignored, from before the start, and also in child processes."""

    async def scenario() -> list[str]:
        service = Recorded()
        service.may_start.clear()
        serving = asyncio.gather(serve(service, announce=lambda _: None))
        await told(service, ["start"])
        tell(signal.SIGUSR2)
        inherits = "import os, signal; os.kill(os.getpid(), signal.SIGUSR2); print('lives')"
        words = [sys.executable, "-c", inherits]
        assert await asyncio.to_thread(subprocess.check_output, words) == b"lives\n"
        service.may_start.set()
        tell(signal.SIGTERM)
        await serving
        return service.told

    assert run(scenario)[0] == "start"


def test_it_can_be_ended_once_it_serves() -> None:
    """The announced `stop` ends it like a SIGTERM."""

    async def scenario() -> list[str]:
        service = Recorded()
        await serve(service, announce=lambda stop: stop())
        return service.told

    assert run(scenario) == ["start", "stop"]


# pytest-timeout would use SIGALRM, too.
@pytest.mark.timeout(method="thread")
def test_its_slow_steps_are_counted() -> None:
    """Those of the start and of the announcement are none; all others are, until it has stopped."""
    steps = SlowSteps("worker")

    def block() -> None:
        until_s = time.thread_time() + 3 * SLOW_S
        while time.thread_time() < until_s:
            pass

    async def scenario() -> list[int]:
        counts: list[int] = []

        class Blocking(Recorded):
            async def start(self) -> None:
                await super().start()
                block()

            async def stop(self) -> None:
                counts.append(steps.count)
                block()
                await asyncio.sleep(0)

        def announce(stop: Callable[[], None]) -> None:
            block()
            for later in (block, lambda: counts.append(steps.count), block, stop):
                asyncio.get_running_loop().call_later(0.01, later)

        await serve(Blocking(), announce=announce, steps=steps)
        block()
        await asyncio.sleep(0)
        return [*counts, steps.count]

    assert run(scenario) == [1, 2, 3]


def test_an_early_signal_ends_the_start() -> None:
    """A service that has not started is not stopped, and not reloaded either."""

    async def scenario() -> list[str]:
        service = Recorded()
        service.may_start.clear()
        serving = asyncio.gather(serve(service, announce=lambda _: None))
        await told(service, ["start"])
        tell(signal.SIGHUP)
        tell(signal.SIGTERM)
        await serving
        return service.told

    assert run(scenario) == ["start"]


def test_a_second_early_signal_does_not_interrupt() -> None:
    """What has started is stopped, and the stop is not interrupted."""

    class Slow(Recorded):
        async def start(self) -> None:
            try:
                await super().start()
            finally:
                self.told.append("unwind")
                await self.may_stop.wait()
                self.told.append("unwound")

    async def scenario() -> list[str]:
        service = Slow()
        service.may_start.clear()
        service.may_stop.clear()
        serving = asyncio.gather(serve(service, announce=lambda _: None))
        await told(service, ["start"])
        tell(signal.SIGTERM)
        await told(service, ["start", "unwind"])
        tell(signal.SIGTERM)
        await serving
        return service.told

    assert run(scenario) == ["start", "unwind", "hurry", "unwound"]


def test_a_start_that_is_cancelled_by_others_is_cancelled() -> None:
    """Only a signal is a graceful end."""

    async def scenario() -> None:
        service = Recorded()
        service.may_start.clear()
        serving = asyncio.gather(serve(service, announce=lambda _: None))
        await told(service, ["start"])
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    run(scenario)


def test_a_failed_start_is_an_error() -> None:
    """A start that fails raises its error, and nothing is stopped."""

    class Failing(Recorded):
        async def start(self) -> None:
            raise OSError("no")

    async def scenario() -> None:
        service = Failing()
        with pytest.raises(OSError, match="no"):
            await serve(service, announce=lambda _: None)
        assert service.told == []

    run(scenario)


@pytest.mark.parametrize(
    ("limits", "takes", "expected"),
    [
        ((1024, 4096), True, 4096),
        ((4096, 4096), True, 4096),
        ((1024, resource.RLIM_INFINITY), True, sys.maxsize),
        ((256, resource.RLIM_INFINITY), False, 256),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), True, sys.maxsize),
    ],
)
def test_the_soft_limit_becomes_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], takes: bool, expected: int
) -> None:
    """If the system does not permit it, it stays as it was."""
    asked: list[tuple[int, int]] = []

    def set_limit(what: int, to: tuple[int, int]) -> None:
        assert what == resource.RLIMIT_NOFILE
        if not takes:
            raise ValueError("not so many")
        asked.append(to)

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert raise_limit() == expected
    assert all(to == (limits[1], limits[1]) for to in asked)
