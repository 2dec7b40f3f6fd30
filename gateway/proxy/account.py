"""Accounts for every exchange: only here, metrics, usage and the access log are written.

Each line of the access log is one request of the usage: same key, route and decision, except that
an answer with a status of 500 or above counts as failed in the usage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.domain.identity import Identity
from gateway.domain.limits import Check, Decision
from gateway.domain.usage import NONE_S, answered_outcome, outcome_of
from gateway.errors import COST_EXCEEDS_LIMIT, RATE_LIMITED
from gateway.observe.access import AccessLog
from gateway.observe.limit_warnings import LimitWarnings
from gateway.observe.metrics import COMPARISONS, Metrics, Outcome
from gateway.observe.usage_table import Entry, UsageTable, decision_of
from gateway.proxy.request import Request

#: nginx's status for "client closed request".
CLIENT_GONE = 499


class Accounting:
    """Counts and logs decisions and outcomes."""

    def __init__(
        self,
        metrics: Metrics,
        access: AccessLog | None,
        clock_us: Callable[[], int],
        usage: UsageTable,
        warned: LimitWarnings,
    ) -> None:
        self.metrics = metrics
        self.access = access
        self.usage = usage
        self.warned = warned
        self._clock_us = clock_us

    def decided(
        self, check: Check, plan: str, decision: Decision, identity: Identity | None
    ) -> None:
        """Count what each limit decided, and warn. A check at cost 0 is not to come here."""
        if check.costs is not None and not all(check.costs):
            check, decision = _counted(check, decision)
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
                # Above 80 %, as in envoyproxy/ratelimit.
                elif standing.remaining * 5 < limit.amount:
                    outcome = "near"
                    if warned.near.get(name, 0) <= now_us:
                        warned.note(80, name, limit, standing, decision, plan, identity)
                else:
                    outcome = "admitted"
                count(limit.name, plan, outcome)
            refusing >>= 1

    def compared(self, check: Check, candidates: Sequence[int], decision: Decision) -> None:
        """Count which of a limit and its candidate would admit the request; not in an outage.

        candidates: as in `Grant`. A check at cost 0 is not to come here.
        """
        if decision.local:
            return
        for index in candidates:
            refusing = decision.refusing >> (index - 1) & 3
            # If another limit refused it, neither of the two has counted it.
            if refusing or decision.allowed:
                self.metrics.compared(check.limits[index - 1].name, COMPARISONS[refusing])

    def ended(
        self,
        request: Request,
        reason: str | None,
        now: float,
    ) -> None:
        """Account for a request. reason: why it was abandoned; None: it was not."""
        duration_s = now - request.started
        refusal, status = request.refusal, request.status
        if reason is None and refusal is not None:
            reason = refusal.reason
            self.metrics.refused(reason)
        matched, grant, sent_to = request.route, request.grant, request.sent_to
        route = matched.name
        if refusal is None and grant is not None and status:
            tally = grant.tally
            if tally is None or tally.table is not self.usage.open:
                tally = grant.tally = self.usage.tally(*_key_and_plan(request), route)
            latency_s = duration_s
            if matched.mcp is not None and request.method == "GET":
                # A stream for messages of an MCP server is open as long as its client wants.
                latency_s = NONE_S
            tally.ended.append((status, latency_s, request.bytes_in, request.bytes_out))
        else:
            self._not_admitted(request, route, reason)
        self.metrics.inflight -= 1
        if matched.canary is not None and request.upstream_from:
            self.metrics.canary_ended(route, request.upstream_for(), status)
        self.metrics.ended(
            route,
            request.method,
            status or CLIENT_GONE,
            request.source,
            duration_s,
            None if sent_to is None else sent_to.name,
            request.upstream_s,
        )
        if self.access is not None:
            duration_us = int(duration_s * 1e6)
            # The arrival, not the end: a replay decides at this time.
            came_us = self._clock_us() - duration_us
            self.access.write(request, status or CLIENT_GONE, came_us, duration_us, reason)

    def called(self, request: Request, reason: str | None, tool: str) -> None:
        """Account for a call of a tool, beside the request that it is in. reason: as in `ended`"""
        refusal, status = request.refusal, request.status
        if refusal is None and status:
            outcome = answered_outcome(status)
        else:
            why = reason if refusal is None or reason is not None else refusal.reason
            outcome = outcome_of(decision_of(refusal), _detail(request, why))
        self.usage.called(request.route.name, tool, outcome)

    def _not_admitted(self, request: Request, route: str, reason: str | None) -> None:
        refusal, identity = request.refusal, request.identity
        detail = _detail(request, reason)
        if identity is None:
            entry: Entry = "", "", route, refusal, detail
        else:
            record = identity.record
            entry = record.id, record.plan, route, refusal, detail
        try:
            self.usage.open.counts[entry] += 1
        except KeyError:
            self.usage.begin(entry)


def _counted(check: Check, decision: Decision) -> tuple[Check, Decision]:
    """The limits that count something of a request, and what they decided."""
    assert check.costs is not None
    at = [index for index, cost in enumerate(check.costs) if cost]
    refusing = sum((decision.refusing >> index & 1) << place for place, index in enumerate(at))
    return (
        Check(
            tuple(check.limits[index] for index in at),
            tuple(check.counters[index] for index in at),
            check.cost,
        ),
        replace(
            decision,
            standings=tuple(decision.standings[index] for index in at),
            refusing=refusing,
        ),
    )


def _detail(request: Request, reason: str | None) -> str | None:
    """What an outcome says beside the decision: the limit that refused the request; or why."""
    refusal = request.refusal
    is_limited = refusal is RATE_LIMITED or refusal is COST_EXCEEDS_LIMIT
    return _limit(request) if is_limited else reason


def _limit(request: Request) -> str | None:
    """The name of the governing limit; None: there was no decision."""
    check, decision = request.check, request.decision
    return None if check is None or decision is None else check.limits[decision.governing].name


def _key_and_plan(request: Request) -> tuple[str, str]:
    """The id and plan of the key; "": it is unknown."""
    identity = request.identity
    return ("", "") if identity is None else (identity.record.id, identity.record.plan)
