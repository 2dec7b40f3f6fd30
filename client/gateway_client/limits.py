"""What answers say of the limits: `Limits`, and a warning when little remains.

Of all limits that a request meets, an answer reports one: the one with the fewest units remaining.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: Below this part of a limit a warning is due.
LOW: Final = 0.1
#: The most limits that warnings tell apart.
MOST_LIMITS: Final = 64

_NUMBER = re.compile(r"[0-9]{1,15}").fullmatch


@dataclass(frozen=True)
class Limits:
    """One limit, as an answer reports it.

    limit:       units that a window admits, `X-RateLimit-Limit`
    remaining:   units that remain of them, `X-RateLimit-Remaining`
    reset:       the Unix time at which all of them are available again, `X-RateLimit-Reset`
    reset_after: the seconds until then, `X-RateLimit-Reset-After`
    """

    limit: int
    remaining: int
    reset: int
    reset_after: int

    @property
    def is_low(self) -> bool:
        """Remains less than a tenth?"""
        return self.remaining < self.limit * LOW


def read_limits(headers: Mapping[str, str]) -> Limits | None:
    """The limits of an answer; None: it has none, or they are malformed.

    headers: by lower-case name, or any mapping that ignores letter case
    """
    found = [
        headers.get(f"x-ratelimit-{name}", "").strip()
        for name in ("limit", "remaining", "reset", "reset-after")
    ]
    if not all(map(_NUMBER, found)):
        return None
    return Limits(*map(int, found))


class LowLimits:
    """Says when to warn: once in a window of each limit."""

    def __init__(self) -> None:
        #: When the next warning may come, by the limit's units, on the caller's clock.
        self._next_at: dict[int, float] = {}

    def is_due(self, limits: Limits, now_s: float) -> bool:
        """Is a warning due now? If so it counts as given."""
        if not limits.is_low or now_s < self._next_at.get(limits.limit, now_s):
            return False
        if len(self._next_at) >= MOST_LIMITS:
            self._next_at.clear()
        self._next_at[limits.limit] = now_s + limits.reset_after
        return True
