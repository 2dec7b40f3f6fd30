"""What all connections of a worker share. `app` creates one for the listener."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from secrets import token_bytes

from gateway.domain.mcp.sessions import Seals
from gateway.observe.log_throttle import LogThrottle
from gateway.observe.metrics import Metrics
from gateway.proxy.account import Accounting
from gateway.proxy.backlog import Backlog
from gateway.proxy.connections import Connections
from gateway.proxy.gate import Gate
from gateway.proxy.retries import RetryBudgets
from gateway.proxy.tracing import Tracer
from gateway.proxy.upstream_pool import UpstreamPools
from gateway.proxy.verify import Verified


class DateField:
    """The Date line, rebuilt once a second.

    RFC 9110, 6.6.1: an origin server with a clock, such as the gateway for its own answers, "MUST
    generate a Date header field" in them.
    """

    __slots__ = ("_line", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._line = b""

    def line(self, now_us: int) -> bytes:
        """The line, CRLF included, at a Unix time in microseconds."""
        second = now_us // 1_000_000
        if second != self._second:
            self._second = second
            self._line = f"Date: {formatdate(second, usegmt=True)}\r\n".encode("ascii")
        return self._line


@dataclass(slots=True, eq=False)
class Context:
    """The shared parts.

    version:     as /v1/health reports it
    clock_us:    the host's clock, Unix microseconds; keys expire by the gate's
    next_id:     returns a new request id
    date_field:  the Date line of this second
    throttle:    of log lines about invalid answers: one a second for each upstream
    connections: all open client connections
    backlog:     those with pipelined requests
    collected:   requests whose whole body has arrived, for the decision
    draining:    answers close their connection
    verified:    cached answers of /v1/auth/verify
    retries:     what is left for retries
    seals:       of the sessions of MCP servers
    tracer:      records spans of requests; None: traces are off
    """

    gate: Gate
    pools: UpstreamPools
    metrics: Metrics
    accounting: Accounting
    version: str
    clock_us: Callable[[], int]
    next_id: Callable[[], bytes]
    connections: Connections
    backlog: Backlog
    collected: Backlog
    date_field: DateField = field(default_factory=DateField)
    throttle: LogThrottle = field(default_factory=LogThrottle)
    draining: bool = False
    seals: Seals = field(default_factory=lambda: Seals((token_bytes(32),)))
    tracer: Tracer | None = None
    verified: Verified = field(init=False)
    retries: RetryBudgets = field(init=False)

    def __post_init__(self) -> None:
        self.verified = Verified(self.gate)
        self.retries = RetryBudgets(self.metrics)
