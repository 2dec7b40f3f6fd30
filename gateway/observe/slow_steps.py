"""Notices steps of an event loop that take long: nothing else in the process is served meanwhile.

A step is one callback of the loop: bytes that were received, a timer, a task up to where it awaits.
A timer of the kernel interrupts the main thread 40 times a second and looks at what it does. So the
loop does nothing for this at any step, and a step is seen while it lasts: also within a pattern of
`re`, which holds the interpreter, and within a call that blocks.

The time of a step is that of its CPU, or that since it was first seen if that is longer, as for a
call that blocks. So none of SLOW_S that computes is missed, and none that blocks for half as long
again. When the loop is busy with short steps, one of half of SLOW_S may count, as it is not known
when it began. Waiting for a core does not count: on a machine that is too busy all would be slow.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Literal, NamedTuple

from gateway.observe.log_throttle import LogThrottle
from gateway.observe.registry import Family, Series

_log = logging.getLogger("gateway")
_clock: Callable[[], float] = time.monotonic

#: The process whose loop it is; `admin` is the supervisor, which has the admin listener.
Where = Literal["worker", "courier", "admin"]

SLOW_S: Final = 0.05
#: Between two looks.
_LOOK_S: Final = 0.025
_SOON_S: Final = 0.001
#: A step that goes on is logged after this time: its process may be killed before it ends.
_LONG_S: Final = 1.0
#: The metric.
FAMILY: Final = Family(
    "counter",
    "slow_steps",
    "Steps of an event loop that took more than 50 ms, in which nothing else was served.",
    ("where",),
)


class SlowSteps:
    """Counts the slow steps of the loop of one process, and logs where they were.

    count: how many there were
    """

    def __init__(self, where: Where) -> None:
        self.count = 0
        self._where = where
        self._looks: _Looks | None = None

    @property
    def series(self) -> Series:
        """The metric."""
        return Series(FAMILY, {(self._where,): (self.count,)})

    def start(self) -> None:
        """Begin to look, in the loop of the main thread, whose SIGALRM is used."""
        asyncio.get_running_loop().call_soon(self._begin)

    def stop(self) -> None:
        """Look no more. Idempotent."""
        if self._looks is not None:
            self._looks.end()
            self._looks = None

    def _begin(self) -> None:
        self._looks = _Looks(self, asyncio.get_running_loop(), sys._getframe(1))


class _Moment(NamedTuple):
    """The CPU time of the thread, the time, and how long the thread has waited for a core."""

    cpu_s: float
    time_s: float
    waited_s: float


@dataclass(slots=True)
class _Slow:
    """A slow step."""

    place: str
    took_s: float = 0.0


class _Looks:
    """Looks at the main thread. runs: the frame that the loop runs in, which calls the steps."""

    def __init__(self, steps: SlowSteps, loop: asyncio.AbstractEventLoop, runs: FrameType) -> None:
        self._steps = steps
        self._loop = loop
        self._runs = runs
        self._waits = _Waits(threading.get_native_id())
        self._throttle = LogThrottle()
        #: The outermost frame of the step at the last look; None: the loop waited, or it has ended.
        self._step: FrameType | None = None
        #: The last look; when the step was first seen, and the look before that.
        self._last = self._first = self._before = self._now()
        #: What is told of the step, if it is slow; and what is not logged so far.
        self._slow: _Slow | None = None
        self._untold: list[_Slow] = []
        self._has_ended = False
        self._handler: Any = signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S)

    def end(self) -> None:
        """Look no more, and log what is not logged so far."""
        self._has_ended = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._handler)
        self._waits.close()
        self._tell()

    def _look(self, _signal: int, frame: FrameType | None) -> None:
        """Look once. It is called in the midst of any step, and so changes only what is its own."""
        if self._has_ended:
            return
        now = self._now()
        step = self._step_of(frame)
        if step is not self._step:
            self._step, self._before, self._first = step, self._last, now
            self._slow = None
            if step is not None:
                self._loop.call_soon_threadsafe(self._next, step)
        self._last = now
        wait_s = _LOOK_S if step is None else self._measure(now, frame, step)
        signal.setitimer(signal.ITIMER_REAL, wait_s)

    def _measure(self, now: _Moment, frame: FrameType | None, step: FrameType) -> float:
        """Note how long the step has taken; returns after how long the next look is due."""
        took_s = self._time_of_step(now)
        if took_s < SLOW_S:
            # If it goes on until then, it is slow.
            return min(max(SLOW_S - took_s, _SOON_S), _LOOK_S)
        if self._slow is None:
            self._steps.count += 1
            self._slow = _Slow(_place_in(frame, step))
            self._untold.append(self._slow)
        self._slow.took_s = took_s
        if took_s >= _LONG_S and not _is_logging(frame):
            self._tell()
        return _LOOK_S

    def _next(self, step: FrameType) -> None:
        """Another step runs this. The frame alone does not tell: a task has one for all its steps.

        The frame was kept for the comparison, and what it holds ends here, in the loop.
        """
        if self._has_ended:
            return
        # A look may come at any point of this, and finds another step.
        slow, took_s = self._slow, self._time_of_step(self._now())
        if step is self._step:
            self._step = self._slow = None
            if slow is not None:
                slow.took_s = took_s
        self._tell()

    def _time_of_step(self, now: _Moment) -> float:
        cpu_s = now.cpu_s - self._before.cpu_s
        return max(cpu_s, now.time_s - self._first.time_s - (now.waited_s - self._first.waited_s))

    def _tell(self) -> None:
        """Log the slow steps, each once."""
        while self._untold:
            slow = self._untold.pop(0)
            more = self._throttle.suppressed(slow.place, _clock())
            if more is not None:
                others = f" (and {more} more there since the last such line)" if more else ""
                took_ms = slow.took_s * 1e3
                _log.warning("event loop: a step took %.0f ms in %s%s", took_ms, slow.place, others)

    def _step_of(self, frame: FrameType | None) -> FrameType | None:
        """The outermost frame of the step that the loop is in; None: it waits."""
        while frame is not None and frame is not self._runs:
            outer = frame.f_back
            if outer is self._runs:
                return frame
            frame = outer
        return None

    def _now(self) -> _Moment:
        return _Moment(time.thread_time(), time.monotonic(), self._waits.read_s())


def _place_in(frame: FrameType | None, step: FrameType) -> str:
    """Where a step is: the innermost function of the gateway, and the one that the loop called."""
    found = next(filter(_is_ours, _outwards(frame, step)), step)
    place = _name_of(found)
    return place if found is step else f"{place}, called by {_name_of(step)}"


def _outwards(frame: FrameType | None, step: FrameType) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = None if frame is step else frame.f_back


def _is_ours(frame: FrameType) -> bool:
    return _module_of(frame).startswith("gateway.")


def _is_logging(frame: FrameType | None) -> bool:
    """Is a line being logged? Another one cannot be begun in the midst of it."""
    while frame is not None and _module_of(frame) != "logging":
        frame = frame.f_back
    return frame is not None


def _name_of(frame: FrameType) -> str:
    return f"{_module_of(frame)}.{frame.f_code.co_qualname}"


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


class _Waits:
    """How long a thread has waited for a core, as Linux counts it; 0 where it does not tell."""

    def __init__(self, thread: int) -> None:
        self._file = -1
        with suppress(OSError):
            self._file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def read_s(self) -> float:
        if self._file < 0:
            return 0.0
        try:
            return int(os.pread(self._file, 100, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
