"""The JSON Schema of a policy file, for editors: completion, descriptions, the commoner mistakes.

It describes one file, so that no top-level key is required. What JSON Schema cannot say, such as
that an upstream exists or that two routes conflict, `load` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.domain import patterns, spelling
from gateway.domain.limits import MAX_AMOUNT
from gateway.domain.policy import (
    AuditSettings,
    Bounds,
    Ejection,
    HealthCheck,
    StoreSettings,
    Timeouts,
)
from gateway.policies import fields, limits, settings, upstreams

Schema = dict[str, Any]

_DAY_S = 86_400


def schema() -> Schema:
    """The schema of one policy file, draft-07."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Policy file of the rate-limiting gateway",
        "description": "The files of a policy folder are read together; each key stands in one.",
        **_object(
            {
                "environment": _text(
                    spelling.ENVIRONMENT,
                    "Keys of another environment are refused with 401.",
                    default="production",
                ),
                "trusted_proxies": _list(
                    {"type": "string"},
                    "Whose X-Forwarded-For or Forwarded is believed: addresses, CIDR ranges.",
                ),
                "proxy_protocol": _flag(
                    "Trusted proxies begin a connection with a PROXY protocol header.", False
                ),
                "ipv6_prefix": _integer(
                    "IPv6 clients are limited by a prefix of so many bits.",
                    settings.IPV6_PREFIXES[1],
                    least=settings.IPV6_PREFIXES[0],
                    default=64,
                ),
                "on_store_failure": _choice(
                    ["local", "open", "closed"],
                    "While the store cannot be reached: count in the worker, admit or refuse.",
                    default="local",
                ),
                "store": _store(),
                "audit": _audit(),
                "timeouts": _timeouts(),
                "bounds": _bounds(),
                "tls": _object(
                    {
                        "certificate": _path("A PEM file: the certificate and its chain."),
                        "key": _path("A PEM file: its private key, without a password."),
                    },
                    "Clients connect by TLS. Files are found from the policy folder.",
                    required=settings.TLS,
                ),
                "admin_tls": _object(
                    {
                        "certificate": _path("A PEM file: the certificate and its chain."),
                        "key": _path("A PEM file: its private key, without a password."),
                    },
                    "The admin listener speaks TLS. Files are found from the policy folder.",
                    required=settings.TLS,
                ),
                "admin_proxy": _object(
                    {
                        "trusted": {
                            **_list(
                                {"type": "string"},
                                "Whose X-Forwarded-For or Forwarded is believed: addresses, CIDR "
                                "ranges.",
                            ),
                            "minItems": 1,
                        },
                        "tls": _flag("Browsers reach the proxy by TLS.", False),
                    },
                    "A proxy in front of the admin listener, such as an ingress.",
                    required=["trusted"],
                ),
                "failed_auth": _object(
                    {"rate": _rate(), "burst": _burst()},
                    "How often one address may fail to authenticate.",
                    required=["rate"],
                ),
                "auth_verify": _object(
                    {"rate": _rate(), "burst": _burst()},
                    "How often one key may ask /v1/auth/verify.",
                    required=["rate"],
                ),
                "headers": _object(
                    {
                        "ietf": _flag("Also send the IETF's RateLimit headers.", False),
                        "hsts": _text(fields.HSTS, "Strict-Transport-Security: max-age=31536000"),
                        "fallback": _flag(
                            "Say X-RateLimit-Fallback where Redis could not be asked.", False
                        ),
                        "trusted_only": _list(
                            _text(fields.TRUSTED_ONLY, "X-Client-IP, or X-Envoy-* for a prefix"),
                            "Request headers that go on from trusted proxies only.",
                        ),
                    },
                    "What answers carry beside X-RateLimit-*, and what requests may not.",
                ),
                "paths": _object(
                    {
                        "case_sensitive": _flag(
                            "Whether paths that differ in letter case only are different.", False
                        ),
                        "encoded_slash": _choice(
                            ["refuse", "keep"],
                            "Refuse paths with %2F, or keep it as a part of its segment.",
                            default="refuse",
                        ),
                    },
                    "How paths are read, where a route does not say it.",
                ),
                "upstreams": {
                    **_named(_upstream(), "Services that requests are sent on to, by name."),
                    "minProperties": 1,
                },
                "plans": {
                    **_named(_plan(), "Tiers, by name; a key is on one of them."),
                    "minProperties": 1,
                },
                "routes": {
                    **_named(_route(), "Which requests are taken, by name."),
                    "minProperties": 1,
                },
            }
        ),
    }


