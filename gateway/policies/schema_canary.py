"""The JSON Schema of a route's canary."""

from __future__ import annotations

from gateway.domain import patterns
from gateway.policies import fields
from gateway.policies.canary import VALUE
from gateway.policies.schema_parts import Schema, object_of, text


def canary() -> Schema:
    """A share, a header, or both."""
    schema = object_of(
        {
            "upstream": text(
                patterns.NAME, "The upstream that these requests go to.", example="beta"
            ),
            "share": text(
                fields.PERCENT, "The share of clients whose requests go there.", example="5%"
            ),
            "by": text(
                patterns.PER,
                "What a client is, key, account, ip or header:NAME; it always gets the same side.",
                default="key",
                example="ip",
            ),
            "header": text(
                patterns.HEADER_NAME,
                "Requests with this header go there, whatever the share.",
                example="X-Canary",
            ),
            "value": text(VALUE, "The header's value; without it, any.", example="always"),
        },
        "Some requests go to another upstream.",
        required=["upstream"],
    )
    return {
        **schema,
        "anyOf": [{"required": ["share"]}, {"required": ["header"]}],
        "dependencies": {"by": ["share"], "value": ["header"]},
    }
