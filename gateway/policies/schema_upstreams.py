"""The JSON Schema of an upstream."""

from __future__ import annotations

from gateway.domain import patterns
from gateway.domain.balancing.rules import RULES
from gateway.domain.upstreams import Balance, Ejection, HealthCheck
from gateway.policies import balancing, fields, upstreams
from gateway.policies.schema_parts import (
    Schema,
    duration,
    in_a_row,
    integer,
    list_of,
    object_of,
    path,
    text,
)


def upstream() -> Schema:
    inflight = integer(
        "The most concurrent requests from all workers of a gateway; beyond it 503.",
        upstreams.MAX_INFLIGHT,
        example=200,
    )
    servers = list_of(
        _server(),
        "Its servers: scheme (http or https), host and port, perhaps with a base path; or "
        "srv+http://NAME for the targets of SRV records; with a weight as {url: "
        "http://10.0.0.5:9000, weight: 3}.",
        example=["http://10.0.0.5:9000", "http://10.0.0.6:9000"],
    )
    schema = object_of(
        {
            "servers": {**servers, "minItems": 1},
            "connect": duration("Overrides timeouts.connect.", example="500ms"),
            "response": duration("Overrides timeouts.response.", example="10s"),
            "inflight": inflight,
            "ca": path(
                "A PEM file: the authorities that certify its https servers. Without it, those of "
                "the system.",
                "internal-ca.pem",
            ),
            "host": {
                **text(upstreams.ASKED, "", example="api.internal"),
                "description": "The Host that its servers get: their own (upstream), the client's "
                "(client), or a name. Default: upstream for https servers, client for http.",
            },
            "client_certificate": path(
                "A PEM file: the certificate with which the gateway identifies itself to its https "
                "servers, with its chain.",
                "client.pem",
            ),
            "client_key": path("A PEM file: the key of client_certificate.", "client.key"),
            "health": _health(),
            "ejection": object_of(
                {
                    "failures": in_a_row(
                        "Consecutive failures of requests that eject a server.",
                        Ejection().failures,
                        example=3,
                    ),
                    "for": duration(
                        "How long the server is ejected.", Ejection().for_s, example="30s"
                    ),
                    "errors": text(
                        fields.PERCENT,
                        "The share of 5xx among its answers that ejects a server; failures count.",
                        example="50%",
                    ),
                    "latency": duration(
                        "A server is ejected if more than half of its answers begin later.",
                        example="2s",
                    ),
                    "window": duration(
                        "The time over which answers are counted.",
                        Ejection().window_s,
                        example="30s",
                    ),
                    "least": integer(
                        "The fewest answers in the window for a decision.",
                        upstreams.MAX_LEAST,
                        default=Ejection().least,
                        example=50,
                    ),
                },
                "A server is ejected for a time after several consecutive failures, or if its "
                "answers are errors or slow.",
            ),
            "balance": _balance(),
        },
        required=["servers"],
    )
    one, other = upstreams.CLIENT
    return {**schema, "dependencies": {one: [other], other: [one]}}


def _server() -> Schema:
    url = text(
        f"{fields.SERVER}|{fields.SRV}",
        "Scheme (http or https), host and port; or srv+http, srv+https and a name of SRV records.",
    )
    weight = integer(
        "How many requests it gets, in proportion to those of the other servers; with a name, each "
        "of its addresses.",
        balancing.MAX_WEIGHT,
        default=1,
        example=3,
    )
    return {"anyOf": [url, object_of({"url": url, "weight": weight}, required=["url"])]}


def _balance() -> Schema:
    by = text(patterns.PER, "key, account, ip or header:NAME.", example="header:X-Session")
    plain = {"enum": list(balancing.PLAIN)}
    rules = "; ".join(
        f"{name}{' (by key, account, ip or header:NAME)' if rule.goes_by else ''}: {rule.words}"
        for name, rule in RULES.items()
    )
    return {
        "description": f"How servers are chosen. {rules}.",
        "default": Balance().rule,
        "examples": ["round_robin", {"hash": "key"}],
        "anyOf": [plain, *(object_of({name: by}, required=[name]) for name in balancing.GO_BY)],
    }


def _health() -> Schema:
    default = HealthCheck("/")
    return object_of(
        {
            "path": text(fields.HEALTH_PATH, "The path to GET.", example="/healthz"),
            "interval": duration("The time between two checks.", default.interval_s, "1s"),
            "timeout": duration("The deadline of a check.", default.timeout_s, "500ms"),
            "rise": in_a_row("Consecutive successes that make a server healthy.", default.rise, 1),
            "fall": in_a_row("Consecutive failures that make it unhealthy.", default.fall, 5),
        },
        "Active health checks: a GET to each server. A status of 2xx or 3xx is a success.",
        required=["path"],
    )
