"""The JSON Schemas of calls of tools and of open connections."""

from __future__ import annotations

from typing import Final

from gateway.admin.api.schema_parts import (
    COUNT,
    LISTED_KEY,
    OUTCOMES,
    TEXT,
    TEXTS,
    answered,
    list_of,
)
from gateway.manage.usage_sums import GROUPS

MCP_SCHEMAS: Final = {
    "ToolCalls": answered(
        {
            "route": {**TEXT, "examples": ["mcp"]},
            "tool": {
                **TEXT,
                "description": "other: tools that the policies do not name.",
                "examples": ["search_code"],
            },
            "calls": {"type": "integer", "minimum": 1, "description": "All calls."},
            "totals": {
                **OUTCOMES,
                "description": "Calls by outcome: admitted, limited:LIMIT, refused:REASON, "
                "failed:REASON.",
            },
            "groups": answered(dict.fromkeys(GROUPS, COUNT), description="Calls by group."),
        }
    ),
    "ToolCallsList": list_of("ToolCalls"),
    "ConnectedKey": answered(
        {
            **LISTED_KEY,
            "reported": {
                **COUNT,
                "description": "Its open connections as workers have reported them, up to some "
                "seconds ago. One that is used at two workers counts twice.",
            },
            "limits": {
                "type": "array",
                "description": "Its limits of connections, as they are now.",
                "items": answered(
                    {
                        "name": {**TEXT, "examples": ["mcp-connections"]},
                        "routes": TEXTS,
                        "per": {"enum": ["key", "account"]},
                        "mode": {"enum": ["enforce", "shadow"]},
                        "open": {**COUNT, "description": "Over all workers and gateways."},
                        "limit": {"type": "integer", "minimum": 1, "examples": [5]},
                    }
                ),
            },
        }
    ),
    "ConnectedKeyList": list_of("ConnectedKey"),
}
