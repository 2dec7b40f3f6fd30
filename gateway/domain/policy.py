"""The loaded policy: one immutable snapshot, replaced as a whole by a reload.

A request keeps the snapshot that it began with. `policies` builds these values from YAML and
validates them; they are not checked again here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from gateway.domain.headers import TRUSTED_ONLY
from gateway.domain.limits import Limit
from gateway.domain.networks import Network
from gateway.domain.route import Route
from gateway.domain.routes import RouteTable

OnStoreFailure = Literal["local", "open", "closed"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines in seconds.

    header:   a request's head, from its first byte (or the connection's start) to its last
    body:     the longest pause within a request's body
    idle:     the time between requests of a connection
    connect:  connecting to an upstream
    response: from the request's end to the first byte of the response
    write:    how long a client or an upstream may read nothing of what is sent to it
    tunnel:   the longest pause of both directions of a WebSocket
    stream:   the longest pause of an upstream within its response
    drain:    requests in progress when the gateway stops
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
    """How long to wait for the store, and how long cached keys are used without it, in seconds.

    timeout_s:   for a decision or a look-up; after it, the worker decides without the store
    keep_keys_s: how long a worker uses its cached keys while the store is unavailable
    """

    timeout_s: float = 0.05
    keep_keys_s: float = 300.0


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How much of the audit log is kept; beyond either bound, the oldest entries are dropped.

    keep_s:  how long an entry is kept, in seconds: 400 days
    entries: how many are kept: 20,000, of 1 to 1.5 KB each
    """

    keep_s: float = 400 * 86_400.0
    entries: int = 20_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest request, in bytes and fields, and the most connections.

    connections_per_address: shared by the clients of one address (of IPv6: of one network); not for
                             trusted proxies
    memory_bytes: buffers of all connections of a worker together; beyond it, the connections with
                  the largest buffers are closed
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
    """TLS for client connections, with this certificate chain and key (PEM files)."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class AdminProxy:
    """Proxies in front of the admin listener.

    trusted: their addresses; X-Forwarded-For is used only from these
    tls:     browsers connect to them over TLS
    """

    trusted: tuple[Network, ...] = ()
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """One address of an upstream. scheme: "http" or "https"; host: without brackets"""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """As written in a Host header: "127.0.0.1:9000"; the scheme's default port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"
        )


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A GET that a healthy server answers with 2xx or 3xx.

    rise, fall: consecutive successes that make it healthy, consecutive failures that make it
                unhealthy
    """

    path: str
    interval_s: float = 5.0
    timeout_s: float = 2.0
    rise: int = 2
    fall: int = 3


@dataclass(frozen=True, slots=True)
class Ejection:
    """A server is ejected for `for_s` seconds after this many consecutive failures."""

    failures: int = 5
    for_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Upstream:
    """A service that requests are forwarded to.

    connect_s, response_s: override the policy's timeouts; None: they do not
    inflight: the most concurrent requests to all its servers together, from all workers of a
              gateway; beyond it, 503. None: no limit
    ca:       PEM file of the authorities that verify its https servers; None: the system's
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
    """A plan. `limit` is named "plan"; `overrides` are its values for limits of routes, by name.

    An override with a route's name adds a limit, if the route has none of this name.
    """

    name: str
    limit: Limit
    overrides: Mapping[str, Limit] = field(default_factory=lambda: MappingProxyType({}))


#: The default limit on failed attempts per address.
FAILED_AUTH = Limit("failed_auth", "rate", 60, 60_000_000, per="ip")
#: The default limit on requests of one key to /v1/auth/verify.
AUTH_VERIFY = Limit("auth_verify", "rate", 60, 60_000_000)


@dataclass(frozen=True, slots=True)
class Policy:
    """All settings of the policy files. hash: of their content; files: their names"""

    environment: str
    plans: Mapping[str, Plan]
    routes: Mapping[str, Route]
    table: RouteTable
    upstreams: Mapping[str, Upstream]
    trusted_proxies: tuple[Network, ...] = ()
    #: Header fields that are forwarded from trusted proxies only; "X-Envoy-*" is a prefix.
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
    #: The page that describes errors, for `doc` in their bodies; None: they have no `doc`.
    error_docs: str | None = None
    tls: Tls | None = None
    #: TLS for the admin listener, and the proxies in front of it.
    admin_tls: Tls | None = None
    admin_proxy: AdminProxy = AdminProxy()
    #: Connections from trusted proxies begin with a PROXY protocol header, v1 or v2.
    proxy_protocol: bool = False
    #: IPv6 clients are counted by a prefix of this many bits, since each has a whole network.
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
