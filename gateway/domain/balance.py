"""Which server of an upstream gets a request, and the health of each. Time is passed in.

A server's health depends on two things. Requests: after a number of consecutive failures it is
ejected for a time; then one request probes it, and its result restores it or ejects it again. And
the health check, if one is set: a server that fails it gets no requests at all.

A failure is a connection that could not be made or used: refused, timed out, closed before a head,
or invalid HTTP. Any response counts as a success, also a 500: the server works, and the error may
concern only that request.

The last healthy server is never ejected for its failures: an attempt is better than a certain
refusal. If all servers fail their health checks, `choose` returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.domain.policy import Ejection, HealthCheck


@dataclass(slots=True)
class Health:
    """The health of one server.

    failures:  consecutive failures of requests
    out_until: ejected until this time, and then until a request has probed it; 0.0: not ejected
    probing:   a request was sent to probe it
    passes:    it passes the health check; True if there is none
    streak:    consecutive results of the health check that differ from `passes`
    """

    failures: int = 0
    out_until: float = 0.0
    probing: bool = False
    passes: bool = True
    streak: int = 0

    @property
    def is_healthy(self) -> bool:
        """Is it neither unhealthy by its health check nor ejected?"""
        return self.passes and not self.out_until

    @property
    def is_doubted(self) -> bool:
        """Can the next response change its state?"""
        return self.failures > 0 or self.probing


def fail(health: Health, ejection: Ejection, now: float, *, is_last: bool) -> None:
    """A request to the server failed. is_last: no other server of its upstream is healthy"""
    health.failures += 1
    is_out = health.out_until > 0
    if is_out or (health.failures >= ejection.failures and not is_last):
        health.out_until = now + ejection.for_s
        health.probing = False


def answer(health: Health) -> None:
    """The server responded. While it is ejected only the probe counts: others were sent before."""
    health.failures = 0
    if health.probing:
        health.out_until = 0.0
        health.probing = False


def probe(health: Health, ejection: Ejection, now: float) -> None:
    """A request probes an ejected server.

    If it has no result, because its client disconnected, the next probe is due after `for_s` again.
    """
    health.probing = True
    health.out_until = now + ejection.for_s


def check(health: Health, rule: HealthCheck, is_good: bool) -> None:
    """A health check passed or failed. A server that becomes healthy starts without failures."""
    if is_good == health.passes:
        health.streak = 0
        return
    health.streak += 1
    if health.streak >= (rule.rise if is_good else rule.fall):
        health.passes = is_good
        health.streak = 0
        if is_good:
            health.failures, health.out_until, health.probing = 0, 0.0, False


def choose(
    servers: Sequence[Health], busy: Sequence[int], now: float, below: Callable[[int], int]
) -> int | None:
    """The index of the server that gets the next request; None: all fail their health checks.

    below(n) is a random number from 0 to n - 1. First a server whose probe is due; then the healthy
    ones; then, of the ejected ones, the one whose ejection ends first.
    """
    passing = [at for at, health in enumerate(servers) if health.passes]
    if not passing:
        return None
    out = [at for at in passing if servers[at].out_until]
    if out:
        soonest = min(out, key=lambda at: servers[at].out_until)
        if len(out) == len(passing) or servers[soonest].out_until <= now:
            return soonest
    healthy = [at for at in passing if not servers[at].out_until]
    return healthy[less_busy([busy[at] for at in healthy], below)]


def less_busy(busy: Sequence[int], below: Callable[[int], int]) -> int:
    """The less busy of two picked at random.

    This is nearly as even as picking the least busy of all, and independent gateways do not all
    pick the same server (Mitzenmacher, "The Power of Two Choices").
    """
    if len(busy) == 1:
        return 0
    one = below(len(busy))
    other = below(len(busy) - 1)
    other += other >= one
    return one if busy[one] <= busy[other] else other
