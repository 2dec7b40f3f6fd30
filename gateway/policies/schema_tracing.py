"""The JSON Schema of `tracing`."""

from __future__ import annotations

from gateway.domain.tracing import Tracing
from gateway.policies import fields
from gateway.policies.schema_parts import Schema, flag, object_of, text


def tracing() -> Schema:
    """The setting at the top level."""
    default = Tracing()
    return object_of(
        {
            "sample": text(
                fields.PERCENT,
                "The share of the requests without a valid traceparent that is sampled. Those with "
                "one are sampled if it says so.",
                default=f"{default.sample:.0%}",
                example="10%",
            ),
            "identity": flag("Spans have the key's id, its account and its plan.", False),
        },
        "Export spans of requests to the OpenTelemetry collector of OTEL_EXPORTER_OTLP_ENDPOINT. "
        "Without it, traceparent and tracestate are forwarded as they were sent.",
    )
