"""The JSON Schema of a route's `mcp`, and of `mcp_sessions`."""

from __future__ import annotations

from gateway.domain import patterns
from gateway.domain.limits import MAX_AMOUNT
from gateway.domain.mcp.settings import OTHERS, Mcp
from gateway.policies import fields, mcp
from gateway.policies.schema_limits import burst, rate
from gateway.policies.schema_parts import Schema, choice, duration, integer, object_of, size, text


def mcp_of_a_route() -> Schema:
    """The section of a route."""
    default = Mcp()
    rules = object_of(
        {
            "permission": text(
                fields.PERMISSION, "The permission that a key needs.", example="scm:read"
            ),
            "cost": integer(
                "How many units a call counts; default: the route's cost.", MAX_AMOUNT, example=5
            ),
            "rate": rate("A limit on calls of this tool, named ROUTE/TOOL."),
            "burst": burst(),
        },
    )
    allowed = {"enum": ["allow", "deny"]}
    return object_of(
        {
            "max_body": size(
                f"The largest message, up to {mcp.MOST_BODY_BYTES // 1024**2}MiB. Messages are "
                "read whole, in three steps, in each of which a worker does nothing else for up to "
                "10 ms a MiB.",
                default.body_bytes,
                "4MiB",
            ),
            "limited_calls": {
                "enum": ["429", 429, "result"],
                "description": "How a call that a limit refuses is answered: status 429 with an "
                "error of JSON-RPC; or status 200 with a result that says that the call failed, "
                "for clients that lose their connection at a 429.",
                "default": default.limited_calls,
            },
            "keepalive": duration(
                "How long an event stream is silent before a comment is sent in it.",
                default.keepalive_s,
                "30s",
            ),
            "list": choice(
                ["filtered", "as-is"],
                "Whether answers to tools/list have only the tools that the key may call.",
                "filtered",
            ),
            "tools": {
                "type": "object",
                "description": "Rules by the name of the tool; * are all others.",
                "propertyNames": {"pattern": rf"^(?:\*|{patterns.TOOL})$"},
                "maxProperties": mcp.MOST_TOOLS,
                "properties": {
                    OTHERS: {
                        "anyOf": [allowed, _without_rate(rules)],
                        "description": "All tools without an entry of their own.",
                        "default": "allow",
                        "examples": ["deny"],
                    }
                },
                "additionalProperties": {
                    "anyOf": [allowed, rules],
                    "description": "allow, deny, or the tool's rules.",
                    "examples": [{"permission": "scm:read", "cost": 5, "rate": "30/minute"}],
                },
                "examples": [
                    {
                        "search_code": {"permission": "scm:read", "cost": 5, "rate": "30/minute"},
                        "delete_ticket": "deny",
                        OTHERS: "allow",
                    }
                ],
            },
        },
        "The route is in front of an MCP server: messages are read, sessions are sealed, and "
        "limits can count messages and connections.",
    )


def mcp_sessions() -> Schema:
    """The setting at the top level."""
    return object_of(
        {
            "secrets": {
                "type": "string",
                "description": "A file with one or two secrets, each on a line of its own with at "
                f"least {mcp.LEAST_SECRET} characters. The first seals session ids, and both are "
                "accepted. All gateways need the same file.",
                "examples": ["mcp-secrets.txt"],
            }
        },
        "The secrets that seal the session ids of MCP servers. Without them each gateway makes "
        "one when it starts, and sessions end with it.",
        required=["secrets"],
    )


def _without_rate(rules: Schema) -> Schema:
    properties = {key: rules["properties"][key] for key in ("permission", "cost")}
    return {**rules, "properties": properties}
