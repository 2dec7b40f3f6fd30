"""Which server of an upstream gets a request, and the health of each. Time is passed in.

A server's health has two sources. Responses to requests: after so many failures in a row it is
ejected for a time; then one request probes it, and its result returns or ejects it again. And the
health check, where one is set: a server that fails it gets no requests at all.

A failure is a connection that could not be made or used: refused, timed out, closed before a head,
or no valid HTTP. Any response counts as a success, a 500 too: the server works as a peer, and the
error may concern that one request only.

The last healthy server is never ejected for its failures: an attempt is better than a certain
refusal. Where all of them fail their health checks, `choose` returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.domain.policy import Ejection, HealthCheck


@dataclass(slots=True)
class Health:
    """The health of one server.

    failures:  in a row
    out_until: ejected until then, and after it until a request has probed it; 0.0: not ejected
    probing:   a request was sent to probe it
    passes:    it passes the health check; True where there is none
    streak:    results of the health check in a row that differ from `passes`
    """

    failures: int = 0
    out_until: float = 0.0
    probing: bool = False
    passes: bool = True
    streak: int = 0

    @property
    def is_healthy(self) -> bool:
        """Requests are sent to it."""
        return self.passes and not self.out_until

    @property
    def is_doubted(self) -> bool:
        """Its next result changes its state."""
        return self.failures > 0 or self.probing


def fail(health: Health, ejection: Ejection, now: float, *, is_last: bool) -> None:
    """It failed. is_last: none of its upstream's other servers is healthy."""
    health.failures += 1
    is_out = health.out_until > 0
    if is_out or (health.failures >= ejection.failures and not is_last):
        health.out_until = now + ejection.for_s
        health.probing = False


def answer(health: Health) -> None:
    """It responded. While it is ejected only the probe counts: other requests were sent before."""
    health.failures = 0
    if health.probing:
        health.out_until = 0.0
        health.probing = False


def probe(health: Health, ejection: Ejection, now: float) -> None:
    """A request is sent to an ejected server.

    Where it has no result because its client left, the next probe is due after the same time.
    """
    health.probing = True
    health.out_until = now + ejection.for_s


def check(health: Health, rule: HealthCheck, is_good: bool) -> None:
    """The health check passed, or failed. A server that becomes healthy starts without failures."""
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

    below(n) is a random number from 0 to n - 1. First a server that is due for its probe; then the
    healthy ones; then, of the ejected ones, the one whose time ends first.
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

    This is nearly as even as the least busy of all, and independent gateways do not all send to
    the same server (Mitzenmacher, "The Power of Two Choices").
    """
    if len(busy) == 1:
        return 0
    one = below(len(busy))
    other = below(len(busy) - 1)
    other += other >= one
    return one if busy[one] <= busy[other] else other
