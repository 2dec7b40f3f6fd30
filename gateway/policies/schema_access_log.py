"""The JSON Schema of `access_log`."""

from __future__ import annotations

from gateway.domain.access_log import DEFAULT, FIELDS, REDACTED
from gateway.policies import access_log as read
from gateway.policies.fields import PERCENT
from gateway.policies.schema_parts import Schema, list_of, object_of, text, with_examples


def access_log() -> Schema:
    template = r"[^\x00-\x1f\x7f]*\{[a-z_]+\}[^\x00-\x1f\x7f]*"
    fields = list_of(
        {"enum": [DEFAULT, *FIELDS]},
        "The fields of each JSON line, in this order. `default` is all that a line has otherwise.",
        example=[DEFAULT, "user_agent", "trace_id"],
    )
    redact = list_of(
        text(read.PARAMETER, "The name of a parameter, in any letter case."),
        "Parameters of a query whose values are not logged. Replaces the default list.",
    )
    return object_of(
        {
            "format": text(
                f"json|combined|{template}",
                "json; combined, as of Apache and nginx; or a template with fields in braces.",
                default="json",
                example="{time} {client_ip} {method} {path} {status} {duration_ms}",
            ),
            "fields": {**fields, "minItems": 1},
            "query": {
                "enum": [*read.QUERY, False],
                "default": "off",
                "description": "Of the query: all of it (keep), the names of its parameters "
                "(names), or nothing (off). A key in it is never logged.",
            },
            "redact": with_examples(redact, list(REDACTED), ["token", "email"]),
            "sample": text(
                PERCENT,
                "The share of admitted requests that are written. Refusals, 5xx and requests that "
                "were cut off are always written.",
                default="100%",
                example="10%",
            ),
        },
        "The lines of the access log; --access-log says where they go.",
    )
