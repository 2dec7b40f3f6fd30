"""The JSON Schema of a route."""

from __future__ import annotations

from gateway.domain import patterns
from gateway.policies import fields, hosts, schema_cors, translation
from gateway.policies.schema_access import access
from gateway.policies.schema_canary import canary
from gateway.policies.schema_forwarding import forwarding
from gateway.policies.schema_header_edits import edits_of
from gateway.policies.schema_limits import (
    RATE_FIRST,
    burst,
    cost,
    further_limits,
    rate,
    rate_candidate,
    was,
)
from gateway.policies.schema_mcp import mcp_of_a_route
from gateway.policies.schema_parts import Schema, choice, flag, list_of, object_of, text
from gateway.policies.schema_respond import maintenance_of, respond_with
from gateway.policies.schema_signatures import verify_signature


def route() -> Schema:
    scope = text(patterns.SCOPE, "A scope.")
    route = object_of(
        {
            "match": text(
                fields.MATCH,
                "METHOD /path. GET,POST are two methods; * is any method. In the path, {name} is "
                "one segment, and ** is any number of segments, or none. A final /* is the same "
                "as /**; elsewhere * is one segment.",
                example="GET /api/search/*",
            ),
            "was": was("route", "The limit of its rate continues with the counters of the first."),
            "upstream": text(
                patterns.NAME,
                "The upstream that requests are forwarded to; required without respond.",
                example="api",
            ),
            "auth": choice(["key", "none"], "Whether requests need an API key.", default="key"),
            "scopes": list_of(
                scope,
                "The scopes that a key needs, all of them; without one of them 403.",
                example=["connectors:read"],
            ),
            "permission": text(
                fields.PERMISSION,
                "The permission that a key needs, AREA:ACTION.",
                example="ticketing:write",
            ),
            "service": text(
                patterns.NAME, "The service that the account needs.", example="ticketing"
            ),
            "plan_limits": flag("Whether the plan's limit applies as well.", True),
            "rate": rate("The route's limit, named like the route."),
            "burst": burst(),
            "candidate": rate_candidate(),
            "limits": further_limits("All of a request's limits are decided together."),
            "cost": cost(),
            "json_rpc": {
                "type": "boolean",
                "description": "Send a 429 as a JSON-RPC error. Default: true where the path has "
                "a segment mcp.",
            },
            "case_sensitive": {
                "type": "boolean",
                "description": "Overrides paths.case_sensitive.",
            },
            "encoded_slash": {
                "enum": ["refuse", "keep"],
                "description": "Overrides paths.encoded_slash.",
            },
            **forwarding(),
            "access": access(
                "Which addresses may send requests, in addition to the policy's list."
            ),
            "hosts": {
                **list_of(
                    text(hosts.HOST, "A host name, or *. and one."),
                    "The hosts that it serves, without port; default: all. *.example.com is all "
                    "hosts below example.com. A route of the request's host is preferred.",
                    example=["api.example.com", "*.example.com"],
                ),
                "minItems": 1,
                "maxItems": hosts.MOST_HOSTS,
            },
            "strip_prefix": text(
                fields.PATH,
                "What the path begins with, and the upstream does not get.",
                example="/api",
            ),
            "rewrite": text(
                fields.PATH,
                "The path that the upstream gets, with {name} and ** of match.",
                example="/v2/search/**",
            ),
            "cors": schema_cors.of_a_route(),
            "respond": respond_with(),
            "maintenance": maintenance_of(
                "Refuse the route's requests with 503; in place of the policy's; false: serve them."
            ),
            "request_headers": edits_of(
                "what the upstream gets", "X-Client", "{account} of {plan}"
            ),
            "response_headers": edits_of(
                "each answer, refusals included,", "Cache-Control", "no-store"
            ),
            "translate": {
                **list_of(
                    {"enum": list(translation.PARTS)},
                    "What of an answer names the client's paths and host in place of the "
                    "upstream's: location (Location, Content-Location, Refresh) and cookies (their "
                    "Path and Domain).",
                    example=["location", "cookies"],
                ),
                "minItems": 1,
            },
            "canary": canary(),
            "mcp": mcp_of_a_route(),
            "verify_signature": verify_signature(),
        },
        required=["match"],
    )
    answered = {"anyOf": [{"required": ["upstream"]}, {"required": ["respond"]}]}
    return {**route, **RATE_FIRST, **answered}
