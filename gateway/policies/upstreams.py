"""The services that requests are forwarded to: their servers, health checks and ejection."""

from __future__ import annotations

from typing import Final

from gateway.domain.policy import Ejection, HealthCheck, Server, Upstream
from gateway.policies import fields
from gateway.policies.settings import read_timeout
from gateway.policies.values import Value, read_path, setting

UPSTREAM: Final = ("servers", "connect", "response", "inflight", "ca", "health", "ejection")
HEALTH: Final = ("path", "interval", "timeout", "rise", "fall")
EJECTION: Final = ("failures", "for")
MAX_INFLIGHT: Final = 1_000_000
#: The most consecutive successes or failures.
MAX_IN_A_ROW: Final = 1_000


def read_upstream(name: str, value: Value) -> Upstream:
    """One upstream. Even with a fault, routes may refer to its name."""
    given = value.fields(UPSTREAM, required=("servers",)) or {}
    servers = _read_servers(given["servers"]) if "servers" in given else ()
    return Upstream(
        name,
        servers,
        connect_s=setting(given, "connect", read_timeout, None),
        response_s=setting(given, "response", read_timeout, None),
        inflight=setting(given, "inflight", _read_inflight, None),
        ca=_read_ca(given["ca"], servers) if "ca" in given else None,
        health=setting(given, "health", _read_health, None),
        ejection=setting(given, "ejection", _read_ejection, Ejection()),
    )


def _read_inflight(value: Value) -> int | None:
    return value.integer(1, MAX_INFLIGHT)


def _read_servers(value: Value) -> tuple[Server, ...]:
    items = value.items('a list of addresses such as ["http://127.0.0.1:9000"]')
    if items is not None and not items:
        value.add_fault("at least one server", "an empty list")
    servers: dict[Server, None] = {}
    for item in items or ():
        server = item.parsed(fields.read_server, "an address such as http://127.0.0.1:9000")
        if server is not None and server in servers:
            item.add_fault("each server once", f"{item.found} again")
        elif server is not None:
            servers[server] = None
    return tuple(servers)


def _read_ca(value: Value, servers: tuple[Server, ...]) -> str | None:
    path = read_path(value)
    # Without an https server the authorities are unused: probably a scheme was mistyped.
    if servers and all(server.scheme != "https" for server in servers):
        value.add_fault("no ca, as none of the servers is https")
    return path


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
    default = Ejection()
    return Ejection(
        failures=setting(given, "failures", _read_in_a_row, default.failures),
        for_s=setting(given, "for", read_timeout, default.for_s),
    )


def _read_in_a_row(value: Value) -> int | None:
    return value.integer(1, MAX_IN_A_ROW)
