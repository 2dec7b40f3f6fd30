"""The JSON Schema of a policy file, for editors (completion, checks) and the reference in docs/.

It describes one file, so no top-level key is required. `load` checks what JSON Schema cannot
express, such as that an upstream exists or that two routes conflict. Every setting that is neither
a flag nor a choice has an example, which the loader accepts (tests/docs/test_policies.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.domain import key_format, patterns
from gateway.domain.limits import KINDS, MAX_AMOUNT, UNITS_US, Limit
from gateway.domain.policy import (
    AUTH_VERIFY,
    FAILED_AUTH,
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
        "description": "All policy files of a folder are read together; each top-level key may be "
        "in one of them.",
        **_object(
            {
                "environment": _text(
                    key_format.ENVIRONMENT,
                    "The environment of this gateway. Keys of another environment are refused with "
                    "401.",
                    default="production",
                    example="staging",
                ),
                "trusted_proxies": _addresses(
                    "Proxies whose X-Forwarded-For or Forwarded header is used: addresses and CIDR "
                    "ranges.",
                    default=[],
                ),
                "proxy_protocol": _flag(
                    "Connections from trusted proxies begin with a PROXY protocol header, version "
                    "1 or 2. Cannot be combined with tls.",
                    False,
                ),
                "ipv6_prefix": _integer(
                    "IPv6 clients are counted by a prefix of this many bits.",
                    settings.IPV6_PREFIXES[1],
                    least=settings.IPV6_PREFIXES[0],
                    default=64,
                    example=56,
                ),
                "on_store_failure": _choice(
                    ["local", "open", "closed"],
                    "While the store is unavailable: count in the worker (local), admit without "
                    "counting (open), or refuse with 503 (closed).",
                    default="local",
                ),
                "store": _store(),
                "audit": _audit(),
                "timeouts": _timeouts(),
                "bounds": _bounds(),
                "tls": _tls("TLS for clients, version 1.2 or newer."),
                "admin_tls": _tls("TLS for the admin listener."),
                "admin_proxy": _object(
                    {
                        "trusted": {
                            **_addresses(
                                "Proxies whose X-Forwarded-For or Forwarded header is used: "
                                "addresses and CIDR ranges.",
                            ),
                            "minItems": 1,
                        },
                        "tls": _flag("Browsers reach the proxy over TLS.", False),
                    },
                    "A proxy in front of the admin listener, such as an ingress.",
                    required=["trusted"],
                ),
                "failed_auth": _own_rate(
                    FAILED_AUTH, "The limit on failed authentications from one address."
                ),
                "auth_verify": _own_rate(
                    AUTH_VERIFY, "The limit on requests of one key to /v1/auth/verify."
                ),
                "headers": _headers(),
                "paths": _object(
                    {
                        "case_sensitive": _flag(
                            "Paths that differ only in letter case are different paths.", False
                        ),
                        "encoded_slash": _choice(
                            ["refuse", "keep"],
                            "Paths with %2F: refuse them with 400, or keep %2F as a part of its "
                            "segment.",
                            default="refuse",
                        ),
                    },
                    "How paths are matched, for routes that do not set it themselves.",
                ),
                "error_docs": _text(
                    fields.URL,
                    "A page that describes errors: each error body gets `doc`, this URL and '#' "
                    "with the error's code in lower case.",
                    example="https://docs.example.com/errors",
                ),
                "upstreams": {
                    **_named(_upstream(), "The services that requests are forwarded to, by name."),
                    "minProperties": 1,
                },
                "plans": {
                    **_named(_plan(), "Plans, by name. Each key has one, or uses its account's."),
                    "minProperties": 1,
                },
                "routes": {
                    **_named(_route(), "Which requests are forwarded, and their rules, by name."),
                    "minProperties": 1,
                },
            }
        ),
    }


def _store() -> Schema:
    default = StoreSettings()
    return _object(
        {
            "timeout": _duration(
                "The deadline of a decision or a key look-up, 1ms to 10s. After it the request is "
                "decided without the store.",
                default.timeout_s,
                example="100ms",
            ),
            "keep_keys": _duration(
                "How long cached keys stay valid while the store is unavailable, up to 7d.",
                default.keep_keys_s,
                example="1h",
            ),
        },
        "How long the gateway waits for the store, and how long it uses cached keys without it.",
    )


def _audit() -> Schema:
    default = AuditSettings()
    least, most = settings.AUDIT_ENTRIES
    return _object(
        {
            "keep": _duration(
                "The age up to which entries are kept, 1d to 36500d.", default.keep_s, "90d"
            ),
            "entries": _integer(
                "The number of entries kept.",
                most,
                least=least,
                default=default.entries,
                example=100_000,
            ),
        },
        "How much of the audit log is kept. Beyond either bound the oldest entries are dropped.",
    )


def _timeouts() -> Schema:
    described = {
        "header": ("For the head of a request to arrive.", "5s"),
        "body": ("The longest pause within a request's body.", "30s"),
        "idle": ("How long a connection stays open between requests.", "2m"),
        "connect": ("Connecting to an upstream.", "500ms"),
        "response": ("From the end of a request to the first byte of the response.", "1m"),
        "write": ("How long a client or an upstream may read nothing of what is sent.", "1m"),
        "tunnel": ("The longest pause of both directions of a WebSocket.", "1h"),
        "stream": ("The longest pause of an upstream within its response.", "1h"),
        "drain": ("How long requests in progress may take to finish at shutdown.", "2m"),
    }
    durations = {
        key: _duration(words, getattr(Timeouts(), f"{key}_s"), example)
        for key, (words, example) in described.items()
    }
    return _object(durations, "Deadlines: more than 0s, at most 1d. Units: ms, s, m, h, d.")


def _bounds() -> Schema:
    sizes = {
        "headers": ("The header lines of a request together.", "16KiB"),
        "url": ("The request target.", "4KiB"),
        "body": ("The body of a request.", "100MB"),
        "memory": ("What is buffered for all connections of a worker together.", "256MiB"),
    }
    counts = {
        "header_count": ("The number of header lines.", 50),
        "connections": ("Client connections of a worker.", 50_000),
        "connections_per_address": ("Client connections of a worker from one address.", 1_000),
    }
    default = Bounds()
    bounds = {
        key: _size(words, getattr(default, f"{key}_bytes"), example)
        for key, (words, example) in sizes.items()
    }
    for name, (words, count) in counts.items():
        bounds[name] = _integer(
            words, settings.COUNTS[name], default=getattr(default, name), example=count
        )
    return _object(bounds, "Bounds on one request, on connections and on memory.")


def _tls(description: str) -> Schema:
    return _object(
        {
            "certificate": _path("A PEM file: the certificate and its chain.", "tls/tls.crt"),
            "key": _path("A PEM file: its private key, without a password.", "tls/tls.key"),
        },
        f"{description} Paths are relative to the policy folder; changed files are reloaded.",
        required=settings.TLS,
    )


def _own_rate(default: Limit, description: str) -> Schema:
    window = next(unit for unit, width_us in UNITS_US.items() if width_us == default.window_us)
    rate = {**_rate(), "default": f"{default.amount}/{window}"}
    return _object({"rate": rate, "burst": _burst()}, description, required=["rate"])


def _headers() -> Schema:
    return _object(
        {
            "ietf": _flag("Also send the IETF draft's RateLimit and RateLimit-Policy.", False),
            "hsts": _text(
                fields.HSTS,
                "The value of Strict-Transport-Security, sent with every response over TLS.",
                example="max-age=31536000",
            ),
            "fallback": _flag(
                "Send X-RateLimit-Fallback with responses decided without the store.", False
            ),
            "trusted_only": _list(
                _text(fields.TRUSTED_ONLY, "A header's name, or X-Envoy-* for a prefix."),
                "Request headers that are forwarded from trusted proxies only. Replaces the "
                "default list, which policies/gateway.yaml shows.",
                example=["CF-Connecting-IP", "X-Envoy-*"],
            ),
        },
        "Headers of responses, and request headers that are not forwarded.",
    )


def _upstream() -> Schema:
    server = _text(fields.SERVER, "Scheme (http or https), host and port.")
    inflight = _integer(
        "The most concurrent requests from all workers of a gateway; beyond it 503.",
        upstreams.MAX_INFLIGHT,
        example=200,
    )
    servers = _list(
        server,
        "Its servers: scheme (http or https), host and port.",
        example=["http://10.0.0.5:9000", "http://10.0.0.6:9000"],
    )
    return _object(
        {
            "servers": {**servers, "minItems": 1},
            "connect": _duration("Overrides timeouts.connect.", example="500ms"),
            "response": _duration("Overrides timeouts.response.", example="10s"),
            "inflight": inflight,
            "ca": _path(
                "A PEM file: the authorities that certify its https servers. Without it, those of "
                "the system.",
                "internal-ca.pem",
            ),
            "health": _health(),
            "ejection": _object(
                {
                    "failures": _in_a_row(
                        "Consecutive failures of requests that eject a server.",
                        Ejection().failures,
                        example=3,
                    ),
                    "for": _duration(
                        "How long the server is ejected.", Ejection().for_s, example="30s"
                    ),
                },
                "A server is ejected for a time after several consecutive failures.",
            ),
        },
        required=["servers"],
    )


def _health() -> Schema:
    default = HealthCheck("/")
    return _object(
        {
            "path": _text(fields.HEALTH_PATH, "The path to GET.", example="/healthz"),
            "interval": _duration("The time between two checks.", default.interval_s, "1s"),
            "timeout": _duration("The deadline of a check.", default.timeout_s, "500ms"),
            "rise": _in_a_row("Consecutive successes that make a server healthy.", default.rise, 1),
            "fall": _in_a_row("Consecutive failures that make it unhealthy.", default.fall, 5),
        },
        "Active health checks: a GET to each server. A status of 2xx or 3xx is a success.",
        required=["path"],
    )


def _plan() -> Schema:
    override: Schema = {
        "description": "A rate, or a mapping with rate (and burst), quota or concurrency. Replaces "
        "the values of the limit of this name; a route's `rate` is named like the route.",
        "examples": ["300/minute", {"concurrency": 20}],
        "anyOf": [_rate(), {**_object(_values()), **_one_of_values()}],
    }
    return _object(
        {
            "rate": _rate(),
            "burst": _burst(),
            "routes": _named(override, "The plan's own values for limits of routes, by name."),
        },
        required=["rate"],
    )


def _route() -> Schema:
    scope = _text(patterns.SCOPE, "A scope.")
    route = _object(
        {
            "match": _text(
                fields.MATCH,
                "METHOD /path. The method * is any method. In the path, * is one segment; a final "
                "/* or /** matches any further segments, or none.",
                example="GET /api/search/*",
            ),
            "upstream": _text(
                patterns.NAME, "The upstream that requests are forwarded to.", example="api"
            ),
            "auth": _choice(["key", "none"], "Whether requests need an API key.", default="key"),
            "scopes": _list(
                scope,
                "The scopes that a key needs, all of them; without one of them 403.",
                example=["connectors:read"],
            ),
            "permission": _text(
                fields.PERMISSION,
                "The permission that a key needs, AREA:ACTION.",
                example="ticketing:write",
            ),
            "service": _text(
                patterns.NAME, "The service that the account needs.", example="ticketing"
            ),
            "plan_limits": _flag("Whether the plan's limit applies as well.", True),
            "rate": _rate("The route's limit, named like the route."),
            "burst": _burst(),
            "limits": _list(
                _entry(),
                "Further limits. All of a request's limits are decided together.",
                example=[{"name": "daily", "quota": "10000/day"}],
            ),
            "cost": _integer(
                "How many units one request counts in its limits.",
                MAX_AMOUNT,
                default=1,
                example=5,
            ),
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
        },
        required=["match", "upstream"],
    )
    return {**route, "dependencies": {"burst": ["rate"]}}


def _entry() -> Schema:
    entry = _object(
        {
            "name": _text(
                patterns.NAME,
                "The limit's name, in responses, metrics and the names of its counters.",
                example="daily",
            ),
            **_values(),
            "per": _text(
                patterns.PER,
                "The subject that is counted: key, account, ip or header:NAME.",
                default="key",
                example="header:X-Tenant",
            ),
            "mode": _choice(
                ["enforce", "shadow"],
                "shadow: count and report, but never refuse.",
                default="enforce",
            ),
        },
        required=["name"],
    )
    return {**entry, **_one_of_values()}


def _values() -> Schema:
    leases = _integer(
        "The most concurrent requests, event streams and WebSockets.",
        limits.MOST_LEASES,
        example=5,
    )
    return {"rate": _rate(), "burst": _burst(), "quota": _quota(), "concurrency": leases}


def _one_of_values() -> Schema:
    return {
        "oneOf": [{"required": [kind]} for kind in KINDS],
        "dependencies": {"burst": ["rate"]},
    }


def _rate(description: str = "A sliding window.") -> Schema:
    words = f"{description} Units: second, minute, hour, day."
    return _text(fields.RATE, words, example="30/minute")


def _quota() -> Schema:
    return _text(
        fields.RATE,
        "A calendar period in UTC. Units: second, minute, hour, day.",
        example="10000/day",
    )


def _burst() -> Schema:
    return _integer(
        "The most that is admitted in one window of the rate; at least the rate's amount.",
        MAX_AMOUNT,
        example=100,
    )


def _size(description: str, default_bytes: int, example: str) -> Schema:
    number = {"type": "integer", "minimum": 1}
    unit, name = next(each for each in ((2**20, "MiB"), (2**10, "KiB")) if default_bytes >= each[0])
    return {
        "description": description,
        "default": f"{default_bytes // unit}{name}",
        "examples": [example],
        "anyOf": [number, _text(fields.SIZE, "A number and a unit: B, KB, KiB, MB, MiB, GB, GiB.")],
    }


def _integer(
    description: str,
    most: int,
    least: int = 1,
    default: int | None = None,
    example: int | None = None,
) -> Schema:
    number: Schema = {"type": "integer", "minimum": least, "maximum": most}
    number["description"] = description
    return _with(number, default, example)


def _in_a_row(description: str, default: int, example: int) -> Schema:
    return _integer(description, upstreams.MAX_IN_A_ROW, default=default, example=example)


def _duration(
    description: str, default_s: float | None = None, example: str | None = None
) -> Schema:
    default = None if default_s is None else _duration_text(default_s)
    return _text(fields.DURATION, description, default, example)


def _duration_text(seconds: float) -> str:
    if seconds >= _DAY_S:
        return f"{seconds / _DAY_S:g}d"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _path(description: str, example: str) -> Schema:
    return _with({"type": "string", "minLength": 1, "description": description}, None, example)


def _flag(description: str, default: bool) -> Schema:
    return {"type": "boolean", "default": default, "description": description}


def _choice(options: Sequence[str], description: str, default: str) -> Schema:
    return {"enum": list(options), "default": default, "description": description}


def _text(
    pattern: str, description: str, default: str | None = None, example: str | None = None
) -> Schema:
    text: Schema = {"type": "string", "pattern": f"^(?:{pattern})$", "description": description}
    return _with(text, default, example)


def _list(items: Schema, description: str, example: object = None) -> Schema:
    return _with({"type": "array", "items": items, "description": description}, None, example)


def _addresses(description: str, default: object = None) -> Schema:
    return _with(_list({"type": "string"}, description), default, ["10.0.0.0/8", "192.0.2.1"])


def _with(entry: Schema, default: object, example: object) -> Schema:
    """The same with a default and an example, if they are not None."""
    if default is not None:
        entry = {**entry, "default": default}
    return entry if example is None else {**entry, "examples": [example]}


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