def _store() -> Schema:
    default = StoreSettings()
    return _object(
        {
            "timeout": _duration("For a decision or a look-up, 1ms to 10s.", default.timeout_s),
            "keep_keys": _duration(
                "How long known keys stay known while the store is away, up to 7d.",
                default.keep_keys_s,
            ),
        },
        "How far the store is relied on.",
    )


def _audit() -> Schema:
    default = AuditSettings()
    least, most = settings.AUDIT_ENTRIES
    return _object(
        {
            "keep": _duration("For how long an entry is kept, 1d to 36500d.", default.keep_s),
            "entries": _integer(
                "How many entries are kept.", most, least=least, default=default.entries
            ),
        },
        "How much of the audit log is kept; beyond either, the oldest entries are dropped.",
    )


def _timeouts() -> Schema:
    described = {
        "header": "For a request's head to arrive.",
        "body": "For silence within a request's body.",
        "idle": "For the next request on a connection.",
        "connect": "For a connection to an upstream.",
        "response": "For an upstream's answer to begin.",
        "write": "For a client, or an upstream, to take something of what is sent to it.",
        "tunnel": "For silence in both directions of a WebSocket.",
        "stream": "For an upstream's silence within its answer.",
        "drain": "For what is under way when the gateway is asked to stop.",
    }
    durations = {
        key: _duration(words, getattr(Timeouts(), f"{key}_s")) for key, words in described.items()
    }
    return _object(durations, "Deadlines, such as 10s (units: ms, s, m, h, d).")


def _bounds() -> Schema:
    sizes = {
        "headers": "All of a request's header lines.",
        "url": "The request target.",
        "body": "A request's body.",
        "memory": "What is kept for all connections together, for each worker.",
    }
    counts = {
        "header_count": "How many header lines.",
        "connections": "Client connections in all, for each worker.",
        "connections_per_address": "Client connections from one address, for each worker.",
    }
    bounds = {key: _size(words) for key, words in sizes.items()}
    for key, words in counts.items():
        bounds[key] = _integer(words, settings.COUNTS[key], default=getattr(Bounds(), key))
    return _object(bounds, "What one request may bring, and how many connections there may be.")


def _upstream() -> Schema:
    server = _text(fields.SERVER, "http or https, a host, and a port: http://127.0.0.1:9000")
    inflight = _integer(
        "Most requests at once of one gateway; beyond, 503.", upstreams.MAX_INFLIGHT
    )
    return _object(
        {
            "servers": {**_list(server, "Where it listens."), "minItems": 1},
            "connect": _duration("In place of timeouts.connect."),
            "response": _duration("In place of timeouts.response."),
            "inflight": inflight,
            "ca": _path("A PEM file: the authorities of its https servers."),
            "health": _health(),
            "ejection": _object(
                {
                    "failures": _in_a_row("So many failures.", Ejection().failures),
                    "for": _duration("How long the server is left out.", Ejection().for_s),
                },
                "A server is left out after so many failures in a row.",
            ),
        },
        required=["servers"],
    )


def _health() -> Schema:
    default = HealthCheck("/")
    return _object(
        {
            "path": _text(fields.HEALTH_PATH, "What is fetched: /healthz"),
            "interval": _duration("From one check to the next.", default.interval_s),
            "timeout": _duration("For an answer.", default.timeout_s),
            "rise": _in_a_row("So many good answers bring a server back.", default.rise),
            "fall": _in_a_row("So many bad answers take a server out.", default.fall),
        },
        "A GET that a server in health answers with 2xx or 3xx.",
        required=["path"],
    )


def _plan() -> Schema:
    override: Schema = {"anyOf": [_rate(), {**_object(_figures()), **_one_of_figures()}]}
    return _object(
        {
            "rate": _rate(),
            "burst": _burst(),
            "routes": _named(override, "The plan's own figures for routes, by name."),
        },
        required=["rate"],
    )


