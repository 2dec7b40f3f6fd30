"""The parts of the API's JSON Schemas.

Schemas of requests are closed: an unknown field is a fault. Answers may get more fields in a later
version; clients should ignore unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.admin.api.parameters import HASH_PATTERN, NAME_PATTERN

EXAMPLE_ID: Final = "7h3k9m2p4q6r"
MOMENT: Final = {"type": "string", "format": "date-time", "examples": ["2026-12-31T00:00:00Z"]}
MAYBE_MOMENT: Final = {**MOMENT, "type": ["string", "null"]}
NAME: Final = {"type": "string", "pattern": NAME_PATTERN}
MAYBE_NAME: Final = {**NAME, "type": ["string", "null"]}
COUNT: Final = {"type": "integer", "minimum": 0}
RATE: Final = {
    "type": "string",
    "pattern": "^[0-9]{1,10}(?:/(?:second|minute|hour|day|week|month)(?:,burst=[0-9]{1,10})?)?$",
    "description": "A rate, a quota, or a number of concurrent requests.",
    "examples": ["300/minute,burst=500", "10000/month", "20"],
}
OUTCOMES: Final = {
    "type": "object",
    "description": "Requests by outcome: admitted, limited:LIMIT, refused:REASON, failed:REASON.",
    "additionalProperties": COUNT,
    "examples": [{"admitted": 120, "limited:search": 7, "refused:ip_not_allowed": 1}],
}
POLICY_HASH: Final = {
    "type": "string",
    "pattern": HASH_PATTERN,
    "examples": ["0123456789abcdef"],
}
TEXT: Final = {"type": "string"}
MAYBE_TEXT: Final = {"type": ["string", "null"]}
TEXTS: Final = {"type": "array", "items": TEXT}
#: What a list shows of a key, as `manage.accounts.key_words` returns it.
LISTED_KEY: Final = {
    "id": {**TEXT, "examples": [EXAMPLE_ID]},
    "name": {
        **MAYBE_TEXT,
        "description": "null, as account and plan, if the key no longer exists; "
        "'(unreadable)' if its record cannot be read.",
    },
    "account": MAYBE_TEXT,
    "plan": {**MAYBE_TEXT, "description": "Its own plan or its account's; null: none."},
}


def answered(
    properties: Mapping[str, Any], maybe: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """The schema of an answer with all these properties. maybe: optional ones"""
    return {
        "type": "object",
        "properties": {**properties, **(maybe or {})},
        "required": list(properties),
        **more,
    }


def taken(properties: Mapping[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    """The schema of a request, which may have no other properties."""
    needed = {"required": list(required)} if required else {}
    return {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
        **needed,
        **more,
    }


def list_of(name: str) -> dict[str, Any]:
    """The schema of a page of items. name: the schema of an item"""
    return answered(
        {
            "items": {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}},
            "next": {
                "type": ["string", "integer", "null"],
                "description": "The parameter for the next page; null: there is none.",
            },
        }
    )
