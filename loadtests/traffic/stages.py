"""Stages of a load: each has a number of clients and a duration. The last one may go on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Stage:
    """callers: the number of clients."""

    callers: int
    seconds: int


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Read stages such as "10:30s,50:1m". Raises ValueError with a sentence."""
    stages = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,6}):([0-9]{1,6})([smh])\s*", part)
        if found is None:
            raise ValueError(f"{part!r} is no stage; expected callers:duration, such as 10:30s")
        stages.append(Stage(int(found[1]), int(found[2]) * _UNITS_S[found[3]]))
    return tuple(stages)


def callers_at(stages: Sequence[Stage], passed_s: float) -> int | None:
    """The number of clients after this time; None: the last stage is over."""
    for stage in stages:
        if passed_s < stage.seconds:
            return stage.callers
        passed_s -= stage.seconds
    return None


def callers_until(
    stages: Sequence[Stage], passed_s: float, more_s: float, is_enough: Callable[[], bool]
) -> int | None:
    """As `callers_at`, but the last stage goes on until it is enough, for `more_s` at most."""
    callers = callers_at(stages, passed_s)
    if callers is None and passed_s < sum(each.seconds for each in stages) + more_s:
        return None if is_enough() else stages[-1].callers
    return callers
