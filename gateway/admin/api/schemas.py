"""The JSON Schemas of the API's requests and answers, with descriptions and examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.admin.api.key_schemas import ACCOUNT_SCHEMAS, KEY_SCHEMAS
from gateway.admin.api.mcp_schemas import MCP_SCHEMAS
from gateway.admin.api.schema_parts import (
    COUNT,
    EXAMPLE_ID,
    LISTED_KEY,
    MAYBE_TEXT,
    MOMENT,
    OUTCOMES,
    POLICY_HASH,
    TEXT,
    TEXTS,
    answered,
    list_of,
    taken,
)
from gateway.admin.api.webhook_schemas import WEBHOOK_SCHEMAS
from gateway.domain.latency import ACCURACY, QUANTILES
from gateway.domain.policy_history import CAUSES
from gateway.domain.usage import STATUS_CLASSES, WINDOWS
from gateway.manage.policy_changes import LABELS
from gateway.manage.usage_sums import (
    GROUPS,
)
from gateway.observe.metrics import COMPARISONS

# -- usage -----------------------------------------------------------------------------------------
_MAYBE_COUNT: Final = {"type": ["integer", "null"], "minimum": 0}
_STATUSES: Final = answered(
    dict.fromkeys(STATUS_CLASSES, COUNT), description="Answered requests by class of the status."
)
_MEASURED: Final = {
    "bytes_in": {**_MAYBE_COUNT, "description": "Of the bodies of answered requests."},
    "bytes_out": {**_MAYBE_COUNT, "description": "Of the bodies of these answers."},
    "latency_ms": answered(
        {name: {"type": ["number", "null"], "minimum": 0} for name in QUANTILES},
        description=f"Quantiles, which differ by up to {ACCURACY:.0%} from the exact ones.",
    ),
}
_SUM: Final = {
    "requests": {**COUNT, "description": "All requests."},
    "totals": OUTCOMES,
    "groups": answered(dict.fromkeys(GROUPS, COUNT), description="Requests by group."),
    "statuses": _STATUSES,
    "measures": answered(_MEASURED, description="null: unknown."),
}
_USAGE: Final = {
    "window": {"enum": [*WINDOWS, None], "description": "null: dates."},
    "from": MOMENT,
    "to": {**MOMENT, "description": "The end, excluded."},
    "step_seconds": {"type": "integer", "minimum": 1, "description": "The span of a point."},
    "requests": {**COUNT, "description": "All requests."},
    "points": {
        "type": "array",
        "description": "Every step of the window, the oldest first, also those without requests.",
        "items": answered({"start": MOMENT, "counts": OUTCOMES}),
    },
    "totals": OUTCOMES,
    "groups": answered(dict.fromkeys(GROUPS, COUNT), description="Requests by group."),
    "statuses": _STATUSES,
    "measures": answered(
        {"from": MOMENT, "to": MOMENT, **_MEASURED},
        description="Of whole days for a key or an account, of whole hours for a plan: perhaps of "
        "more than the window.",
    ),
    "routes": {
        "type": "object",
        "description": "Route to requests by outcome.",
        "additionalProperties": OUTCOMES,
    },
}
_USAGE_SCHEMAS: Final = {
    "Usage": answered(_USAGE),
    "PlanUsage": answered({"plan": MAYBE_TEXT, **_USAGE}),
    "PlanUsageList": list_of("PlanUsage"),
    "AccountUsage": answered(
        {
            "account": TEXT,
            **_USAGE,
            "keys": {
                "type": "array",
                "description": "Its keys with requests, the busiest first.",
                "items": answered({"id": TEXT, "name": TEXT, **_SUM}),
            },
        }
    ),
    "RouteUsage": answered({"route": TEXT, **_SUM}),
    "RouteUsageList": list_of("RouteUsage"),
    "BusyKey": answered(
        {
            **LISTED_KEY,
            "requests": {"type": "integer", "minimum": 1},
        }
    ),
    "BusyKeyList": list_of("BusyKey"),
    "LimitWarning": answered(
        {
            "id": {**TEXT, "examples": ["1800000000000-0"]},
            "time": MOMENT,
            "key_id": {**TEXT, "examples": [EXAMPLE_ID]},
            "plan": TEXT,
            "limit": {**TEXT, "examples": ["search"]},
            "level": {
                "enum": [80, 100],
                "description": "How much of the limit was used, in percent.",
            },
        }
    ),
    "WarningList": list_of("LimitWarning"),
}

# -- policies --------------------------------------------------------------------------------------
_COST: Final = {
    **TEXT,
    "description": "How many units a request counts, in words.",
    "examples": ["5", "1 for each element of ids in the JSON body, at most 100"],
}
_POLICY_SCHEMAS: Final = {
    "Policies": answered(
        {
            "hash": {**TEXT, "description": "Of the content of all files."},
            "loaded": MOMENT,
            "folder": TEXT,
            "files": TEXTS,
            "environment": TEXT,
            "on_store_failure": {"enum": ["local", "open", "closed"]},
            "plans": {
                "type": "array",
                "items": answered(
                    {
                        "name": TEXT,
                        "limit": {**TEXT, "examples": ["60/minute, burst 100, per key"]},
                        "limits": {**TEXTS, "description": "Its further limits."},
                        "routes": {"type": "object", "additionalProperties": TEXT},
                    }
                ),
            },
            "routes": {
                "type": "array",
                "items": answered(
                    {
                        "name": TEXT,
                        "match": {**TEXT, "examples": ["GET /api/search/**"]},
                        "case_sensitive": {"type": "boolean"},
                        "encoded_slash": {"enum": ["refuse", "keep"]},
                        "hosts": {**TEXTS, "description": "That it serves; empty: all."},
                        "where": {**TEXT, "description": "File and line."},
                        "upstream": TEXT,
                        "access": TEXT,
                        "cost": _COST,
                        "plan_limits": {"type": "boolean"},
                        "limits": TEXTS,
                    }
                ),
            },
            "candidates": {
                "type": "array",
                "description": "Limits with a candidate, and how many requests the two decided "
                "alike or differently since this gateway's start.",
                "items": answered(
                    {
                        "limit": TEXT,
                        "of": {
                            "type": "array",
                            "items": answered({"where": TEXT, "enforced": TEXT, "candidate": TEXT}),
                        },
                        **dict.fromkeys(COMPARISONS, COUNT),
                    }
                ),
            },
            "disk": answered(
                {
                    "hash": {
                        "type": ["string", "null"],
                        "description": "Of the files as they are now; null: they have faults.",
                    },
                    "faults": TEXTS,
                }
            ),
        }
    ),
    "PolicyLoad": answered(
        {
            "time": MOMENT,
            "hash": POLICY_HASH,
            "previous": {
                **MAYBE_TEXT,
                "description": "The hash of the policy before it; null: not known.",
            },
            "cause": {"enum": list(CAUSES)},
            "actor": {**MAYBE_TEXT, "description": "Who rolled back; null for other causes."},
            "gateway": {**TEXT, "examples": ["web-1 0.0.0.0:8080"]},
            "summary": {**TEXT, "description": "What has changed, in words."},
        }
    ),
    "PolicyLoadList": list_of("PolicyLoad"),
    "PolicyVersion": answered(
        {
            "hash": POLICY_HASH,
            "texts": {
                "type": "object",
                "description": "File name to text.",
                "additionalProperties": TEXT,
            },
        }
    ),
    "PolicyChanges": answered(
        {
            "old": POLICY_HASH,
            "new": POLICY_HASH,
            "changes": {
                "type": "array",
                "items": answered(
                    {
                        "effect": {"enum": list(LABELS), "description": "What it means."},
                        "subject": {**TEXT, "examples": ["route:search"]},
                        "before": {**MAYBE_TEXT, "description": "In words; null: there was none."},
                        "after": MAYBE_TEXT,
                        "request": {**MAYBE_TEXT, "examples": ["GET /api/search/x"]},
                        "counters": {
                            "enum": ["kept", "new", None],
                            "description": "Of a limit: whether its counters continue.",
                        },
                        "plans": {**TEXTS, "description": "Those whose keys it is about."},
                        "routes": {**TEXTS, "description": "Those that have the limit."},
                    }
                ),
            },
        }
    ),
    "Question": taken(
        {
            "method": {"type": "string", "pattern": "^[!-~]{1,32}$", "description": "A method."},
            "path": {
                "type": "string",
                "pattern": "^[!-~]{1,8192}$",
                "description": "A path as it would be sent, with its query.",
            },
            "key_id": {
                "type": ["string", "null"],
                "pattern": "^[!-~]{1,128}$",
                "description": "The id of the request's key; null: only the rules are shown.",
            },
            "client_ip": {
                "type": ["string", "null"],
                "pattern": "^[0-9A-Fa-f:.]{2,45}$",
                "description": "The client's address; null: 127.0.0.1.",
            },
            "host": {
                "type": ["string", "null"],
                "pattern": "^[!-~]{1,262}$",
                "description": "The request's host; null: one that no route names.",
            },
        },
        "method",
        "path",
        examples=[{"method": "GET", "path": "/v1/connectors", "key_id": None}],
    ),
    "Explanation": {
        "type": "object",
        "description": "What applies to the request, by topic, in words.",
        "required": ["now"],
        "properties": {
            "request": TEXT,
            "allow": {**TEXT, "description": "With 405: the methods that the path has."},
            "host": TEXT,
            "path": {**TEXT, "description": "The path that is matched and forwarded."},
            "forwarded": {**TEXT, "description": "The path that is forwarded, if another."},
            "route": TEXT,
            "hosts": {**TEXT, "description": "That the route serves; where routes name hosts."},
            "maintenance": {**TEXT, "description": "Who is refused for it; only during one."},
            "upstream": TEXT,
            "access": TEXT,
            "cost": _COST,
            "limits": {"type": ["object", "string"], "additionalProperties": TEXT},
            "key": TEXT,
            "remaining": {"type": "object", "additionalProperties": TEXT},
            "now": {**TEXT, "description": "What would happen.", "examples": ["admitted"]},
        },
    },
}

# -- the audit log ---------------------------------------------------------------------------------
_HASH: Final = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_CHANGED: Final = {"type": ["object", "null"], "description": "In the format of the API."}
_AUDIT_SCHEMAS: Final = {
    "AuditEntry": answered(
        {
            "number": {"type": "integer", "minimum": 1, "description": "From 1, without gaps."},
            "time": MOMENT,
            "actor": {**TEXT, "examples": ["anna (console, 127.0.0.1)"]},
            "action": {**TEXT, "examples": ["key.revoke"]},
            "subject": {**TEXT, "examples": [f"key:{EXAMPLE_ID}"]},
            "before": _CHANGED,
            "after": _CHANGED,
            "previous": {**_HASH, "description": "The hash of the previous entry."},
            "hash": _HASH,
        }
    ),
    "AuditList": list_of("AuditEntry"),
    "Verified": answered(
        {
            "count": {**COUNT, "description": "Existing entries."},
            "dropped": {**COUNT, "description": "Entries before them, deleted by age."},
            "head_hash": {**_HASH, "description": "Of the last entry; store it elsewhere."},
            "faults": {**TEXTS, "description": "What is wrong; empty: the log is whole."},
        }
    ),
}

# -- refusals --------------------------------------------------------------------------------------
_ERROR: Final = {
    "error": {**TEXT, "examples": ["not_found"]},
    "message": {**TEXT, "description": "What is wrong, and what to do next."},
    "code": {**TEXT, "examples": ["NOT_FOUND"]},
    "request_id": {
        **TEXT,
        "description": "The same as in X-Request-Id and in the gateway's log.",
        "examples": ["5f1c8a60d3b2479e"],
    },
}
_DOC: Final = {
    "doc": {
        "type": "string",
        "format": "uri",
        "description": "The description of the code, if the policies have `error_docs`.",
        "examples": ["https://docs.example.com/errors#not_found"],
    }
}
_ERROR_SCHEMAS: Final = {
    "Error": answered(_ERROR, maybe=_DOC),
    "InvalidError": answered(
        {
            **_ERROR,
            "faults": {
                "type": "array",
                "description": "All faults.",
                "minItems": 1,
                "items": answered(
                    {
                        "path": {**TEXT, "examples": ["ip_ranges[1]"]},
                        "found": {**TEXT, "examples": ["'10.0.0.0/33'"]},
                        "expected": TEXT,
                    }
                ),
            },
        },
        maybe=_DOC,
    ),
    "Document": {"type": "object", "description": "An OpenAPI 3.1 document: this one."},
}

#: All of them, by name.
SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    **KEY_SCHEMAS,
    **ACCOUNT_SCHEMAS,
    **_USAGE_SCHEMAS,
    **MCP_SCHEMAS,
    **WEBHOOK_SCHEMAS,
    **_POLICY_SCHEMAS,
    **_AUDIT_SCHEMAS,
    **_ERROR_SCHEMAS,
}
