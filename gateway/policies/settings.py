"""Everything beside plans and routes: the gateway's own settings, and the upstreams."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.domain.limits import Limit
from gateway.domain.networks import Network
from gateway.domain.policy import FAILED_AUTH, Bounds, OnStoreFailure, Server, Timeouts, Upstream
from gateway.policies import fields
from gateway.policies.fields import ENVIRONMENT
from gateway.policies.limits import read_rate_and_burst
from gateway.policies.values import Value

TIMEOUTS: Final = ("header", "idle", "connect", "response", "drain")
BOUNDS: Final = ("headers", "header_count", "url", "body")
_MAX_TIMEOUT_S: Final = 86_400.0
#: What a bound in bytes may be at most. A body is relayed, not kept, so it may be of any size.
_MAX_BYTES: Final = 2**53


def read_environment(value: Value) -> str | None:
    return value.spelled(
        ENVIRONMENT,
        "up to 32 lower-case letters, digits and '-', beginning with a letter, such as production",
    )


def read_trusted_proxies(value: Value) -> tuple[Network, ...] | None:
    items = value.items("a list of addresses and CIDR ranges")
    if items is None:
        return None
    read = [item.parsed(fields.read_network) for item in items]
    return tuple(network for network in read if network is not None)


def read_on_store_failure(value: Value) -> OnStoreFailure | None:
    match value.choice("local", "open", "closed"):
        case "local":
            return "local"
        case "open":
            return "open"
        case "closed":
            return "closed"
        case _:
            return None


def read_timeouts(value: Value) -> Timeouts | None:
    given = value.fields(TIMEOUTS)
    if given is None:
        return None
    read = {f"{key}_s": item.parsed(_timeout, "a duration") for key, item in given.items()}
    return Timeouts(**{key: seconds for key, seconds in read.items() if seconds is not None})


def _timeout(text: str) -> float:
    seconds = fields.read_duration(text)
    if not 0 < seconds <= _MAX_TIMEOUT_S:
        raise ValueError("a duration above 0s and up to 1d")
    return seconds


def read_bounds(value: Value) -> Bounds | None:
    given = value.fields(BOUNDS)
    if given is None:
        return None
    read: dict[str, int | None] = {}
    for key, item in given.items():
        if key == "header_count":
            read[key] = item.integer(1, 10_000)
        else:
            read[f"{key}_bytes"] = _size(item)
    return Bounds(**{key: number for key, number in read.items() if number is not None})


def _size(value: Value) -> int | None:
    if not value.is_text:
        return value.integer(1, _MAX_BYTES)
    size = value.parsed(fields.read_size)
    if size is not None and not 1 <= size <= _MAX_BYTES:
        value.complain("at least one byte, and at most 8192 TiB")
        return None
    return size


def read_failed_auth(value: Value) -> Limit | None:
    given = value.fields(("rate", "burst"), required=("rate",))
    if given is None or "rate" not in given:
        return None
    limit = read_rate_and_burst(given, FAILED_AUTH.name)
    return None if limit is None else replace(limit, per="ip")


def read_ietf_headers(value: Value) -> bool | None:
    given = value.fields(("ietf",))
    return given["ietf"].flag() if given and "ietf" in given else None


def read_upstream(name: str, value: Value) -> Upstream:
    """One upstream; with a fault in it, still one that routes may name."""
    given = value.fields(("servers",), required=("servers",))
    if given is None or "servers" not in given:
        return Upstream(name, ())
    items = given["servers"].items('a list of addresses such as ["http://127.0.0.1:9000"]')
    if items is not None and not items:
        given["servers"].complain("at least one server", "an empty list")
    servers: list[Server] = []
    for item in items or ():
        server = item.parsed(fields.read_server, "an address such as http://127.0.0.1:9000")
        if server is not None and server in servers:
            item.complain("each server once", f"{item.found} again")
        elif server is not None:
            servers.append(server)
    return Upstream(name, tuple(servers))
