"""Chooses which requests are sampled and the ids of their spans; records those that have ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from time import perf_counter
from typing import Final, Protocol

from gateway.domain.route import Route
from gateway.domain.tracing import Tracing, is_sampled, sampled_below
from gateway.domain.upstreams import Server
from gateway.http1.trace_context import TraceParent, trace_lines
from gateway.observe.metrics import Metrics
from gateway.observe.spans import Attributes, TracedRequest, UpstreamPart
from gateway.observe.usage_table import decision_of
from gateway.proxy.request import Request

_LOW_64_BITS: Final = (1 << 64) - 1
#: W3C Trace Context, level 2, 7.1: ids should be random; they need not be secret.
_random: Final = Random()  # noqa: S311


class Trace:
    """The trace of a sampled request. upstream_id: of the span of the request to the upstream"""

    __slots__ = ("parent_id", "state", "trace_id", "upstream_id")

    def __init__(self, trace_id: int, parent_id: int, upstream_id: int, state: bytes) -> None:
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.upstream_id = upstream_id
        self.state = state


class Traced(Protocol):
    """What an exchange has beside the `Request`.

    server: that it was sent to last
    resent: how often it was sent again
    """

    server: Server | None
    resent: int


class Tracer:
    """Traces requests by these settings. record: called with each sampled one that has ended"""

    def __init__(
        self, settings: Tracing, record: Callable[[TracedRequest], None], metrics: Metrics
    ) -> None:
        self._settings = settings
        self._below = sampled_below(settings.sample)
        self._record = record
        self._metrics = metrics
        #: The path patterns of routes, by their names.
        self._patterns: dict[str, str] = {"": ""}

    def begin(self, parent: TraceParent | None) -> tuple[Trace | None, bytes]:
        """The trace of a request, None if it is not sampled; and the fields for the upstream."""
        if parent is None:
            both = _new_id(192)
            trace_id, upstream_id = both >> 64, both & _LOW_64_BITS
            if is_sampled(trace_id, self._below):
                trace = Trace(trace_id, 0, upstream_id, b"")
                return trace, trace_lines(trace_id, upstream_id, True, b"")
            # As `trace_lines`, with one number: most requests come here.
            digits = b"%048x" % both
            return None, b"traceparent: 00-%b-%b-00\r\n" % (digits[:32], digits[32:])
        upstream_id = _new_id(64)
        lines = trace_lines(parent.trace_id, upstream_id, parent.sampled, parent.state)
        if not parent.sampled:
            return None, lines
        return Trace(parent.trace_id, parent.span_id, upstream_id, parent.state), lines

    def ended(
        self, request: Request, traced: Traced, trace: Trace, reason: str | None, now: float
    ) -> None:
        """Record a request. reason: why it was abandoned; now: by `time.perf_counter`"""
        # The clock may have been set since the request came: one reading for all times.
        offset_ns = time.time_ns() - int(perf_counter() * 1e9)
        self._record(self._recorded(request, traced, trace, reason, now, offset_ns))
        upstream_s = request.upstream_s
        self._metrics.exemplify(
            request.route.name,
            now - request.started,
            None if request.sent_to is None else request.sent_to.name,
            upstream_s,
            f"{trace.trace_id:032x}",
            (offset_ns + now * 1e9) / 1e9,
        )

    def _recorded(
        self,
        request: Request,
        traced: Traced,
        trace: Trace,
        reason: str | None,
        now: float,
        offset_ns: int,
    ) -> TracedRequest:
        refusal, fields = request.refusal, request.fields
        to_ns = offset_ns + int(now * 1e9)
        decided = request.upstream_from or now
        host = request.requested.authority[0] if request.requested.authority else fields.host
        return TracedRequest(
            trace_id=trace.trace_id,
            parent_id=trace.parent_id,
            span_id=_new_id(64),
            gate_id=_new_id(64),
            state=trace.state,
            from_ns=offset_ns + int(request.started * 1e9),
            to_ns=to_ns,
            decided_ns=offset_ns + int(decided * 1e9),
            method=request.method,
            path=request.requested.path.partition("?")[0],
            pattern=self._pattern(request.route),
            scheme="https" if request.client.is_secure(fields) else "http",
            host=host.decode("ascii"),
            client=request.client_ip,
            peer=request.client.ip,
            minor=request.minor,
            status=request.status,
            reason=refusal.reason if reason is None and refusal is not None else reason,
            gate=_gate(request),
            more=self._more(request),
            upstream=_upstream(request, traced, trace, offset_ns, to_ns),
        )

    def _pattern(self, route: Route) -> str:
        found = self._patterns.get(route.name)
        if found is None:
            found = self._patterns[route.name] = route.pattern.partition(" ")[2]
        return found

    def _more(self, request: Request) -> Attributes:
        more: Attributes = {"gateway.request_id": request.request_id.decode("ascii")}
        if request.route.name:
            more["gateway.route"] = request.route.name
        if self._settings.identity and request.identity is not None:
            record = request.identity.record
            more["gateway.key_id"] = record.id
            more["gateway.account"] = record.account
            more["gateway.plan"] = record.plan
        return more


def _gate(request: Request) -> Attributes:
    """What was decided, and by which limit."""
    check, decision, refusal = request.check, request.decision, request.refusal
    is_admitted = bool(request.upstream_from) or (refusal is None and bool(request.status))
    gate: Attributes = {
        "gateway.decision": "admitted" if is_admitted else decision_of(refusal),
    }
    if check is not None and decision is not None:
        gate["gateway.limit"] = check.limits[decision.governing].name
        gate["gateway.cost"] = check.cost
        gate["gateway.local"] = decision.local
    return gate


def _upstream(
    request: Request, traced: Traced, trace: Trace, offset_ns: int, to_ns: int
) -> UpstreamPart | None:
    if not request.upstream_from:
        return None
    from_ns, server = offset_ns + int(request.upstream_from * 1e9), traced.server
    sent_to = request.sent_to
    upstream_s = request.upstream_s
    return UpstreamPart(
        trace.upstream_id,
        from_ns,
        to_ns if upstream_s is None else from_ns + int(upstream_s * 1e9),
        request.route.upstream if sent_to is None else sent_to.name,
        None if server is None else (server.scheme, server.host, server.port),
        request.status if request.source == "upstream" else 0,
        traced.resent,
    )


def _new_id(bits: int) -> int:
    """A random id, not 0."""
    while not (found := _random.getrandbits(bits)):
        pass
    return found
