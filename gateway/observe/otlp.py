"""Exports spans by OTLP over HTTP, with OpenTelemetry's SDK: the only module that imports it.

The packages are those of the extra `otel`. The exporter reads the standard OTEL_EXPORTER_OTLP_*
variables by itself, the resource OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from gateway.observe.otlp_session import bounded_session
from gateway.observe.spans import Kind, TracedRequest, spans_of

SERVICE_NAME: Final = "rate-limiting-gateway"
#: The longest part of an exporter's message that is logged.
_MOST_REASON: Final = 300
#: The end of the variables' names that name a session.
_NAMES_A_SESSION: Final = "_CREDENTIAL_PROVIDER"
#: While this thread encodes, the event loop waits for the interpreter's lock for up to this time
#: whenever it wakes up: 0.7 ms in the median, and 5.2 ms with the default of 5 ms.
_SWITCH_S: Final = 0.0005

_KINDS: Final[dict[Kind, SpanKind]] = {
    "server": SpanKind.SERVER,
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSET: Final = Status(StatusCode.UNSET)
_ERROR: Final = Status(StatusCode.ERROR)


class OtlpExporter:
    """A `span_queue.Exporter` to a collector."""

    def __init__(self, version: str) -> None:
        self._messages = _Messages()
        library = logging.getLogger("opentelemetry")
        # It logs each failed export, several times.
        library.handlers = [self._messages]
        library.propagate = False
        self._resource = Resource.create(_resource_attributes(version))
        self._scope = InstrumentationScope(SERVICE_NAME, version)
        # A session that a variable names is left as it is: it knows how to authenticate.
        is_named = any(name.endswith(_NAMES_A_SESSION) for name in os.environ)
        self._exporter = OTLPSpanExporter(session=None if is_named else bounded_session())
        sys.setswitchinterval(_SWITCH_S)

    def export(self, batch: Sequence[TracedRequest]) -> str | None:
        spans = [span for request in batch for span in self._spans(request)]
        self._messages.last = ""
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            return None
        return self._messages.last or "the collector did not accept them"

    def stop(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call, unused-ignore]

    def _spans(self, request: TracedRequest) -> Iterator[ReadableSpan]:
        state = TraceState.from_header([request.state.decode("latin-1")])
        for span in spans_of(request):
            parent = None
            if span.parent_id:
                parent = SpanContext(
                    *(request.trace_id, span.parent_id, span.kind == "server", _SAMPLED, state)
                )
            yield ReadableSpan(
                span.name,
                context=SpanContext(request.trace_id, span.span_id, False, _SAMPLED, state),
                parent=parent,
                resource=self._resource,
                attributes=span.attributes,
                kind=_KINDS[span.kind],
                status=_ERROR if span.is_error else _UNSET,
                start_time=span.start_ns,
                end_time=span.end_ns,
                instrumentation_scope=self._scope,
            )


def _resource_attributes(version: str) -> dict[str, str]:
    """What the variables do not say. Each process is an instance."""
    given = Resource.create().attributes
    name = str(given.get("service.name", ""))
    unnamed = name.startswith("unknown_service")
    return {
        "service.version": str(given.get("service.version", version)),
        "service.instance.id": str(given.get("service.instance.id", uuid4())),
        **({"service.name": SERVICE_NAME} if unnamed else {}),
    }


class _Messages(logging.Handler):
    """Keeps the last message of the exporter, in place of a line of the log for each."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self._log = logging.getLogger(__name__)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("opentelemetry.exporter."):
            # A retry's message has the cause; that of the last attempt may have none.
            if not self.last or record.levelno < logging.ERROR:
                self.last = record.getMessage()[:_MOST_REASON]
        else:
            # About a variable. Without its value: that of headers may have a secret.
            self._log.warning("traces: %s", str(record.msg).replace("%s", "..."))
