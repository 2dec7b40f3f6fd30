"""The compiled policy: one immutable snapshot, swapped whole at a reload.

A request holds on to the snapshot it started with. `policies` builds these values from YAML and
answers for their being sound; nothing here checks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from gateway.domain.headers import TRUSTED_ONLY
from gateway.domain.limits import Limit

if TYPE_CHECKING:
    from gateway.domain.networks import Network
    from gateway.domain.routes import RouteTable

Auth = Literal["key", "none"]
OnStoreFailure = Literal["local", "open", "closed"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines in seconds.

    header:   a request's head, from its first byte (or the connection's start) to its last
    body:     silence within a request's body
    idle:     a connection between requests
    connect:  a connection to an upstream
    response: from the request's end to the first byte of its answer
    write:    a client, or an upstream, that takes nothing of what is sent to it
    tunnel:   silence in both directions of a WebSocket
    stream:   an upstream's silence within its answer
    drain:    what is under way when the gateway is to end
    """

    header_s: float = 10.0
    body_s: float = 10.0
    idle_s: float = 75.0
    connect_s: float = 2.0
    response_s: float = 30.0
    write_s: float = 30.0
    tunnel_s: float = 300.0
    stream_s: float = 300.0
    drain_s: float = 30.0


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How far the store is relied on, in seconds.

    timeout_s:   for a decision or a look-up; what takes longer is answered without the store
    keep_keys_s: how long a worker goes by the keys that it knows while the store is away
    """

    timeout_s: float = 0.05
    keep_keys_s: float = 300.0


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How much of the audit log is kept; beyond either, the oldest entries are dropped.

    keep_s:  for how long an entry is kept, in seconds: 400 days
    entries: how many are kept: 20,000, of 1 to 1.5 KB each
    """

    keep_s: float = 400 * 86_400.0
    entries: int = 20_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one request may bring, in bytes and fields; and how many connections there may be.

    connections_per_address: clients behind one address (of IPv6: one network), or behind one proxy
                             that is not trusted, share it; trusted proxies are not held to it
    memory_bytes: what is kept for all connections of a worker together; beyond, those that hold
                  most are cut off
    """

    headers_bytes: int = 32 * 1024
    header_count: int = 100
    url_bytes: int = 8 * 1024
    body_bytes: int = 10 * 1024 * 1024
    connections: int = 20_000
    connections_per_address: int = 16_000
    memory_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Tls:
    """Client connections are TLS, by this certificate chain and key (PEM files)."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class AdminProxy:
    """Proxies in front of the admin listener.

    trusted: their addresses; only their X-Forwarded-For is believed there
    tls:     browsers reach them over TLS
    """

    trusted: tuple[Network, ...] = ()
    tls: bool = False


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
class HealthCheck:
    """A GET that a server in health answers with 2xx or 3xx.

    rise, fall: so many answers in a row, good or bad, change what is thought of it
    """

    path: str
    interval_s: float = 5.0
    timeout_s: float = 2.0
    rise: int = 2
    fall: int = 3


@dataclass(frozen=True, slots=True)
class Ejection:
    """A server is left out for `for_s` seconds after so many failures in a row."""

    failures: int = 5
    for_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Upstream:
    """A service that requests are sent to, by name.

    connect_s, response_s: in place of the policy's timeouts; None: those
    inflight: most exchanges at once on all its servers together, of all workers of a gateway;
              beyond, 503. None: no limit
    ca:       PEM file of the authorities that its https servers are checked by; None: the system's
    """

    name: str
    servers: tuple[Server, ...]
    connect_s: float | None = None
    response_s: float | None = None
    inflight: int | None = None
    ca: str | None = None
    health: HealthCheck | None = None
    ejection: Ejection = Ejection()


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
    case_sensitive: its upstream tells paths apart that differ in letter case only
    keeps_slashes: its upstream takes an encoded slash for a part of the segment it stands in
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
    case_sensitive: bool = False
    keeps_slashes: bool = False
    where: str = ""

    @property
    def pattern(self) -> str:
        """As it is written in a policy file: "GET /api/search/*"."""
        path = "/" + "/".join((*self.segments, *(("**",) if self.rest else ())))
        return f"{self.method} {path}"


#: The limit on failed attempts per address, where the policies give none.
FAILED_AUTH = Limit("failed_auth", "rate", 60, 60_000_000, per="ip")
#: How often one key may ask /v1/auth/verify, where the policies do not say.
AUTH_VERIFY = Limit("auth_verify", "rate", 60, 60_000_000)


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything the policy files say. `hash` is of their content, `files` their names."""

    environment: str
    plans: Mapping[str, Plan]
    routes: Mapping[str, Route]
    table: RouteTable
    upstreams: Mapping[str, Upstream]
    trusted_proxies: tuple[Network, ...] = ()
    #: Header fields that go on from trusted proxies only; "X-Envoy-*" is all that begin so.
    trusted_only: tuple[str, ...] = TRUSTED_ONLY
    on_store_failure: OnStoreFailure = "local"
    store: StoreSettings = StoreSettings()
    audit: AuditSettings = AuditSettings()
    timeouts: Timeouts = Timeouts()
    bounds: Bounds = Bounds()
    failed_auth: Limit = FAILED_AUTH
    auth_verify: Limit = AUTH_VERIFY
    ietf_headers: bool = False
    #: X-RateLimit-Fallback on answers that were decided without the store.
    fallback_header: bool = False
    #: The value of Strict-Transport-Security on every response; None: the field is not sent.
    hsts: str | None = None
    tls: Tls | None = None
    #: The same for the admin listener, and the proxies in front of it.
    admin_tls: Tls | None = None
    admin_proxy: AdminProxy = AdminProxy()
    #: Connections from trusted proxies begin with a PROXY protocol header, v1 or v2.
    proxy_protocol: bool = False
    #: IPv6 clients are limited by a prefix of so many bits: one client has a whole network.
    ipv6_prefix: int = 64
    hash: str = ""
    files: tuple[str, ...] = ()

    @property
    def counted_headers(self) -> frozenset[str]:
        """The headers that limits count by, in lower case."""
        limits = (limit for route in self.routes.values() for limit in route.limits)
        return frozenset(
            limit.per.removeprefix("header:") for limit in limits if limit.per.startswith("header:")
        )
