"""What connections are opened to: the addresses of an upstream's servers.

Each address of a server's name is a target of its own, with its own connections, health and
metrics. `localhost` is one target whose addresses are tried in order, since both are this machine
and many servers listen on only one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address

from gateway.domain.upstreams import Server

#: Each target has its connections and health checks, on each worker.
MOST_TARGETS = 256


@dataclass(frozen=True, slots=True)
class Target:
    """One server at one address.

    server:    its name is in the Host header and in the certificate; with the weight 1
    addresses: tried in this order; one, except for `localhost`
    weight, priority: of its SRV record; a lower priority is used first
    """

    server: Server
    addresses: tuple[str, ...]
    weight: int = 1
    priority: int = 0

    @property
    def place(self) -> Target:
        """The same without what only says how it is balanced: it keeps its connections."""
        return replace(self, weight=1, priority=0)

    @property
    def label(self) -> str:
        """For logs and metrics: "10.0.0.5:9000", or with its name "api.test:9000 (10.0.0.5)"."""
        authority = f"{self.server.authority}{self.server.path}"
        if is_one_place(self.server.host) or self.addresses == (self.server.host,):
            return authority
        return f"{authority} ({', '.join(self.addresses)})"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a look-up. ttl_s: how long it is valid"""

    targets: tuple[Target, ...]
    ttl_s: float


def targets_of(server: Server, addresses: Iterable[str]) -> tuple[Target, ...]:
    """A server's targets, always in the same order: DNS servers rotate their answers."""
    ordered = sorted(set(addresses), key=_order)
    if is_one_place(server.host):
        return (Target(server, tuple(ordered)),) if ordered else ()
    return tuple(Target(server, (address,)) for address in ordered[:MOST_TARGETS])


def place(server: Server) -> Server:
    """The server without its weight: a change of that alone changes no connection."""
    return replace(server, weight=1)


def literal(server: Server) -> tuple[Target, ...]:
    """The target of a server that is given by its address; (): it is given by a name."""
    try:
        ip_address(server.host)
    except ValueError:
        return ()
    return (Target(server, (server.host,)),)


def is_one_place(host: str) -> bool:
    """Is it this machine by definition? RFC 6761, 6.3: names ending in localhost are."""
    name = host.removesuffix(".").lower()
    return name == "localhost" or name.endswith(".localhost")


def _order(address: str) -> tuple[int, int]:
    read = ip_address(address)
    return read.version, int(read)
