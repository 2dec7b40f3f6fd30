"""The loaded policy: one immutable snapshot, replaced as a whole by a reload.

A request keeps the snapshot that it began with. `policies` builds these values from YAML and
validates them; they are not checked again here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from gateway.domain.access_log import AccessLogFormat
from gateway.domain.address_lists import AccessList
from gateway.domain.cors import Cors
from gateway.domain.costs import MEDIA_FIELDS, HeaderCost
from gateway.domain.error_pages import ErrorPages
from gateway.domain.headers import ACCEPT, CROSS_ORIGIN, TRUSTED_ONLY
from gateway.domain.hosts import HostTables
from gateway.domain.limits import Limit
from gateway.domain.maintenance import Maintenance
from gateway.domain.mcp.agreement import FIELDS as MCP_FIELDS
from gateway.domain.networks import Network
from gateway.domain.policy_files import Source
from gateway.domain.route import Route
from gateway.domain.routes import RouteTable
from gateway.domain.tracing import Tracing
from gateway.domain.upstreams import Upstream
from gateway.domain.webhooks.settings import WebhookSettings

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
class CertificateFiles:
    """A certificate chain and its key: PEM files."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class ClientCertificates:
    """Certificates that clients present.

    ca:       PEM file of the authorities that verify them
    required: a client without one gets no connection
    keys:     names in certificates, as `certificates.peer_names` writes them, each with the id of
              the key that such a client has if it sends none
    """

    ca: str
    required: bool = True
    keys: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS for client connections.

    certificate, key: PEM files of the certificate for clients that ask for no name, or another one
    certificates:     further ones, for clients that ask for one of their names
    min_version:      the lowest version: "1.2" or "1.3"
    ciphers:          those of TLS 1.2, in OpenSSL's format; None: the defaults
    curves:           for the key exchange, the preferred one first; (): the defaults
    client_certificates: None: clients are not asked for any
    """

    certificate: str
    key: str
    certificates: tuple[CertificateFiles, ...] = ()
    min_version: str = "1.2"
    ciphers: str | None = None
    curves: tuple[str, ...] = ()
    client_certificates: ClientCertificates | None = None

    @property
    def pairs(self) -> tuple[CertificateFiles, ...]:
        """All of them; the first is the default."""
        return CertificateFiles(self.certificate, self.key), *self.certificates

    @property
    def files(self) -> tuple[str, ...]:
        """All files that are read, and read again when they change."""
        files = [file for pair in self.pairs for file in (pair.certificate, pair.key)]
        if self.client_certificates is not None:
            files.append(self.client_certificates.ca)
        return tuple(files)


@dataclass(frozen=True, slots=True)
class AdminProxy:
    """Proxies in front of the admin listener.

    trusted: their addresses; X-Forwarded-For is used only from these
    tls:     browsers connect to them over TLS
    """

    trusted: tuple[Network, ...] = ()
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan.

    limit:     its rate, named "plan"
    overrides: its values for limits of routes, by name. One with a route's name adds a limit, if
               the route has none of this name
    more:      its further limits, with names that no route and no route's limit has
    was:       its earlier names, which keys may still have
    """

    name: str
    limit: Limit
    overrides: Mapping[str, Limit] = field(default_factory=lambda: MappingProxyType({}))
    more: tuple[Limit, ...] = ()
    was: tuple[str, ...] = ()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """All its limits; the first is `limit`."""
        return self.limit, *self.more


def with_kept_plans(policy: Policy, previous: Policy) -> Policy:
    """The policy with plans of the previous one that it does not have.

    Keys may still have them. A plan that is missing in the files would refuse their requests.
    """
    known = {**previous.kept_plans, **previous.plans}
    kept = {name: plan for name, plan in known.items() if policy.plan(name) is None}
    return replace(policy, kept_plans=MappingProxyType(kept)) if kept else policy


#: The default limit on failed attempts per address.
FAILED_AUTH = Limit("failed_auth", "rate", 60, 60_000_000, per="ip")
#: The default limit on requests of one key to /v1/auth/verify.
AUTH_VERIFY = Limit("auth_verify", "rate", 60, 60_000_000)


