"""Connections to upstream servers: kept, chosen, opened, thrown away."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway import tasks
from gateway.domain.policy import Policy, Server, Upstream
from gateway.errors import UPSTREAM_UNREACHABLE
from gateway.observe.metrics import Metrics
from gateway.proxy.upstream import UpstreamConnection

if TYPE_CHECKING:
    from gateway.proxy.exchange import Exchange

log = logging.getLogger("gateway.upstream")

#: Kept idle for one server. More than a worker has in flight in one moment is of no use.
MOST_IDLE = 256
#: Below nginx's 60 and 75 seconds, so that it is rarely the upstream who closes first.
IDLE_S = 50.0


class ServerPool:
    """The connections to one server. The last used is used next; the others may then age out."""

    def __init__(self, name: str, server: Server, metrics: Metrics) -> None:
        self.name = name
        self.server = server
        self.metrics = metrics
        self.idle: list[UpstreamConnection] = []
        self.busy = 0
        self._tls = ssl.create_default_context() if server.scheme == "https" else None

    def take(self) -> UpstreamConnection | None:
        """An idle connection, to be used now."""
        while self.idle:
            connection = self.idle.pop()
            if not connection.transport.is_closing():
                self.busy += 1
                return connection
        return None

    async def connect(self, timeout_s: float) -> UpstreamConnection:
        """A new connection, to be used now. Raises OSError, which TimeoutError is one of."""
        self.busy += 1
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: UpstreamConnection(self),
                    self.server.host,
                    self.server.port,
                    ssl=self._tls,
                )
        except BaseException:
            self.busy -= 1
            raise
        self.metrics.connections("upstream", "open", 1)
        return connection

    def give_back(self, connection: UpstreamConnection, reusable: bool) -> None:
        """The exchange on it is over."""
        self.busy -= 1
        if reusable and len(self.idle) < MOST_IDLE:
            connection.idle_since = asyncio.get_running_loop().time()
            self.idle.append(connection)
        else:
            connection.close()

    def forget(self, connection: UpstreamConnection) -> None:
        """It closed; it may have been idle."""
        self.metrics.connections("upstream", "open", -1)
        if connection in self.idle:
            self.idle.remove(connection)

    def close_idle(self, before: float) -> None:
        """Close what has been idle since before this moment; the oldest come first."""
        while self.idle and self.idle[0].idle_since < before:
            self.idle.pop(0).close()


class Pools:
    """The servers of every upstream of the policy."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._by_server: dict[tuple[str, Server], ServerPool] = {}
        self._upstreams: dict[str, tuple[ServerPool, ...]] = {}
        self._connect_s = 0.0

    def use(self, policy: Policy) -> None:
        """Take up a policy: keep the servers that stay, let the others run dry."""
        self._connect_s = policy.timeouts.connect_s
        wanted = {
            (upstream.name, server): None
            for upstream in policy.upstreams.values()
            for server in upstream.servers
        }
        for gone in self._by_server.keys() - wanted.keys():
            self._by_server.pop(gone).close_idle(float("inf"))
        for name, server in wanted:
            if (name, server) not in self._by_server:
                self._by_server[name, server] = ServerPool(name, server, self.metrics)
        self._upstreams = {
            upstream.name: tuple(self._servers(upstream)) for upstream in policy.upstreams.values()
        }

    def serve(self, exchange: Exchange) -> None:
        """Give the exchange a connection, at once if one is idle; `exchange.connected` takes it."""
        pools = self._upstreams[exchange.route.upstream]
        pool = pools[0] if len(pools) == 1 else min(pools, key=lambda one: one.busy)
        if (connection := pool.take()) is not None:
            exchange.connected(connection)
        else:
            tasks.spawn(self._connect(exchange, pools), "connect")

    def connect_afresh(self, exchange: Exchange) -> None:
        """Give it a connection that was never used: its request is sent a second time."""
        tasks.spawn(self._connect(exchange, self._upstreams[exchange.route.upstream]), "connect")

    def close_idle(self, before: float) -> None:
        """Close what has been idle since before this moment (the loop's clock)."""
        for pool in self._by_server.values():
            pool.close_idle(before)

    def _servers(self, upstream: Upstream) -> Iterable[ServerPool]:
        return (self._by_server[upstream.name, server] for server in upstream.servers)

    async def _connect(self, exchange: Exchange, pools: tuple[ServerPool, ...]) -> None:
        """Try each server once, the least busy first: nothing has been sent, so nothing is lost."""
        for pool in sorted(pools, key=lambda one: one.busy):
            try:
                connection = await pool.connect(self._connect_s)
            except OSError as error:
                log.warning(
                    "upstream %s: no connection to %s: %s",
                    pool.name,
                    pool.server.authority,
                    error or type(error).__name__,
                )
                continue
            if exchange.is_over:
                pool.give_back(connection, reusable=True)
            else:
                exchange.connected(connection)
            return
        if not exchange.is_over:
            exchange.fail(UPSTREAM_UNREACHABLE)
