"""The JSON Schemas of keys and accounts, with descriptions and examples."""

from __future__ import annotations

from typing import Final

from gateway.admin.api.parameters import KEY_ID_PATTERN, LIMIT_PATTERN, NAME_PATTERN
from gateway.admin.api.schema_parts import (
    COUNT,
    EXAMPLE_ID,
    MAYBE_MOMENT,
    MAYBE_NAME,
    MOMENT,
    NAME,
    RATE,
    TEXT,
    TEXTS,
    answered,
    list_of,
    taken,
)
from gateway.domain import key_format, patterns
from gateway.domain.limits import KINDS, PERIODS_US

_LIST_OF_SCOPES: Final = {
    "type": "array",
    "items": {"type": "string", "pattern": f"^{patterns.SCOPE}$"},
    "maxItems": 256,
    "examples": [["connectors:read"]],
}
_PERMISSIONS: Final = {
    "type": "object",
    "description": "Service area to actions, at most 256 actions in total.",
    "propertyNames": {"pattern": NAME_PATTERN},
    "additionalProperties": {"type": "array", "items": NAME, "maxItems": 256},
    "maxProperties": 256,
    "examples": [{"ticketing": ["read", "write"]}],
}
_RANGES: Final = {
    "type": "array",
    "description": "Addresses and CIDR ranges from which the key may be used; empty: any address.",
    "items": {"type": "string", "maxLength": 64},
    "maxItems": 256,
    "examples": [["192.0.2.0/24", "2001:db8::/32"]],
}
_OWN_LIMITS: Final = {
    "type": "object",
    "description": "Limit overrides by limit name; they replace the plan's and the route's values.",
    "propertyNames": {"pattern": LIMIT_PATTERN},
    "additionalProperties": RATE,
    "maxProperties": 256,
    "examples": [{"plan": "1000/minute,burst=2000"}],
}
_KEY_NAME: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 100,
    "description": "A label: printable, on one line.",
    "examples": ["Billing service"],
}
_EXPIRES: Final = {
    "type": ["string", "null"],
    "minLength": 1,
    "description": "A date, an RFC 3339 time, or a duration from now; null: never.",
    "examples": ["90d", "2099-12-31", "2099-12-31T12:00:00Z"],
}
_PLAN: Final = {
    **MAYBE_NAME,
    "description": "A plan of the policies; null: the account's plan.",
    "examples": ["pro"],
}
_KEY: Final = {
    "id": {"type": "string", "pattern": KEY_ID_PATTERN, "examples": [EXAMPLE_ID]},
    "name": _KEY_NAME,
    "account": {**NAME, "description": "By default an account of its own, named like its id."},
    "plan": _PLAN,
    "environment": {**TEXT, "examples": ["production"]},
    "status": {
        "enum": ["valid", "suspended", "revoked", "expired"],
        "description": "expired: valid until `expires`, which is past.",
    },
    "created": MOMENT,
    "expires": MAYBE_MOMENT,
    "last_used": {**MAYBE_MOMENT, "description": "null: never; up to a minute behind."},
    "scopes": _LIST_OF_SCOPES,
    "permissions": _PERMISSIONS,
    "ip_ranges": _RANGES,
    "lineage": {
        **TEXT,
        "description": "The id of the first key in its chain of rotations; they share counters.",
    },
    "successor": {
        "type": ["string", "null"],
        "description": "The id of the key that replaces it after a rotation.",
    },
    "limits": _OWN_LIMITS,
}
_SECRET: Final = {
    **TEXT,
    "description": "The whole key. It is shown only once.",
}
_CHANGEABLE: Final = {
    "name": _KEY_NAME,
    "plan": _PLAN,
    "account": NAME,
    "scopes": _LIST_OF_SCOPES,
    "permissions": _PERMISSIONS,
    "ip_ranges": _RANGES,
    "expires": _EXPIRES,
    "limits": _OWN_LIMITS,
}
_NEW_KEY_EXAMPLE: Final = {
    "name": "Billing service",
    "plan": "pro",
    "account": "acme",
    "scopes": ["connectors:read"],
    "permissions": {"ticketing": ["read"]},
    "ip_ranges": ["192.0.2.0/24"],
    "expires": "90d",
}
_LIMIT: Final = {
    "name": {**TEXT, "examples": ["plan"]},
    "route": {
        "type": ["string", "null"],
        "description": "The first route that has the limit; null: it is the plan's limit.",
    },
    "kind": {"enum": list(dict.fromkeys(rules.written or kind for kind, rules in KINDS.items()))},
    "of": {
        "enum": ["requests", "messages", "connections"],
        "description": "What it counts: another than requests only on routes to MCP servers.",
    },
    "limit": {"type": "integer", "minimum": 1, "examples": [600]},
    "burst": {"type": ["integer", "null"], "examples": [1000]},
    "window_seconds": {
        "type": ["integer", "null"],
        "minimum": 1,
        "description": "null for a concurrency limit.",
        "examples": [60],
    },
    "period": {
        "enum": [*PERIODS_US, None],
        "description": "The calendar period of a quota; else null.",
    },
    "time_zone": {
        "type": ["string", "null"],
        "description": "Of a quota's period; else null.",
    },
    "per": {"enum": ["key", "account"]},
    "mode": {
        "enum": ["enforce", "shadow"],
        "description": "shadow: it counts but never refuses.",
    },
    "routes": {**TEXTS, "description": "All routes that have the limit."},
}
_STANDING: Final = {
    "remaining": {**COUNT, "examples": [594]},
    "reset_after": {
        **COUNT,
        "description": "Seconds until all of the limit is available again, rounded up.",
        "examples": [6],
    },
}
_MAYBE_STANDING: Final = {
    name: {**schema, "type": ["integer", "null"]} for name, schema in _STANDING.items()
}
KEY_SCHEMAS: Final = {
    "Key": answered(_KEY),
    "MadeKey": answered({**_KEY, "key": _SECRET}),
    "RotatedKey": answered(
        {
            **_KEY,
            "key": _SECRET,
            "replaces": {**TEXT, "examples": [EXAMPLE_ID]},
            "old_expires": {**MOMENT, "description": "When the old key expires."},
        }
    ),
    "NewKey": taken(
        {
            **_CHANGEABLE,
            "account": {**MAYBE_NAME, "description": "null: an account of its own."},
            "environment": {
                "type": ["string", "null"],
                "pattern": f"^{key_format.ENVIRONMENT}$",
                "description": "The environment of the key; null: the policies' environment.",
            },
        },
        "name",
        examples=[_NEW_KEY_EXAMPLE],
    ),
    "KeyChange": taken(
        _CHANGEABLE, examples=[{"ip_ranges": ["192.0.2.7"]}, {"plan": "free", "expires": None}]
    ),
    "Rotation": taken(
        {
            "overlap": {
                "type": "string",
                "pattern": "^[0-9]{1,6}(?:ms|s|m|h|d)$",
                "default": "24h",
                "description": "How long the old key stays valid; 0s: it expires immediately.",
            }
        },
        examples=[{"overlap": "24h"}],
    ),
    "KeyList": list_of("Key"),
    "Limit": answered({**_LIMIT, **_STANDING}),
    "LimitList": list_of("Limit"),
    "AccountLimit": answered({**_LIMIT, **_MAYBE_STANDING}),
    "AccountLimitList": list_of("AccountLimit"),
}

# -- accounts --------------------------------------------------------------------------------------
_ACCOUNT: Final = {
    "plan": {**MAYBE_NAME, "description": "Used by keys that have no plan of their own."},
    "services": {
        "type": "array",
        "description": "The enabled service areas.",
        "items": NAME,
        "maxItems": 256,
    },
    "limits": _OWN_LIMITS,
    "billing_day": {
        "type": "integer",
        "minimum": 1,
        "maximum": 31,
        "description": "The day of the month on which quotas with `from: account` begin again; "
        "the last day of months that do not have it. Default: 1.",
    },
}
ACCOUNT_SCHEMAS: Final = {
    "Account": answered(
        {
            "name": NAME,
            "status": {
                "enum": ["valid", "suspended"],
                "description": "suspended: all of its keys are refused.",
            },
            **_ACCOUNT,
            "implicit": {
                "type": "boolean",
                "description": "true: it has no record; it is only named by its keys.",
            },
            "keys": {
                "type": ["integer", "null"],
                "minimum": 0,
                "description": "How many of its keys are not revoked; null: not counted.",
            },
        }
    ),
    "AccountChange": taken(_ACCOUNT, examples=[{"plan": "pro", "services": ["ticketing"]}]),
    "AccountList": list_of("Account"),
}
