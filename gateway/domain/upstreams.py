"""The upstreams of a policy: their servers, and how these are checked, ejected and chosen.

Plain values, as `policies.upstreams` reads them; `balance`, `breaker` and `balancing` have the
rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

#: The upstream that every policy has: the application of the couriers.
WEBHOOKS: Final = "webhooks"


@dataclass(frozen=True, slots=True)
class Server:
    """One server of an upstream.

    scheme: "http" or "https"
    host:   without brackets
    weight: how many requests it gets, in proportion to those of other servers
    path:   its base path, which all paths that are sent to it begin with: "/v1"; "": none
    srv:    the host is the name of SRV records, which name its servers; the port has no meaning
    asked:  the Host that it gets: "api.internal:8443"; "": the client's
    lines:  field lines that it gets beside those of the request; they may have a secret
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    weight: int = 1
    srv: bool = False
    asked: str = ""
    lines: bytes = field(default=b"", repr=False)

    def at(self, host: str, port: int) -> Server:
        """The server that a record of this one's name names. It has the same settings."""
        found = replace(self, host=host, port=port, weight=1, srv=False)
        return replace(found, asked=found.authority) if self.asked == self.authority else found

    @property
    def tls_name(self) -> str:
        """The name that its certificate must have, and that a TLS handshake asks for (SNI)."""
        return self.host if self.asked in ("", self.authority) else self.asked.partition(":")[0]

    @property
    def url(self) -> str:
        """As in a policy file: "http://127.0.0.1:9000/v1"."""
        return f"{'srv+' if self.srv else ''}{self.scheme}://{self.authority}{self.path}"

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
    """When a server is ejected, for `for_s` seconds.

    failures:       after this many consecutive failures
    errors_percent: if this share of its answers in the window are 5xx, or failures; None: never
    latency_s:      if more than half of them took longer; None: never
    window_s:       the time over which answers are counted
    least:          the fewest answers in the window for a decision
    """

    failures: int = 5
    for_s: float = 10.0
    errors_percent: float | None = None
    latency_s: float | None = None
    window_s: float = 10.0
    least: int = 20

    @property
    def counts_answers(self) -> bool:
        """Do answers matter, too?"""
        return self.errors_percent is not None or self.latency_s is not None


class Trust(NamedTuple):
    """The files of TLS with an upstream: whom we trust, and who we are."""

    ca: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Those that there are."""
        return tuple(file for file in self if file is not None)


@dataclass(frozen=True, slots=True)
class Balance:
    """How the server of a request is chosen.

    rule: one of `balancing.rules`
    by:   what the rule goes by: key, account, ip or header:NAME; None: nothing
    """

    rule: str = "least_busy"
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Upstream:
    """A service that requests are forwarded to.

    connect_s, response_s: override the policy's timeouts; None: they do not
    inflight: the most concurrent requests to all its servers together, from all workers of a
              gateway; beyond it, 503. None: no limit
    ca:       PEM file of the authorities that verify its https servers; None: the system's
    host:     which Host its servers get: "upstream", "client" or a name; None: "upstream" if they
              are https, else "client". `Server.asked` follows from it
    client_certificate, client_key: PEM files with which we identify ourselves to them; None: we do
              not
    """

    name: str
    servers: tuple[Server, ...]
    connect_s: float | None = None
    response_s: float | None = None
    inflight: int | None = None
    ca: str | None = None
    health: HealthCheck | None = None
    ejection: Ejection = Ejection()
    balance: Balance = Balance()
    host: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None

    @property
    def trust(self) -> Trust:
        """Its files of TLS."""
        return Trust(self.ca, self.client_certificate, self.client_key)


def with_couriers(upstreams: Mapping[str, Upstream], server: Server | None) -> dict[str, Upstream]:
    """The same, where the couriers' application is at this server; None: there are no couriers."""
    found = dict(upstreams)
    if WEBHOOKS in found:
        found[WEBHOOKS] = Upstream(WEBHOOKS, () if server is None else (server,))
    return found
