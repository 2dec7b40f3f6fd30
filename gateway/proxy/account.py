"""The end of every exchange: metrics, usage and the access log are written here and nowhere else.

Each line of the access log is one request of the usage figures: same key, route and decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.domain.limits import Check, Decision
from gateway.domain.ports import Identity
from gateway.errors import RATE_LIMITED, Refusal
from gateway.observe.access import AccessLog
from gateway.observe.metrics import Metrics, Outcome
from gateway.observe.usage import Entry, UsageTable, decision_of
from gateway.observe.warned import Warned

if TYPE_CHECKING:
    from gateway.proxy.exchange import Exchange

#: nginx's code for "the client went away before it was answered".
CLIENT_GONE = 499


class Accounting:
    """Writes down what was decided and what came of it."""

    def __init__(
        self,
        metrics: Metrics,
        access: AccessLog | None,
        clock_us: Callable[[], int],
        usage: UsageTable,
        warned: Warned,
    ) -> None:
        self.metrics = metrics
        self.access = access
        self.usage = usage
        self.warned = warned
        self._clock_us = clock_us

    def decided(
        self, check: Check, plan: str, decision: Decision, identity: Identity | None
    ) -> None:
        """Count what each limit said, and warn. Asking at cost 0 is not a decision."""
        if not check.cost:
            return
        count, warned, now_us = self.metrics.decided, self.warned, decision.now_us
        refusing = decision.refusing
        outcome: Outcome
        for name, limit, standing in zip(
            check.counters, check.limits, decision.standings, strict=True
        ):
            if refusing & 1:
                count(limit.name, plan, "shadow" if limit.shadow else "limited")
                if warned.reached.get(name, 0) <= now_us:
                    warned.note(100, name, limit, standing, decision, plan, identity)
            elif decision.allowed:
                if decision.local:
                    outcome = "local"
                # Past 80 %, as operators of envoyproxy/ratelimit know it.
                elif standing.remaining * 5 < limit.amount:
                    outcome = "near"
                    if warned.near.get(name, 0) <= now_us:
                        warned.note(80, name, limit, standing, decision, plan, identity)
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
        route = exchange.route.name
        grant = exchange.grant
        if verdict is None and grant is not None and exchange.status:
            tally = grant.tally
            if tally is not None and tally.table is self.usage.open:
                tally.requests += 1
            else:
                grant.tally = self.usage.tally(*_asker(exchange), route)
        else:
            self._not_admitted(exchange, route, verdict, reason)
        self.metrics.inflight -= 1
        self.metrics.ended(
            route,
            exchange.method,
            status,
            exchange.source,
            duration_s,
            exchange.upstream_name,
            exchange.upstream_s,
        )
        if self.access is not None:
            self._log(self.access, exchange, status, duration_s, reason)

    def _not_admitted(
        self, exchange: Exchange, route: str, verdict: Refusal | None, reason: str | None
    ) -> None:
        detail = _limit(exchange) if verdict is RATE_LIMITED else reason
        identity = exchange.identity
        if identity is None:
            entry: Entry = "", "", route, verdict, detail
        else:
            record = identity.record
            entry = record.id, record.plan, route, verdict, detail
        try:
            self.usage.open.counts[entry] += 1
        except KeyError:
            self.usage.begin(entry)

    def _log(
        self,
        access: AccessLog,
        exchange: Exchange,
        status: int,
        duration_s: float,
        reason: str | None,
    ) -> None:
        check, identity, verdict = exchange.check, exchange.identity, exchange.verdict
        is_admitted = verdict is None and exchange.status
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
            "admitted" if is_admitted else decision_of(verdict),
            _limit(exchange),
            0 if check is None else check.cost,
            exchange.bytes_in,
            exchange.bytes_out,
            duration_us,
            None if exchange.upstream_s is None else int(exchange.upstream_s * 1e6),
            exchange.upstream_name,
            reason,
        )


def _limit(exchange: Exchange) -> str | None:
    """The name of the governing limit; None where none was asked."""
    check, decision = exchange.check, exchange.decision
    return None if check is None or decision is None else check.limits[decision.governing].name


def _asker(exchange: Exchange) -> tuple[str, str]:
    """Id and plan of the key; "" where it is not known."""
    identity = exchange.identity
    return ("", "") if identity is None else (identity.record.id, identity.record.plan)