def _route() -> Schema:
    scope = _text(patterns.SCOPE, "A scope: connectors:read")
    route = _object(
        {
            "match": _text(
                fields.MATCH,
                "METHOD /path; * is any method, one segment, and at the end all that follows.",
            ),
            "upstream": _text(patterns.NAME, "The upstream that the requests go to."),
            "auth": _choice(["key", "none"], "Whether a key is asked for.", default="key"),
            "scopes": _list(scope, "What a key must carry, all of them."),
            "permission": _text(fields.PERMISSION, "What a key must be allowed: ticketing:write"),
            "service": _text(patterns.NAME, "Which service the account must have enabled."),
            "plan_limits": _flag("Whether the plan's limit counts too.", True),
            "rate": _rate(),
            "burst": _burst(),
            "limits": _list(_entry(), "Limits of this route, after that of `rate`."),
            "cost": _integer(
                "How much one request counts in the limits of its route; 1 where it is not given.",
                MAX_AMOUNT,
            ),
            "json_rpc": {
                "type": "boolean",
                "description": "Word refusals as JSON-RPC; by default where a segment is mcp.",
            },
            "case_sensitive": {
                "type": "boolean",
                "description": "In place of paths.case_sensitive.",
            },
            "encoded_slash": {
                "enum": ["refuse", "keep"],
                "description": "In place of paths.encoded_slash.",
            },
        },
        required=["match", "upstream"],
    )
    return {**route, "dependencies": {"burst": ["rate"]}}


def _entry() -> Schema:
    entry = _object(
        {
            "name": _text(patterns.NAME, "What the limit is known by, and its count kept under."),
            **_figures(),
            "per": _text(
                patterns.PER, "What it is counted per: key, account, ip, header:NAME", default="key"
            ),
            "mode": _choice(
                ["enforce", "shadow"], "shadow: count and report only.", default="enforce"
            ),
        },
        required=["name"],
    )
    return {**entry, **_one_of_figures()}


def _figures() -> Schema:
    leases = _integer("How many requests, streams and WebSockets at once.", limits.MOST_LEASES)
    return {"rate": _rate(), "burst": _burst(), "quota": _quota(), "concurrency": leases}


def _one_of_figures() -> Schema:
    return {
        "oneOf": [{"required": [kind]} for kind in limits.KINDS],
        "dependencies": {"burst": ["rate"]},
    }


def _rate() -> Schema:
    return _text(fields.RATE, "A sliding window: 30/minute (second, minute, hour, day)")


def _quota() -> Schema:
    return _text(fields.RATE, "A calendar period in UTC: 10000/day")


def _burst() -> Schema:
    return _integer("The most admitted in one window; at least the rate's amount.", MAX_AMOUNT)


def _size(description: str) -> Schema:
    number = {"type": "integer", "minimum": 1}
    return {"description": description, "anyOf": [number, _text(fields.SIZE, "Such as 32KiB.")]}


def _integer(description: str, most: int, least: int = 1, default: int | None = None) -> Schema:
    number: Schema = {"type": "integer", "minimum": least, "maximum": most}
    number["description"] = description
    return number if default is None else {**number, "default": default}


def _in_a_row(description: str, default: int) -> Schema:
    return _integer(description, upstreams.MAX_IN_A_ROW, default=default)


def _duration(description: str, default_s: float | None = None) -> Schema:
    default = None if default_s is None else f"{default_s:g}s"
    if default_s is not None and default_s >= _DAY_S:
        default = f"{default_s / _DAY_S:g}d"
    return _text(fields.DURATION, description, default)


def _path(description: str) -> Schema:
    return {"type": "string", "minLength": 1, "description": description}


def _flag(description: str, default: bool) -> Schema:
    return {"type": "boolean", "default": default, "description": description}


def _choice(options: Sequence[str], description: str, default: str) -> Schema:
    return {"enum": list(options), "default": default, "description": description}


def _text(pattern: str, description: str, default: str | None = None) -> Schema:
    text: Schema = {"type": "string", "pattern": f"^(?:{pattern})$", "description": description}
    return text if default is None else {**text, "default": default}


def _list(items: Schema, description: str) -> Schema:
    return {"type": "array", "items": items, "description": description}


def _named(entry: Schema, description: str) -> Schema:
    return {
        "type": "object",
        "description": description,
        "propertyNames": {"pattern": f"^(?:{patterns.NAME})$"},
        "additionalProperties": entry,
    }


def _object(
    properties: Mapping[str, Schema], description: str = "", required: Sequence[str] = ()
) -> Schema:
    result: Schema = {"type": "object", "additionalProperties": False}
    if description:
        result["description"] = description
    if required:
        result["required"] = list(required)
    return {**result, "properties": dict(properties)}
