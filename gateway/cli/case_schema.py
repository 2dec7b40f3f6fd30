"""The JSON Schema of a test file, for editors.

`cases` checks what it cannot express: that a route, a limit or a key of these names exists.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.cli import case_fields, cases
from gateway.domain.key_format import ENVIRONMENT
from gateway.domain.patterns import HEADER_NAME, NAME
from gateway.errors import TABLE
from gateway.policies.fields import DURATION

Schema = dict[str, Any]

_NAMED: Final = {"propertyNames": {"pattern": f"^(?:{NAME})$"}}
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_AMOUNT: Final = {"type": "integer", "minimum": 0}
#: The fields of keys and accounts.
_FIELDS: Final[dict[str, Schema]] = {
    "plan": {"type": "string", "description": "A plan of the policies; default: the account's."},
    "account": {"type": "string", "description": "A name under accounts; default: its own."},
    "services": {**_TEXTS, "description": "The services that are enabled for the account."},
    "scopes": {**_TEXTS, "description": "Its scopes."},
    "permissions": {
        "type": "object",
        "additionalProperties": _TEXTS,
        "description": "Its permissions: area -> actions.",
    },
    "ip_ranges": {**_TEXTS, "description": "Where it may be used from; default: anywhere."},
    "environment": {
        "type": "string",
        "pattern": f"^(?:{ENVIRONMENT})$",
        "description": "Default: that of the policies.",
    },
    "status": {"enum": ["valid", "suspended", "revoked"], "default": "valid"},
    "expires": {
        "type": "string",
        "description": "A duration from the test's beginning, or a date or time.",
    },
    "limits": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "Its own limits by name: 300/minute, or 300/minute,burst=500.",
    },
    "billing_day": {
        "type": "integer",
        "minimum": 1,
        "maximum": 31,
        "default": 1,
        "description": "The day of the month on which quotas with `from: account` begin again.",
    },
}


def case_schema() -> Schema:
    """The schema of one test file, draft-07."""
    step = _step()
    test = _object(
        {
            "name": {
                "type": "string",
                "minLength": 1,
                "maxLength": case_fields.MOST_TITLE,
                "description": "What should happen.",
            },
            "at": {
                "type": "string",
                "description": "When the test begins; default: 2027-01-01T00:00:00Z.",
            },
            "steps": {
                "type": "array",
                "items": {**_object(step), "anyOf": _required("send", "wait")},
                "minItems": 1,
                "maxItems": cases.MOST_STEPS,
                "description": "Several requests one after the other.",
            },
            **step,
        },
    )
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Tests of policies of the rate-limiting gateway",
        "description": "gateway test DIR runs the files in DIR/tests.",
        **_object(
            {
                "accounts": {
                    "type": "object",
                    **_NAMED,
                    "additionalProperties": _object(
                        {name: _FIELDS[name] for name in cases.ACCOUNT}
                    ),
                    "description": "Accounts of keys, by name.",
                },
                "keys": {
                    "type": "object",
                    **_NAMED,
                    "additionalProperties": _key(),
                    "description": "API keys, by name. Each test begins with unused ones.",
                },
                "tests": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        **test,
                        "required": ["name"],
                        "anyOf": _required("steps", "send", "wait"),
                    },
                },
            }
        ),
        "required": ["tests"],
    }


def _step() -> dict[str, Schema]:
    return {
        "wait": _duration("Time that passes before the requests."),
        "send": {
            "type": "string",
            "pattern": f"^(?:{case_fields.SEND})$",
            "description": "The method and the path.",
            "examples": ["GET /v1/connectors"],
        },
        "times": {
            "type": "integer",
            "minimum": 1,
            "maximum": case_fields.MOST_TIMES,
            "default": 1,
            "description": "How many such requests.",
        },
        "over": _duration("The requests are evenly spaced over this time; default: all at once."),
        "lasts": _duration("How long each admitted request is in progress."),
        "key": {
            "anyOf": [{"type": "string"}, _key()],
            "default": cases.NONE,
            "description": "A name under keys, or the fields of a key; none: no key is sent.",
        },
        "from": {
            "type": "string",
            "default": str(cases.DEFAULT_ADDRESS),
            "description": "The client's address.",
        },
        "host": {
            "type": "string",
            "default": cases.DEFAULT_HOST,
            "description": "The host that the requests ask for.",
        },
        "headers": {
            "type": "object",
            "propertyNames": {"pattern": f"^(?:{HEADER_NAME})$"},
            "additionalProperties": {"anyOf": [{"type": ["string", "integer"]}, _TEXTS]},
            "description": "Further headers; of a list, each value is a line.",
        },
        "body": {
            "type": ["string", "object", "array"],
            "description": "The body: a text as it is; a mapping or a list is sent as JSON.",
            "examples": [{"ids": [1, 2, 3]}],
        },
        "expect": _expectation(),
    }


def _expectation() -> Schema:
    codes = sorted({refusal.code for refusal in TABLE.values()})
    return {
        **_object(
            {
                "status": {
                    "anyOf": [
                        {"enum": [case_fields.ADMITTED]},
                        {"type": "integer", "minimum": 400, "maximum": 599},
                    ],
                    "description": "admitted, or the status of the refusal.",
                },
                "admitted": {**_AMOUNT, "description": "How many of the requests are admitted."},
                "route": {"type": "string", "description": "A route's name; none: no route."},
                "code": {"enum": codes, "description": "The error's code."},
                "reason": {"enum": sorted(TABLE), "description": "The reason in the access log."},
                "limit": {"type": "string", "description": "The governing limit's name."},
                "remaining": {**_AMOUNT, "description": "X-RateLimit-Remaining."},
                "reset_after": {**_AMOUNT, "description": "X-RateLimit-Reset-After, in seconds."},
                "retry_after": {**_AMOUNT, "description": "Retry-After, in seconds."},
            }
        ),
        "minProperties": 1,
        "description": "About the last of the requests, except for admitted.",
    }


def _key() -> Schema:
    return _object({name: _FIELDS[name] for name in cases.KEY})


def _duration(description: str) -> Schema:
    return {"type": "string", "pattern": f"^(?:{DURATION})$", "description": description}


def _required(*names: str) -> list[Schema]:
    return [{"required": [name]} for name in names]


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}
