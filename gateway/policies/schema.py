"""The JSON Schema of a policy file, for editors (completion, checks) and the reference in docs/.

It describes one file, so no top-level key is required. `load` checks what JSON Schema cannot
express, such as that an upstream exists or that two routes conflict. Every setting that is neither
a flag nor a choice has an example, which the loader accepts (tests/docs/test_policies.py).
"""

from __future__ import annotations

from gateway.domain import key_format
from gateway.domain.limits import UNITS_US, Limit
from gateway.domain.policy import (
    AUTH_VERIFY,
    FAILED_AUTH,
    AuditSettings,
    Bounds,
    StoreSettings,
    Timeouts,
)
from gateway.policies import fields, settings
from gateway.policies.schema_access import access
from gateway.policies.schema_access_log import access_log
from gateway.policies.schema_cors import cors_of
from gateway.policies.schema_limits import burst, plan, rate
from gateway.policies.schema_mcp import mcp_sessions
from gateway.policies.schema_parts import (
    Schema,
    addresses,
    choice,
    duration,
    flag,
    integer,
    list_of,
    named,
    object_of,
    path,
    size,
    text,
)
from gateway.policies.schema_respond import maintenance_of
from gateway.policies.schema_routes import route
from gateway.policies.schema_signatures import signature
from gateway.policies.schema_tls import client_tls, tls
from gateway.policies.schema_tracing import tracing
from gateway.policies.schema_upstreams import upstream
from gateway.policies.schema_webhooks import webhook_settings


