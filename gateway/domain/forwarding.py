"""Whether a request may be sent again, after an attempt that failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

#: Why an attempt failed: the connection closed without an answer, no answer came in time, or the
#: answer has this status.
Cause = Literal["reset", "timeout", "502", "503", "504"]
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)

#: RFC 9110, 9.2.1: methods by which a client asks for no change of state.
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

#: Retries that are possible without earlier requests, and the most that can be saved up.
RESERVE: Final = 10.0


@dataclass(frozen=True, slots=True)
class Retries:
    """When requests of a route are sent again.

    count:  the most times that one request is sent again
    causes: after which failures
    budget: the most retries, as a share of the route's requests, beyond `RESERVE`
    """

    count: int
    causes: tuple[Cause, ...] = ("reset", "502", "503", "504")
    budget: float = 0.2


class RetryBudget:
    """What is left for retries of one route: each request adds a share, each retry takes 1.

    While a service fails, retries would otherwise multiply the requests it gets.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = RESERVE

    def add(self, share: float) -> None:
        """Count a request."""
        self._left = min(self._left + share, RESERVE)

    def take(self) -> bool:
        """Take a retry; False: none is left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True
