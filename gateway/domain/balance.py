"""Which servers of an upstream may get a request, by the health of each. Time is passed in.

A server's health depends on two things. Requests: after a number of consecutive failures it is
ejected for a time; then one request probes it, and its result restores it or ejects it again. And
the health check, if one is set: a server that fails it gets no requests at all.

A failure is a connection that could not be made or used: refused, timed out, closed before a head,
or invalid HTTP. Any response counts as a success, also a 500: the server works, and the error may
concern only that request. Where a policy says so, `breaker` ejects a server whose answers are
errors or slow too often; a probe then has to be neither.

The last healthy server is never ejected for its failures: an attempt is better than a certain
refusal. Which of the healthy servers gets a request is decided by the rules in `balancing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.upstreams import Ejection, HealthCheck


@dataclass(slots=True)
class Health:
    """The health of one server.

    failures:  consecutive failures of requests
    out_until: ejected until this time, and then until a request has probed it; 0.0: not ejected
    probing:   a request was sent to probe it
    passes:    it passes the health check; True if there is none
    streak:    consecutive results of the health check that differ from `passes`
    counted:   its answers are counted, see `breaker`
    """

    failures: int = 0
    out_until: float = 0.0
    probing: bool = False
    passes: bool = True
    streak: int = 0
    counted: bool = False

    @property
    def is_healthy(self) -> bool:
        """Is it neither unhealthy by its health check nor ejected?"""
        return self.passes and not self.out_until

    @property
    def is_doubted(self) -> bool:
        """Can the next response change its state?"""
        return self.failures > 0 or self.probing or self.counted


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


def eject(health: Health, ejection: Ejection, now: float) -> None:
    """Eject it for its answers."""
    health.out_until = now + ejection.for_s
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


def due(servers: Sequence[Health], now: float, *, is_only: bool) -> int | None:
    """The index of the ejected server that gets the next request; None: a healthy one gets it.

    One whose probe is due; or, if there is no healthy server, the one whose ejection ends first.

    servers: those that are not healthy; is_only: there are no others
    """
    out = [at for at, health in enumerate(servers) if health.passes and health.out_until]
    if not out:
        return None
    soonest = min(out, key=lambda at: servers[at].out_until)
    return soonest if is_only or servers[soonest].out_until <= now else None