@dataclass(frozen=True, slots=True)
class Policy:
    """All settings of the policy files. hash: of their content; files: their names

    warnings: what is probably a mistake, in words with file and line
    """

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
    #: Which addresses may send requests, to any route; None: all.
    access: AccessList | None = None
    #: What the access log writes of each request.
    access_log: AccessLogFormat = field(default_factory=AccessLogFormat)
    #: Spans of requests are exported; None: they are not, and trace context passes untouched.
    tracing: Tracing | None = None
    #: Plans that are no longer in the files, for keys that still have them.
    kept_plans: Mapping[str, Plan] = field(default_factory=lambda: MappingProxyType({}))
    #: Of routes without their own, and of requests that have none of these routes.
    cors: Cors | None = None
    #: Bodies of refusals in place of the gateway's.
    error_pages: ErrorPages | None = None
    #: Of routes without their own.
    maintenance: Maintenance | None = None
    #: They seal the session ids of MCP servers, the first one new ones; (): the gateway's own does.
    mcp_secrets: tuple[bytes, ...] = field(default=(), repr=False)
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)
    hash: str = ""
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    #: Other files that were read with them, such as lists of addresses.
    used: tuple[str, ...] = ()
    #: What it was loaded from; None: not from files.
    source: Source | None = field(default=None, compare=False, repr=False)
    #: The tables of routes by host; `table` is then the one of hosts that no route names. None: no
    #: route names one.
    hosts: HostTables | None = None

    def table_at(self, host: bytes) -> RouteTable:
        """The table of routes for a Host header; b"": there is none."""
        return self.table if self.hosts is None else self.hosts.table(host)

    def tables_of(self, route: Route) -> tuple[RouteTable, ...]:
        """The tables that have a route."""
        if self.hosts is None:
            return (self.table,)
        return tuple(dict.fromkeys(map(self.hosts.of, route.hosts or ("",))))

    def plan(self, name: str) -> Plan | None:
        """The plan of keys that have this name of a plan, which may be an earlier one."""
        return self.plans.get(name) or next(
            (
                plan
                for plans in (self.plans, self.kept_plans)
                for plan in plans.values()
                if name == plan.name or name in plan.was
            ),
            None,
        )

    def plan_names(self, name: str) -> frozenset[str]:
        """All names of the plan that has, or had, this name; only this one if there is none."""
        plan = self.plan(name)
        if plan is None:
            return frozenset({name})
        return frozenset(each for each in (plan.name, *plan.was) if self.plan(each) is plan)

    @property
    def certificates(self) -> tuple[tuple[str, CertificateFiles], ...]:
        """All certificates that the gateway itself has, each with the name of its setting.

        Those for its clients, then those with which it identifies itself to upstreams.
        """
        settings = (("tls", self.tls), ("admin_tls", self.admin_tls))
        own = [(name, pair) for name, tls in settings if tls for pair in tls.pairs]
        for upstream in self.upstreams.values():
            if upstream.client_certificate is not None and upstream.client_key is not None:
                pair = CertificateFiles(upstream.client_certificate, upstream.client_key)
                own.append((f"upstreams.{upstream.name}", pair))
        return tuple(own)

    @property
    def contents(self) -> tuple[object, ...]:
        """What was read from the files in `used`, to be compared: it is not in the hash."""
        routes = self.routes.values()
        by_route = tuple((route.respond, route.verification) for route in routes)
        return self.access_lists, self.error_pages, by_route, self.mcp_secrets

    @property
    def access_lists(self) -> tuple[AccessList, ...]:
        """All lists of addresses, of the policy and of its routes."""
        lists = (self.access, *(route.access for route in self.routes.values()))
        return tuple(one for one in lists if one is not None)

    @property
    def has_mcp(self) -> bool:
        """Is any route in front of an MCP server?"""
        return any(route.mcp is not None for route in self.routes.values())

    @property
    def counted_headers(self) -> frozenset[str]:
        """The headers by which limits, costs, canaries, balancing, CORS and error pages decide.

        Also those by which an upstream chooses how to read a body whose elements are counted.
        """
        limits = [limit for route in self.routes.values() for limit in route.limits]
        for plan in (*self.plans.values(), *self.kept_plans.values()):
            limits += plan.limits
        names = {
            limit.per.removeprefix("header:") for limit in limits if limit.per.startswith("header:")
        }
        for route in self.routes.values():
            if isinstance(route.costing, HeaderCost):
                names.add(route.costing.name)
            elif route.costing is not None:
                names.update(MEDIA_FIELDS)
            if route.canary is not None:
                names.update(route.canary.headers)
            if route.mcp is not None:
                names.update(MCP_FIELDS)
            if route.verification is not None:
                names.update(route.verification.headers)
        if self.cors or any(route.cors for route in self.routes.values()):
            names.update(CROSS_ORIGIN)
        for upstream in self.upstreams.values():
            by = upstream.balance.by
            if by is not None and by.startswith("header:"):
                names.add(by.removeprefix("header:"))
        if self.error_pages is not None and self.error_pages.html is not None:
            names.add(ACCEPT)
        return frozenset(names)
