"""The JSON Schemas of webhooks, with descriptions and examples."""

from __future__ import annotations

from typing import Any, Final

from gateway.admin.api.schema_parts import (
    COUNT,
    MAYBE_MOMENT,
    MAYBE_TEXT,
    MOMENT,
    NAME,
    TEXT,
    answered,
    list_of,
    taken,
)
from gateway.domain.patterns import HEADER_NAME, MOST_TITLE
from gateway.domain.webhooks.destinations import MOST_URL
from gateway.domain.webhooks.event_types import MOST_TYPE
from gateway.domain.webhooks.events import MOST_ID
from gateway.domain.webhooks.id_headers import MOST_NAME
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.domain.webhooks.watches import MOST_PATTERNS
from gateway.manage.deliveries import STATES
from gateway.manage.integration_fields import LEAST_SECRET, MOST_SECRET, MOST_SECRETS

_INTEGRATION_ID: Final = {**TEXT, "examples": ["int_5f1c8a60d3b2479e01c4a7b3"]}
_WATCH_ID: Final = {**TEXT, "examples": ["wat_5f1c8a60d3b2479e01c4a7b3"]}
_KIND: Final = {"enum": sorted(KINDS), "description": "Of its provider."}
_CHANGEABLE: Final[dict[str, Any]] = {
    "name": {"type": "string", "minLength": 1, "maxLength": MOST_TITLE, "examples": ["Our code"]},
    "paused": {"type": "boolean", "description": "It captures nothing."},
    "id_header": {
        "type": ["string", "null"],
        "pattern": f"^{HEADER_NAME}$",
        "maxLength": MOST_NAME,
        "description": "Of the kind generic: the header that has the id of a webhook, so that one "
        "that is sent again is the same event. It is not signed. null: the id is in the body.",
        "examples": ["x-delivery-id"],
    },
}
_INTEGRATION: Final = {
    "id": _INTEGRATION_ID,
    "account": {**TEXT, "examples": ["acme"]},
    # A later version may have more kinds.
    "kind": {**TEXT, "examples": ["github"]},
    "name": TEXT,
    "paused": {"type": "boolean"},
    "created": MOMENT,
    "capture": {
        **MAYBE_TEXT,
        "description": "The path that its provider sends webhooks to; null: it has no provider. "
        "Whoever knows it still needs the secret.",
        "examples": ["/hooks/0123456789abcdef0123456789abcdef"],
    },
    "id_header": {
        **MAYBE_TEXT,
        "description": "The header that has the id of a webhook; null: as its kind says.",
        "examples": ["x-delivery-id"],
    },
}
_SECRETS: Final = {
    "type": "array",
    "description": "Any of them verifies a webhook. They are kept sealed, and never shown. For "
    "azure-devops each is USER:PASSWORD.",
    "items": {
        "type": "string",
        "pattern": f"^[!-~]{{{LEAST_SECRET},{MOST_SECRET}}}$",
        "writeOnly": True,
    },
    "minItems": 1,
    "maxItems": MOST_SECRETS,
}
_WATCH_FIELDS: Final[dict[str, Any]] = {
    "url": {
        "type": "string",
        "maxLength": MOST_URL,
        "description": "https, of a public host.",
        "examples": ["https://hooks.example.com/gateway"],
    },
    "events": {
        "type": "array",
        "description": "Types, or PREFIX.* for all types below it.",
        "items": {"type": "string", "maxLength": MOST_TYPE},
        "minItems": 1,
        "maxItems": MOST_PATTERNS,
        "examples": [["pull_request.*", "ticket.created"]],
    },
    "form": {
        "enum": ["timed", "body-only"],
        "description": "Of x-service-signature: over timestamp and body, or the body alone.",
    },
    "rate": {
        "type": ["string", "null"],
        "pattern": "^[0-9]{1,10}/(?:second|minute|hour)$",
        "description": "The most attempts that begin in any second, minute or hour, spread evenly; "
        "null: it has no rate.",
        "examples": ["10/second"],
    },
}
_WATCH: Final = {
    "id": _WATCH_ID,
    "integration": _INTEGRATION_ID,
    "url": TEXT,
    "events": {"type": "array", "items": TEXT},
    "form": TEXT,
    "rate": {**MAYBE_TEXT, "description": "null: it has none.", "examples": ["10/second"]},
    "secret_version": {"type": "integer", "minimum": 1},
    "created": MOMENT,
    "status": {"enum": ["active", "failing", "disabled", "paused"]},
    "reason": {**MAYBE_TEXT, "description": "Why it is disabled; null: it is not."},
    "disabled_since": {**MAYBE_MOMENT, "description": "null: it is not disabled."},
    "waiting": {**COUNT, "description": "Deliveries that wait."},
    "in_flight": {**COUNT, "description": "Deliveries under way."},
    "failures": {**COUNT, "description": "Failed attempts since the last success."},
    "failing_since": {
        **MAYBE_MOMENT,
        "description": "The first failed attempt since the last success; null: there is none.",
    },
    "last_success": MAYBE_MOMENT,
    "next_attempt": {
        **MAYBE_MOMENT,
        "description": "When the next attempt of what waits is made; null: nothing is to be sent.",
    },
}
_EVENT: Final = {
    "id": TEXT,
    "integration": _INTEGRATION_ID,
    "type": {**TEXT, "examples": ["pull_request.merged"]},
    "accepted": MOMENT,
    "open_deliveries": {**COUNT, "description": "That are not over."},
    "event": {"type": ["object", "null"], "description": "As it is delivered."},
}
_DELIVERY_PLACE: Final = "#/components/schemas/Delivery"
_FROM: Final = "2026-12-31T12:00:00Z"
_TO: Final = "2026-12-31T13:00:00Z"

