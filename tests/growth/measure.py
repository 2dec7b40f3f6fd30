"""Does the time of a piece of work grow faster than its input? By CPU time, on a busy machine.

An input is a pump: a prefix, a part that is repeated up to a length, and a suffix. Work whose time
grows with the square takes sixteen times as long for four times the length; in proportion, four
times. Noise only adds to a time. So the lengths take turns, each is represented by the least of its
times, and growth that seems too high is measured further, until it is not or was measured often.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, AnyStr, Final, Generic

KIB: Final = 1024
#: The most that the time may grow for four times the length.
MOST_GROWTH: Final = 8.0
#: Less than this for 4 units is not measured further: what grows with the square takes 16 times as
#: long for 16 units.
FLOOR_S: Final = 0.000_4
#: No pump may take longer, in CPU time of the process.
LIMIT_S = 2.0
_TURNS: Final = 12
#: Fewer turns are enough for a time that noise cannot make.
_SURE_TURNS: Final = 3
_SURE_S: Final = 0.01
#: What takes longer than this is not tried with four times the length, if it has grown before.
_LONG_S: Final = 0.02


class TooSlow(Exception):
    """Something took longer than LIMIT_S."""


@dataclass(frozen=True, slots=True)
class Pump(Generic[AnyStr]):
    """An input of any length."""

    prefix: AnyStr
    pump: AnyStr
    suffix: AnyStr

    def of(self, length: int) -> AnyStr:
        """The input whose repeated part has about this length."""
        return self.prefix + self.pump * max(length // len(self.pump), 1) + self.suffix


def fault(
    work: Callable[[Any], object],
    pumps: Iterable[Pump[Any]],
    *,
    unit: int = KIB,
    raises: tuple[type[Exception], ...] = (),
) -> str | None:
    """What is wrong with the work, for the first pump with which anything is; None: nothing.

    unit:   the shortest length; the others are 4 and 16 times as long
    raises: what the work may raise
    """
    for pump in pumps:
        found = None
        try:
            with _limited():
                found = _fault(_Timed(work, pump, raises), unit)
        except TooSlow:
            found = f"takes more than {LIMIT_S:g} s"
        except Exception as error:
            found = f"raises {type(error).__name__}"
        if found is not None:
            return f"{found}: {pump.prefix!r} + n * {pump.pump!r} + {pump.suffix!r}"
    return None


class _Timed:
    """Measures work with the inputs of a pump."""

    def __init__(
        self,
        work: Callable[[Any], object],
        pump: Pump[Any],
        raises: tuple[type[Exception], ...],
    ) -> None:
        self._work = work
        self._pump = pump
        self._raises = raises
        self._calls = 0

    def taken_s(self, length: int) -> float:
        """The CPU time for an input of about this length."""
        # Another one each time, which no cache has.
        self._calls += 1
        text = self._pump.of(length + self._calls * len(self._pump.pump))
        begun_s = time.thread_time()
        with suppress(*self._raises):
            self._work(text)
        return time.thread_time() - begun_s

    def growth(self, length: int) -> str | None:
        """How the time has grown for four times this length, if that is too much."""
        shorter_s = longer_s = float("inf")
        for turn in range(1, _TURNS + 1):
            shorter_s = min(shorter_s, self.taken_s(length))
            longer_s = min(longer_s, self.taken_s(4 * length))
            if longer_s < max(FLOOR_S, MOST_GROWTH * shorter_s):
                return None
            if turn >= _SURE_TURNS and longer_s > _SURE_S:
                break
        return f"takes {shorter_s * 1e3:.3f} ms, and {longer_s * 1e3:.3f} ms for 4 times the length"


def _fault(timed: _Timed, unit: int) -> str | None:
    # A longer text is not tried if a shorter one shows it: it may take for ever.
    for length in (unit, 4 * unit):
        taken_s = timed.taken_s(length)
        if taken_s > _LONG_S and (growth := timed.growth(length // 4)) is not None:
            return growth
    # What has grown up to 4 units, and does not beyond, has a bound.
    return timed.growth(4 * unit) if taken_s > FLOOR_S else None


@contextmanager
def _limited() -> Iterator[None]:
    """Raise TooSlow after LIMIT_S, also within a pattern: these look for signals."""

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
