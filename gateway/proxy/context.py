"""What all connections of a worker share. `app` makes one and hands it to the listener."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate

from gateway.observe.log_throttle import LogThrottle
from gateway.observe.metrics import Metrics
from gateway.proxy.account import Accounting
from gateway.proxy.backlog import Backlog
from gateway.proxy.connections import Connections
from gateway.proxy.gate import Gate
from gateway.proxy.upstream_pool import UpstreamPools
from gateway.proxy.verify import Verified


class DateField:
    """The Date line, made anew once a second.

    RFC 9110, 6.6.1: an origin server with a clock, which the gateway is for its own answers, "MUST
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

    version:     what /v1/health tells
    clock_us:    the host's time of day, Unix microseconds; keys go by the gate's
    next_id:     a fresh request id
    date_field:  the Date line of this second
    throttle:    of lines about answers that are not HTTP: one line a second for each upstream
    connections: every client connection that is open
    backlog:     those with requests that were sent ahead
    draining:    answers close their connection
    verified:    what keys were told of themselves lately
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
    date_field: DateField = field(default_factory=DateField)
    throttle: LogThrottle = field(default_factory=LogThrottle)
    draining: bool = False
    verified: Verified = field(init=False)

    def __post_init__(self) -> None:
        self.verified = Verified(self.gate)
