"""The services that requests are forwarded to: their servers, health checks and ejection."""

from __future__ import annotations

import re
import ssl
from dataclasses import replace
from typing import Final

from gateway.domain.upstreams import Balance, Ejection, HealthCheck, Server, Upstream
from gateway.files import load_pair, reason_of
from gateway.policies import fields, hosts
from gateway.policies.balancing import read_balance, read_servers
from gateway.policies.settings import read_timeout
from gateway.policies.values import Fields, Value, read_path, setting

CLIENT: Final = ("client_certificate", "client_key")
UPSTREAM: Final = (
    *("servers", "connect", "response", "inflight", "ca", "health", "ejection"),
    *("balance", "host", *CLIENT),
)
HEALTH: Final = ("path", "interval", "timeout", "rise", "fall")
EJECTION: Final = ("failures", "for", "errors", "latency", "window", "least")
ASKED: Final = rf"{hosts.NAME}(?::([0-9]{{1,5}}))?"
ASKED_EXPECTED: Final = "upstream, client, or a host such as api.internal or api.internal:8443"
MAX_INFLIGHT: Final = 1_000_000
#: The most consecutive successes or failures.
MAX_IN_A_ROW: Final = 1_000
#: The most answers that a decision of `ejection` may need.
MAX_LEAST: Final = 1_000_000


def read_upstream(name: str, value: Value) -> Upstream:
    """One upstream. Even with a fault, routes may refer to its name."""
    given = value.fields(UPSTREAM, required=("servers",)) or {}
    servers = read_servers(given["servers"]) if "servers" in given else ()
    host = setting(given, "host", _read_host, None)
    client_certificate, client_key = _read_client(given, servers)
    return Upstream(
        name,
        tuple(replace(server, asked=_asked(server, host)) for server in servers),
        connect_s=setting(given, "connect", read_timeout, None),
        response_s=setting(given, "response", read_timeout, None),
        inflight=setting(given, "inflight", _read_inflight, None),
        ca=_read_ca(given["ca"], servers) if "ca" in given else None,
        health=setting(given, "health", _read_health, None),
        ejection=setting(given, "ejection", _read_ejection, Ejection()),
        balance=setting(given, "balance", read_balance, Balance()),
        host=host,
        client_certificate=client_certificate,
        client_key=client_key,
    )


def _read_host(value: Value) -> str | None:
    return value.parsed(read_asked, ASKED_EXPECTED)


def read_asked(text: str) -> str:
    """Which Host servers get: "upstream", "client" or a name, perhaps with a port."""
    found = re.fullmatch(ASKED, text)
    if not found or len(text) > hosts.MOST_NAME or not 1 <= int(found[1] or 1) <= 65_535:
        raise ValueError(ASKED_EXPECTED)
    return text.lower()


def _asked(server: Server, host: str | None) -> str:
    """The Host that a server gets; "": the client's."""
    if host is None:
        # Behind TLS there are often several sites, and a server finds its own by this name.
        host = "upstream" if server.scheme == "https" else "client"
    return {"upstream": server.authority, "client": ""}.get(host, host)


def _read_inflight(value: Value) -> int | None:
    return value.integer(1, MAX_INFLIGHT)


def _read_ca(value: Value, servers: tuple[Server, ...]) -> str | None:
    path = read_path(value)
    # Without an https server the authorities are unused: probably a scheme was mistyped.
    if servers and all(server.scheme != "https" for server in servers):
        value.add_fault("no ca, as none of the servers is https")
    return path


def _read_client(given: Fields, servers: tuple[Server, ...]) -> tuple[str | None, str | None]:
    """The client certificate and its key: both, and each the other's."""
    paths = [setting(given, key, read_path, None) for key in CLIENT]
    for key, other in (CLIENT, CLIENT[::-1]):
        if key in given and other not in given:
            given[key].add_fault(f"{other} with it", f"{key} without {other}")
        elif key in given and servers and all(server.scheme != "https" for server in servers):
            given[key].add_fault(f"no {key}, as none of the servers is https")
    certificate, key_file = paths
    if certificate is None or key_file is None:
        return None, None
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, key_file)
    except OSError as error:
        given[CLIENT[1]].add_fault(
            "the key of client_certificate, both in PEM and not encrypted",
            f"{given[CLIENT[1]].found} ({reason_of(error)})",
        )
    return certificate, key_file


def _read_health(value: Value) -> HealthCheck | None:
    given = value.fields(HEALTH, required=("path",))
    if given is None or "path" not in given:
        return None
    path = given["path"].matching(
        fields.HEALTH_PATH, "a path such as /healthz: plain or percent-encoded, no fragment"
    )
    default = HealthCheck(path or "/")
    return HealthCheck(
        default.path,
        interval_s=setting(given, "interval", read_timeout, default.interval_s),
        timeout_s=setting(given, "timeout", read_timeout, default.timeout_s),
        rise=setting(given, "rise", _read_in_a_row, default.rise),
        fall=setting(given, "fall", _read_in_a_row, default.fall),
    )


def _read_ejection(value: Value) -> Ejection:
    given = value.fields(EJECTION) or {}
    for key in {"window", "least"} & given.keys():
        if not {"errors", "latency"} & given.keys():
            given[key].add_fault("errors or latency with it", f"{key} without them")
    default = Ejection()
    return Ejection(
        failures=setting(given, "failures", _read_in_a_row, default.failures),
        for_s=setting(given, "for", read_timeout, default.for_s),
        errors_percent=setting(given, "errors", _read_errors, None),
        latency_s=setting(given, "latency", read_timeout, None),
        window_s=setting(given, "window", read_timeout, default.window_s),
        least=setting(given, "least", lambda at: at.integer(1, MAX_LEAST), default.least),
    )


def _read_errors(value: Value) -> float | None:
    return value.parsed(fields.read_some_percent, "a percentage such as 50%")


def _read_in_a_row(value: Value) -> int | None:
    return value.integer(1, MAX_IN_A_ROW)