WEBHOOK_SCHEMAS: Final = {
    "Integration": answered(_INTEGRATION),
    "IntegrationList": list_of("Integration"),
    "NewIntegration": answered(
        {
            **_INTEGRATION,
            "secret": {
                **MAYBE_TEXT,
                "description": "That was made for the provider; null: none was made.",
            },
        }
    ),
    "IntegrationCreate": taken(
        {"kind": _KIND, "account": NAME, **_CHANGEABLE, "secrets": _SECRETS},
        *("kind", "account", "name"),
        examples=[{"kind": "github", "account": "acme", "name": "Our code"}],
    ),
    "IntegrationChange": taken(_CHANGEABLE, examples=[{"name": "Our code"}]),
    "SecretsChange": taken({"secrets": _SECRETS}),
    "EventToPublish": taken(
        {
            "type": {"type": "string", "maxLength": MOST_TYPE, "examples": ["deployment.finished"]},
            "data": {"type": "object", "description": "What the event is about."},
            "id": {
                "type": "string",
                "minLength": 1,
                "maxLength": MOST_ID,
                "description": "That you choose; default: another one for each event.",
            },
        },
        *("type", "data"),
        examples=[{"type": "deployment.finished", "data": {"number": 7}, "id": "deployment-7"}],
    ),
    "Published": answered(
        {
            "event": {**TEXT, "examples": ["evt_0123456789abcdef0123456789abcdef"]},
            "deliveries": {**COUNT, "description": "How many were queued."},
        }
    ),
    "Watch": answered(_WATCH),
    "WatchList": list_of("Watch"),
    "NewWatch": answered({**_WATCH, "secret": {**TEXT, "examples": ["whsec_…"]}}),
    "WatchCreate": taken(
        _WATCH_FIELDS,
        *("url", "events"),
        examples=[{"url": "https://hooks.example.com/", "events": ["pull_request.*"]}],
    ),
    "Event": answered(_EVENT),
    "EventList": list_of("Event"),
    "EventWithDeliveries": answered(
        {**_EVENT, "deliveries": {"type": "array", "items": {"$ref": _DELIVERY_PLACE}}}
    ),
    "Delivery": answered(
        {
            "id": {**TEXT, "description": "EVENT:WATCH:NUMBER."},
            "event": TEXT,
            "watch": TEXT,
            "state": {"enum": list(STATES)},
            "reason": {
                **MAYBE_TEXT,
                "description": "Why it is dead: gone, exhausted or expired; or cancelled: "
                "disabled or removed, as its watch was.",
            },
            "created": MOMENT,
            "ended": MAYBE_MOMENT,
            "attempts": {
                "type": "array",
                "items": answered(
                    {
                        "at": MOMENT,
                        "status": {
                            "type": ["integer", "null"],
                            "description": "null: there was no answer.",
                        },
                        "ms": COUNT,
                        "answer": {
                            **TEXT,
                            "description": "The first characters of it, or why there was none.",
                        },
                    }
                ),
            },
        }
    ),
    "DeliveryList": list_of("Delivery"),
    "Resent": answered({"delivery": {**TEXT, "description": "The id of the new one."}}),
    "Replay": taken(
        {
            "from": {**TEXT, "description": "Accepted from then.", "examples": [_FROM]},
            "to": {**TEXT, "description": "And before then.", "examples": [_TO]},
        },
        *("from", "to"),
        examples=[{"from": _FROM, "to": _TO}],
    ),
    "Replayed": answered(
        {
            "deliveries": {**COUNT, "description": "How many were queued."},
            "waiting": {
                **COUNT,
                "description": "Events left out, as they still wait for the watch.",
            },
            "next": {
                **MAYBE_MOMENT,
                "description": "The `from` for the rest; null: there is none.",
            },
        }
    ),
    "WatchChange": taken(_WATCH_FIELDS, examples=[{"events": ["pull_request.merged"]}]),
}
