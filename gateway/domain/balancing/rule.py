"""What a rule of load balancing is given, and what it returns.

A rule is built for a set of servers, and again when the set changes: what depends only on the
servers is computed then. What it builds is called for each request. Weights are relative: of two
servers with weights 3 and 1 the first gets three quarters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class Candidate(Protocol):
    """A server that may get the request.

    label:  names it, the same on all workers and gateways
    weight: 1 or more
    busy:   its requests in progress, on this worker
    """

    @property
    def label(self) -> str: ...

    @property
    def weight(self) -> int: ...

    @property
    def busy(self) -> int: ...


class Asking(Protocol):
    """The request."""

    def subject_of(self, by: str) -> str:
        """What a rule goes by: "key", "account", "ip" or "header:NAME", as for limits."""
        ...


C = TypeVar("C", bound=Candidate)

#: below(n): a random number from 0 to n - 1.
Below = Callable[[int], int]


class Build(Protocol):
    """Builds the function that picks a server for a request; there is at least one candidate.

    by: what the policy has the rule go by; "": nothing
    """

    def __call__(self, candidates: Sequence[C], by: str, below: Below) -> Callable[[Asking], C]: ...
