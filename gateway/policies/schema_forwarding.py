"""The JSON Schema of a route's `timeouts`, `retries` and `body`."""

from __future__ import annotations

from gateway.domain.forwarding import CAUSES, Retries
from gateway.policies import fields
from gateway.policies.forwarding import MOST_RETRIES
from gateway.policies.schema_parts import Schema, duration, integer, list_of, object_of, size, text


def forwarding() -> Schema:
    """The entries of a route."""
    default = Retries(1)
    statuses = [int(cause) for cause in CAUSES if cause.isdigit()]
    causes = list_of(
        {"enum": [*CAUSES, *statuses]},
        "The failures after which a request is sent again: reset (closed without an answer), "
        "timeout (no answer in time), or the status of the answer.",
        example=["reset", "timeout", 503],
    )
    count = integer("The most times that a request is sent again.", MOST_RETRIES, example=2)
    budget = text(
        fields.PERCENT,
        "The most retries, as a share of the route's requests. Ten more are possible at any time.",
        default=f"{default.budget:.0%}",
        example="10%",
    )
    return {
        "timeouts": object_of(
            {
                "total": duration(
                    "From the request's head to the end of its answer; not for WebSockets.",
                    example="20s",
                ),
                "response": duration(
                    "Overrides the upstream's response and timeouts.response.", example="5s"
                ),
            },
            "Deadlines of the route's requests.",
        ),
        "retries": {
            "description": "How often a request is sent again if an attempt failed: GET, HEAD and "
            "OPTIONS without a body, to another healthy server if there is one.",
            "examples": [2, {"count": 2, "causes": ["reset", 503]}],
            "anyOf": [
                count,
                object_of(
                    {
                        "count": count,
                        "causes": {**causes, "default": list(default.causes), "minItems": 1},
                        "budget": budget,
                    },
                    required=["count"],
                ),
            ],
        },
        "body": size("Overrides bounds.body: the largest body of a request.", None, "1MiB"),
    }
