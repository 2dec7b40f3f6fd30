"""The compiled policy: one immutable snapshot, swapped whole at a reload.

A request holds on to the snapshot it started with. `policies` builds these values from YAML and
answers for their being sound; nothing here checks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from gateway.domain.limits import Limit

if TYPE_CHECKING:
    from gateway.domain.networks import Network
    from gateway.domain.routes import RouteTable

Auth = Literal["key", "none"]
OnStoreFailure = Literal["local", "open", "closed"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines in seconds."""

    header_s: float = 10.0
    idle_s: float = 75.0
    connect_s: float = 2.0
    response_s: float = 30.0
    drain_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one request may bring, in bytes and fields."""

    headers_bytes: int = 32 * 1024
    header_count: int = 100
    url_bytes: int = 8 * 1024
    body_bytes: int = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Server:
    """One address of an upstream. scheme: "http" or "https"; host without brackets."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """As written in a Host header: "127.0.0.1:9000"; the scheme's own port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"
        )


@dataclass(frozen=True, slots=True)
class Upstream:
    """A service that requests are sent to, by name."""

    name: str
    servers: tuple[Server, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A tier. `limit` is named "plan"; `overrides` are its own figures for routes' limits, by name.

    An override whose name no limit of the route bears adds a limit of that (the route's) name.
    """

    name: str
    limit: Limit
    overrides: Mapping[str, Limit] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Route:
    """One entry of `routes`.

    method:   "GET", or "*" for any
    segments: the pattern's path, decoded, split at slashes: ("api", "*", "batch");
              "*" is one segment
    rest:     the pattern ends in /* or /**: all that follows matches, nothing included
    limits:   its own, in the order they are written
    cost:     how much one request counts
    json_rpc: a 429 is worded as a JSON-RPC error, as clients of an MCP route expect
    where:    "routes.yaml:3", for messages
    """

    name: str
    method: str
    segments: tuple[str, ...]
    rest: bool
    upstream: str
    auth: Auth = "key"
    scopes: tuple[str, ...] = ()
    permission: tuple[str, str] | None = None
    service: str | None = None
    plan_limits: bool = True
    limits: tuple[Limit, ...] = ()
    cost: int = 1
    json_rpc: bool = False
    where: str = ""

    @property
    def pattern(self) -> str:
        """As it is written in a policy file: "GET /api/search/*"."""
        path = "/" + "/".join((*self.segments, *(("**",) if self.rest else ())))
        return f"{self.method} {path}"


#: The limit on failed attempts per address, where the policies give none.
FAILED_AUTH = Limit("failed_auth", "rate", 60, 60_000_000, per="ip")


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything the policy files say. `hash` is of their content, `files` their names."""

    environment: str
    plans: Mapping[str, Plan]
    routes: Mapping[str, Route]
    table: RouteTable
    upstreams: Mapping[str, Upstream]
    trusted_proxies: tuple[Network, ...] = ()
    on_store_failure: OnStoreFailure = "local"
    timeouts: Timeouts = Timeouts()
    bounds: Bounds = Bounds()
    failed_auth: Limit = FAILED_AUTH
    ietf_headers: bool = False
    hash: str = ""
    files: tuple[str, ...] = ()