def schema() -> Schema:
    """The schema of one policy file, draft-07."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Policy file of the rate-limiting gateway",
        "description": "All policy files of a folder are read together; each top-level key may be "
        "in one of them.",
        **object_of(
            {
                "environment": text(
                    key_format.ENVIRONMENT,
                    "The environment of this gateway. Keys of another environment are refused with "
                    "401.",
                    default="production",
                    example="staging",
                ),
                "trusted_proxies": addresses(
                    "Proxies whose X-Forwarded-For or Forwarded header is used: addresses and CIDR "
                    "ranges.",
                    default=[],
                ),
                "proxy_protocol": flag(
                    "Connections from trusted proxies begin with a PROXY protocol header, version "
                    "1 or 2; with tls, before the handshake.",
                    False,
                ),
                "ipv6_prefix": integer(
                    "IPv6 clients are counted by a prefix of this many bits.",
                    settings.IPV6_PREFIXES[1],
                    least=settings.IPV6_PREFIXES[0],
                    default=64,
                    example=56,
                ),
                "on_store_failure": choice(
                    ["local", "open", "closed"],
                    "While the store is unavailable: count in the worker (local), admit without "
                    "counting (open), or refuse with 503 (closed).",
                    default="local",
                ),
                "store": _store(),
                "audit": _audit(),
                "timeouts": _timeouts(),
                "bounds": _bounds(),
                "tls": client_tls("TLS for clients, version 1.2 or newer."),
                "admin_tls": tls("TLS for the admin listener."),
                "admin_proxy": object_of(
                    {
                        "trusted": {
                            **addresses(
                                "Proxies whose X-Forwarded-For or Forwarded header is used: "
                                "addresses and CIDR ranges.",
                            ),
                            "minItems": 1,
                        },
                        "tls": flag("Browsers reach the proxy over TLS.", False),
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
                "paths": object_of(
                    {
                        "case_sensitive": flag(
                            "Paths that differ only in letter case are different paths.", False
                        ),
                        "encoded_slash": choice(
                            ["refuse", "keep"],
                            "Paths with %2F: refuse them with 400, or keep %2F as a part of its "
                            "segment.",
                            default="refuse",
                        ),
                    },
                    "How paths are matched, for routes that do not set it themselves.",
                ),
                "error_docs": text(
                    fields.URL,
                    "A page that describes errors: each error body gets `doc`, this URL and '#' "
                    "with the error's code in lower case.",
                    example="https://docs.example.com/errors",
                ),
                "access": access(
                    "Which addresses may send requests; all others get 403. Files are relative to "
                    "the policy folder, and are reloaded when they change."
                ),
                "error_pages": object_of(
                    {
                        "html": path(
                            "For clients that prefer HTML to JSON: browsers.", "pages/error.html"
                        ),
                        "json": path("For all others.", "pages/error.json"),
                    },
                    "Files of the policy folder, up to 64 KiB, that are the bodies of the "
                    "gateway's errors, except for JSON-RPC. They may have {status}, {code}, "
                    "{message}, {request_id} and {retry_after}.",
                ),
                "maintenance": maintenance_of(
                    "Refuse the requests of all routes without their own setting with 503: true, "
                    "or a mapping of message, retry_after and allow (addresses that are served)."
                ),
                "cors": cors_of(
                    "Pages of other origins that may use all routes without their own cors, and "
                    "the gateway's paths."
                ),
                "access_log": access_log(),
                "tracing": tracing(),
                "mcp_sessions": mcp_sessions(),
                "signatures": {
                    **named(signature(), "How webhooks that routes receive are verified, by name."),
                    "minProperties": 1,
                },
                "webhooks": webhook_settings(),
                "upstreams": {
                    **named(upstream(), "The services that requests are forwarded to, by name."),
                    "minProperties": 1,
                },
                "plans": {
                    **named(plan(), "Plans, by name. Each key has one, or uses its account's."),
                    "minProperties": 1,
                },
                "routes": {
                    **named(route(), "Which requests are forwarded, and their rules, by name."),
                    "minProperties": 1,
                },
            }
        ),
    }


def _store() -> Schema:
    default = StoreSettings()
    return object_of(
        {
            "timeout": duration(
                "The deadline of a decision or a key look-up, 1ms to 10s. After it the request is "
                "decided without the store.",
                default.timeout_s,
                example="100ms",
            ),
            "keep_keys": duration(
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
    return object_of(
        {
            "keep": duration(
                "The age up to which entries are kept, 1d to 36500d.", default.keep_s, "90d"
            ),
            "entries": integer(
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
        key: duration(words, getattr(Timeouts(), f"{key}_s"), example)
        for key, (words, example) in described.items()
    }
    return object_of(durations, "Deadlines: more than 0s, at most 1d. Units: ms, s, m, h, d.")


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
        key: size(words, getattr(default, f"{key}_bytes"), example)
        for key, (words, example) in sizes.items()
    }
    for name, (words, count) in counts.items():
        bounds[name] = integer(
            words, settings.COUNTS[name], default=getattr(default, name), example=count
        )
    return object_of(bounds, "Bounds on one request, on connections and on memory.")


def _own_rate(default: Limit, description: str) -> Schema:
    window = next(unit for unit, width_us in UNITS_US.items() if width_us == default.window_us)
    its_rate = {**rate(), "default": f"{default.amount}/{window}"}
    return object_of({"rate": its_rate, "burst": burst()}, description, required=["rate"])


def _headers() -> Schema:
    return object_of(
        {
            "ietf": flag("Also send the IETF draft's RateLimit and RateLimit-Policy.", False),
            "hsts": text(
                fields.HSTS,
                "The value of Strict-Transport-Security, sent with every response over TLS.",
                example="max-age=31536000",
            ),
            "fallback": flag(
                "Send X-RateLimit-Fallback with responses decided without the store.", False
            ),
            "trusted_only": list_of(
                text(fields.TRUSTED_ONLY, "A header's name, or X-Envoy-* for a prefix."),
                "Request headers that are forwarded from trusted proxies only. Replaces the "
                "default list, which policies/gateway.yaml shows.",
                example=["CF-Connecting-IP", "X-Envoy-*"],
            ),
        },
        "Headers of responses, and request headers that are not forwarded.",
    )
