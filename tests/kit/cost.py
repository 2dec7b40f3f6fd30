"""What a piece of work costs, as a multiple of a plain one: CPU time, on a machine that is busy.

What else runs takes caches and clock rate from both, at different moments. So the two take turns,
and each is represented by the least of its times. A cost that seems too high is measured further:
it comes down with more turns, unless it is that high.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Before that many turns not even the plain work has had a quiet moment.
_LEAST: Final = 5
_MOST: Final = 100


def cost(
    work: Callable[[], object],
    plain: Callable[[], object],
    most: float,
    *,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """How many times as long as `plain` the work takes; from `most` on, after many turns."""
    least_s = {work: float("inf"), plain: float("inf")}
    ratio = float("inf")
    for turn in range(1, _MOST + 1):
        for each in (plain, work):
            begun_s = clock()
            each()
            least_s[each] = min(least_s[each], clock() - begun_s)
        ratio = least_s[work] / max(least_s[plain], 1e-9)
        if turn >= _LEAST and ratio < most:
            break
    return ratio
