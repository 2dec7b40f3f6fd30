"""The end of every exchange: metrics and the access log are written here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.domain.limits import Check, Decision
from gateway.observe.access import AccessLog
from gateway.observe.metrics import Metrics, Outcome

if TYPE_CHECKING:
    from gateway.proxy.exchange import Exchange

#: nginx's code for "the client went away before it was answered".
CLIENT_GONE = 499


class Accounting:
    """Writes down what was decided and what came of it."""

    def __init__(
        self, metrics: Metrics, access: AccessLog | None, clock_us: Callable[[], int]
    ) -> None:
        self.metrics = metrics
        self.access = access
        self._clock_us = clock_us

    def decided(self, check: Check, plan: str, decision: Decision) -> None:
        """Count what each limit said. Asking at cost 0 is not a decision."""
        if not check.cost:
            return
        count = self.metrics.decided
        refusing = decision.refusing
        outcome: Outcome
        for limit, standing in zip(check.limits, decision.standings, strict=True):
            if refusing & 1:
                count(limit.name, plan, "shadow" if limit.shadow else "limited")
            elif decision.allowed:
                if decision.local:
                    outcome = "local"
                # Past 80 %, as operators of envoyproxy/ratelimit know it.
                elif standing.remaining * 5 < limit.amount:
                    outcome = "near"
                else:
                    outcome = "admitted"
                count(limit.name, plan, outcome)
            refusing >>= 1

    def ended(self, exchange: Exchange, reason: str | None, now: float) -> None:
        """Close the books on an exchange. reason: why it broke off, where it did."""
        duration_s = now - exchange.started
        verdict = exchange.verdict
        if reason is None and verdict is not None:
            reason = verdict.reason
            self.metrics.refused(reason)
        status = exchange.status or CLIENT_GONE
        self.metrics.inflight -= 1
        self.metrics.ended(
            exchange.route.name,
            exchange.method,
            status,
            exchange.source,
            duration_s,
            exchange.upstream_name,
            exchange.upstream_s,
        )
        if self.access is not None:
            self._log(self.access, exchange, status, duration_s, reason)

    def _log(
        self,
        access: AccessLog,
        exchange: Exchange,
        status: int,
        duration_s: float,
        reason: str | None,
    ) -> None:
        check, decision, identity = exchange.check, exchange.decision, exchange.identity
        record = None if identity is None else identity.record
        duration_us = int(duration_s * 1e6)
        access.write(
            # When it came, not when it ended: that is the time a replay has to decide at.
            self._clock_us() - duration_us,
            exchange.request_id.decode("ascii"),
            exchange.client_ip,
            exchange.method,
            exchange.requested.path,
            status,
            exchange.route.name or None,
            None if record is None else record.id,
            None if record is None else record.account,
            None if record is None else record.plan,
            _decision(exchange),
            None if check is None or decision is None else check.limits[decision.governing].name,
            0 if check is None else check.cost,
            exchange.bytes_in,
            exchange.bytes_out,
            duration_us,
            None if exchange.upstream_s is None else int(exchange.upstream_s * 1e6),
            exchange.upstream_name,
            reason,
        )


def _decision(exchange: Exchange) -> str:
    verdict = exchange.verdict
    if verdict is None:
        return "admitted" if exchange.status else "failed"
    if verdict.status == 429:
        return "limited"
    return "refused" if verdict.blame == "client" else "failed"
