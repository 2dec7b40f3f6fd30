"""An exchange that is traced. Without traces there is none, so that they cost nothing."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from gateway.domain.upstreams import Server
from gateway.http1.phases import Steps
from gateway.http1.trace_context import trace_id_in
from gateway.proxy.exchange import Exchange
from gateway.proxy.tracing import Trace, Tracer


class TracedExchange(Exchange):
    """Continues the client's trace, and records the request when it has ended.

    trace:  None: it is not sampled
    server: that it was sent to last; None: to none
    """

    __slots__ = ("_lines", "_tracer", "server", "trace")

    trace: Trace | None

    def __init__(self, *arguments: Any) -> None:
        """arguments: those of an `Exchange`"""
        Exchange.__init__(self, *arguments)
        tracer = self.context.tracer
        assert tracer is not None
        #: The one that it began with: a reload may end traces.
        self._tracer: Tracer = tracer
        self.server: Server | None = None
        self.trace, self._lines = tracer.begin(self.fields.trace)

    @property
    def trace_id(self) -> bytes:
        """Of the client's trace, or of the one that begins here, sampled or not."""
        return trace_id_in(self._lines)

    def build_head(self, server: Server) -> bytes:
        """The head for one of the upstream's servers, with the trace."""
        self.server = server
        return b"%b%b\r\n" % (super().build_head(server)[:-2], self._lines)

    def abandon(self, reason: str) -> None:
        """End without an answer, and record it."""
        if self.is_over:
            return
        super().abandon(reason)
        if self.trace is not None:
            self._tracer.ended(self, self, self.trace, reason, perf_counter())

    def _end(self, steps: Steps, now: float) -> None:
        if self.trace is not None:
            self._tracer.ended(self, self, self.trace, None, now)
        Exchange._end(self, steps, now)  # less than by super(), for each request
