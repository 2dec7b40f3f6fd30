"""Which server of an upstream gets a request, and what is thought of each. Time is handed in.

Two voices speak about a server. Its answers to requests: so many failures in a row and it is out
for a while; then one request probes it, and its answer returns it or puts it out again. And the
health check, where one is set, which has the last word.

A failure is a connection that could not be made or used: refused, late, closed before a head, or
no HTTP. An answer is an answer, a 500 too: a server that says so works as a peer, and what it says
may be about that one request.

The last server that stands is never put out for its failures: a try is better than a certain no.
When health checks call all of them down, there is no such hope, and `choose` says None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.domain.policy import Ejection, HealthCheck


@dataclass(slots=True)
class Health:
    """What is thought of one server.

    failures:  in a row
    out_until: it is left out until then and stays out until a request has probed it; 0.0: it is in
    probing:   a request has been sent to find out whether it is back
    passes:    the health check's word; True where there is none
    streak:    the health check's results in a row that speak against `passes`
    """

    failures: int = 0
    out_until: float = 0.0
    probing: bool = False
    passes: bool = True
    streak: int = 0

    @property
    def stands(self) -> bool:
        """Requests are sent to it as a matter of course."""
        return self.passes and not self.out_until

    @property
    def is_doubted(self) -> bool:
        """Its next answer to a request changes something."""
        return self.failures > 0 or self.probing


def fail(health: Health, ejection: Ejection, now: float, *, is_last: bool) -> None:
    """It failed. is_last: none of its upstream's other servers stands."""
    health.failures += 1
    is_out = health.out_until > 0
    if is_out or (health.failures >= ejection.failures and not is_last):
        health.out_until = now + ejection.for_s
        health.probing = False


def answer(health: Health) -> None:
    """It answered. While it is out this counts only for the probe: others were sent before."""
    health.failures = 0
    if health.probing:
        health.out_until = 0.0
        health.probing = False


def probe(health: Health, ejection: Ejection, now: float) -> None:
    """A request goes to a server that is out.

    Should nothing come of it, its client having left, the next probe is due after the same time.
    """
    health.probing = True
    health.out_until = now + ejection.for_s


def check(health: Health, rule: HealthCheck, is_good: bool) -> None:
    """The health check was answered well, or not. Back in health, all is forgiven."""
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
    """The place of the server that gets the next request; None: health checks call all down.

    below(n) is a random number from 0 to n - 1. First a server that is due for its probe; then
    those that stand; then, of those that are out, the one whose time ends first.
    """
    open_to_all = [at for at, health in enumerate(servers) if health.passes]
    if not open_to_all:
        return None
    out = [at for at in open_to_all if servers[at].out_until]
    if out:
        soonest = min(out, key=lambda at: servers[at].out_until)
        if len(out) == len(open_to_all) or servers[soonest].out_until <= now:
            return soonest
    standing = [at for at in open_to_all if not servers[at].out_until]
    return standing[less_busy([busy[at] for at in standing], below)]


def less_busy(busy: Sequence[int], below: Callable[[int], int]) -> int:
    """The less busy of two picked at random.

    Nearly as even as the least busy of all, and gateways that do not know of each other do not all
    rush to the same one (Mitzenmacher, "The Power of Two Choices").
    """
    if len(busy) == 1:
        return 0
    one = below(len(busy))
    other = below(len(busy) - 1)
    other += other >= one
    return one if busy[one] <= busy[other] else other
