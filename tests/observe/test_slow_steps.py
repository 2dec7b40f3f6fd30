"""Steps of an event loop that take long are counted and logged, whatever they do."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from gateway.observe import slow_steps
from gateway.observe.slow_steps import SLOW_S, SlowSteps

# pytest-timeout would use SIGALRM, too.
pytestmark = pytest.mark.timeout(method="thread")

#: What the steps call, as a module of the gateway.
_WORK: dict[str, Any] = {"__name__": "gateway.work"}
exec(
    """
def compute(seconds, clock):
    until = clock() + seconds
    while clock() < until:
        pass


def read(pattern, text):
    return pattern.search(text)


class Connection:
    def received(self, work, *given):
        work(*given)
""",
    _WORK,
)
COMPUTE, READ = _WORK["compute"], _WORK["read"]
RECEIVED = _WORK["Connection"]().received
#: Takes a time that grows with the square of the spaces.
PATTERN = re.compile(r"\s+$")
SPACES = " " * 10_000 + "x"
#: What is slow on any machine.
LONG_S = 3 * SLOW_S


def run(*steps: Callable[[], object]) -> SlowSteps:
    """Run each as a step of a loop's own."""
    watched = SlowSteps("worker")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        watched.start()
        await asyncio.sleep(0)
        for step in steps:
            done = loop.create_future()
            loop.call_soon(step)
            loop.call_soon(done.set_result, None)
            await done
        # The last one is logged when another step runs.
        await asyncio.sleep(0.001)
        watched.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
    return watched


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the log, without the time of the step."""
    return [re.sub("took [0-9]+ ms", "took N ms", each.getMessage()) for each in caplog.records]


@pytest.mark.parametrize(
    ("step", "place"),
    [
        (
            lambda: RECEIVED(COMPUTE, LONG_S, time.thread_time),
            "gateway.work.compute, called by tests.observe.test_slow_steps.<lambda>",
        ),
        (
            lambda: READ(PATTERN, SPACES),
            "gateway.work.read, called by tests.observe.test_slow_steps.<lambda>",
        ),
        (
            lambda: RECEIVED(time.sleep, 10 * LONG_S),
            "gateway.work.Connection.received, called by tests.observe.test_slow_steps.<lambda>",
        ),
        (
            lambda: sorted(range(1_000_000), key=lambda number: -number),
            "tests.observe.test_slow_steps.<lambda>",
        ),
    ],
    ids=["computes", "holds the interpreter", "blocks", "of no module of the gateway"],
)
def test_a_slow_step(
    caplog: pytest.LogCaptureFixture, step: Callable[[], object], place: str
) -> None:
    """It is counted once, and the line says where it was and how long it took."""
    watched = run(step)
    assert watched.count == 1
    assert lines(caplog) == [f"event loop: a step took N ms in {place}"]
    found = re.search("took ([0-9]+) ms", caplog.text)
    assert found is not None
    assert int(found[1]) >= 1_000 * SLOW_S
    assert dict(watched.series.values) == {("worker",): (1,)}


def test_short_steps() -> None:
    """Any number of them, one after the other, is no slow step, also not of one task."""

    async def scenario() -> int:
        watched = SlowSteps("courier")
        watched.start()
        await asyncio.sleep(0)
        until = time.thread_time() + 3 * LONG_S
        while time.thread_time() < until:
            COMPUTE(0.000_2, time.thread_time)
            await asyncio.sleep(0)
        watched.stop()
        return watched.count

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(scenario()) == 0


def test_lines_are_throttled(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    """One a second for each place; the next one says how many there were."""
    now_s = 0.0
    monkeypatch.setattr(slow_steps, "_clock", lambda: now_s)

    def later() -> None:
        nonlocal now_s
        now_s += 1.0

    slow = [lambda: COMPUTE(LONG_S, time.thread_time), lambda: time.sleep(10 * LONG_S)]
    assert run(slow[0], slow[0], slow[1], slow[0], later, slow[0]).count == 5
    assert [line.partition(" in ")[2].partition(",")[0] for line in lines(caplog)] == [
        "gateway.work.compute",
        "tests.observe.test_slow_steps.test_lines_are_throttled.<locals>.<lambda>",
        "gateway.work.compute",
    ]
    assert caplog.messages[-1].endswith("(and 2 more there since the last such line)")


def test_a_step_that_goes_on(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    """It is logged while it lasts: its process may be killed before it ends."""
    monkeypatch.setattr(slow_steps, "_LONG_S", LONG_S)
    told: list[int] = []

    def step() -> None:
        COMPUTE(3 * LONG_S, time.thread_time)
        told.append(len(caplog.records))

    assert run(step).count == 1
    assert told == [1]
    assert len(caplog.records) == 1


def test_a_line_that_is_written_meanwhile(
    caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """A step that logs slowly is logged after that line, and not within it."""
    monkeypatch.setattr(slow_steps, "_LONG_S", LONG_S)
    order: list[str] = []

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            order.append(f"begin {record.getMessage()[:10]}")
            if record.getMessage() == "other line":
                COMPUTE(3 * LONG_S, time.thread_time)
            order.append("end")

    log = logging.getLogger("gateway")
    handler = Slow()
    log.addHandler(handler)
    try:
        run(lambda: log.warning("other line"))
    finally:
        log.removeHandler(handler)
    assert order == ["begin other line", "end", "begin event loop", "end"]


def test_after_the_end() -> None:
    """The signal is what it was before, and no timer is left."""
    before = signal.getsignal(signal.SIGALRM)
    watched = run(lambda: COMPUTE(LONG_S, time.thread_time))
    watched.stop()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
