"""The servers of the upstreams: chooses one for a request, and finds a connection to it."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from gateway import tasks
from gateway.domain.balance import choose, less_busy, probe
from gateway.domain.policy import Policy, Server, Upstream
from gateway.errors import UPSTREAM_BUSY, UPSTREAM_UNHEALTHY, UPSTREAM_UNREACHABLE, Refusal
from gateway.observe.log_throttle import LogThrottle
from gateway.observe.metrics import Metrics
from gateway.proxy.dial import Resolve, resolve, tls_context
from gateway.proxy.inflight import Count, Inflight
from gateway.proxy.server_pool import CountedServerPool, ServerPool
from gateway.proxy.upstream_connection import UpstreamConnection, UpstreamExchange

log = logging.getLogger("gateway.upstream")

#: Below nginx's 60 and 75 seconds, so that the upstream rarely closes first.
IDLE_S: Final = 50.0

#: Errors of this machine, which are no failures of a server.
_LOCAL_ERRORS: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
)


class Admitted(UpstreamExchange, Protocol):
    """An exchange that waits for an upstream connection."""

    @property
    def is_over(self) -> bool:
        """It no longer needs one."""
        ...

    def connected(self, upstream: UpstreamConnection) -> None:
        """Continue with this connection."""
        ...

    def fail(self, refusal: Refusal) -> None:
        """End the exchange: no connection is available."""
        ...

    def failed(self) -> None:
        """Handle an unexpected exception."""
        ...


class UpstreamPool:
    """The servers of one upstream, in the policy's order.

    count: of requests in flight, on all workers; None: they have no limit
    """

    def __init__(
        self,
        upstream: Upstream,
        pools: tuple[ServerPool, ...],
        count: Count | None,
        below: Callable[[int], int],
    ) -> None:
        self.pools = pools
        self.ejection = upstream.ejection
        self.inflight = upstream.inflight
        self._count = count
        self._below = below
        self.health_changed()

    def health_changed(self) -> None:
        """Note that the health of one has changed."""
        self._all_healthy = all(pool.health.is_healthy for pool in self.pools)
        #: The only server, if it is healthy.
        self.only = self.pools[0] if self._all_healthy and len(self.pools) == 1 else None

    def is_last_healthy(self, pool: ServerPool) -> bool:
        """Is no other one healthy?"""
        return not any(other.health.is_healthy for other in self.pools if other is not pool)

    @property
    def is_full(self) -> bool:
        """Are as many requests in flight as the limit allows?"""
        most, count = self.inflight, self._count
        return most is not None and count is not None and count.total() >= most

    def choose(self) -> ServerPool | None:
        """Choose the server for the next request; None: none is healthy."""
        pools = self.pools
        if self._all_healthy:
            return pools[less_busy([pool.busy for pool in pools], self._below)]
        now = asyncio.get_running_loop().time()
        at = choose(
            [pool.health for pool in pools], [pool.busy for pool in pools], now, self._below
        )
        if at is None:
            return None
        if pools[at].health.out_until:
            probe(pools[at].health, self.ejection, now)
        return pools[at]

    def next_untried(self, tried: list[ServerPool]) -> ServerPool | None:
        """The least busy of the healthy servers that were not tried."""
        left = [pool for pool in self.pools if pool.health.is_healthy and pool not in tried]
        return min(left, key=lambda pool: pool.busy, default=None)


class UpstreamPools:
    """The servers of every upstream of the policy.

    resolve: looks a server's name up; below(n): a random number from 0 to n - 1
    inflight: counts requests in flight over all workers; by default, of this one alone
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        resolve: Resolve = resolve,
        below: Callable[[int], int] = random.randrange,
        inflight: Inflight | None = None,
    ) -> None:
        self.metrics = metrics
        self._resolve = resolve
        self._below = below
        self._inflight = Inflight.alone() if inflight is None else inflight
        self._by_server: dict[tuple[str, Server], ServerPool] = {}
        self._upstreams: dict[str, UpstreamPool] = {}
        self._contexts: dict[str | None, ssl.SSLContext] = {}
        self._ending: list[asyncio.Task[None]] = []
        self._throttle = LogThrottle()

    # -- life -------------------------------------------------------------------------------------
    def use(self, policy: Policy) -> None:
        """Apply a policy: keep the servers that stay, remove the others.

        Call it within the event loop: health checks begin here. Files of authorities are read
        again; the system's, which takes 50 ms, are read once.
        """
        wanted = {
            (upstream.name, server): None
            for upstream in policy.upstreams.values()
            for server in upstream.servers
        }
        limited = [one.name for one in policy.upstreams.values() if one.inflight is not None]
        counts = self._inflight.use(limited)
        for gone in [
            at
            for at, pool in self._by_server.items()
            if at not in wanted or pool.count is not counts.get(pool.name)
        ]:
            self._retire(self._by_server.pop(gone))
        for name, server in wanted:
            if (name, server) not in self._by_server:
                self._by_server[name, server] = self._pool(name, server, counts.get(name))
        self._contexts = {ca: tls for ca, tls in self._contexts.items() if ca is None}
        self._upstreams = {}
        for upstream in policy.upstreams.values():
            pools = tuple(self._by_server[upstream.name, server] for server in upstream.servers)
            servers = self._upstreams[upstream.name] = UpstreamPool(
                upstream, pools, counts.get(upstream.name), self._below
            )
            for pool in pools:
                is_tls = pool.server.scheme == "https"
                tls = self._context(upstream.ca) if is_tls else None
                pool.use(servers, upstream, policy.timeouts, tls)

    async def stop(self) -> None:
        """End health checks and idle connections; exchanges keep their connections."""
        while self._by_server:
            self._retire(self._by_server.popitem()[1])
        self._upstreams = {}
        ending, self._ending = self._ending, []
        if ending:
            await asyncio.wait(ending)

    def close_idle(self, before: float) -> None:
        """Close connections that have been idle since before this time, by the loop's clock."""
        for pool in self._by_server.values():
            pool.close_idle(before)

    def _pool(self, name: str, server: Server, count: Count | None) -> ServerPool:
        if count is None:
            return ServerPool(name, server, self.metrics, self._resolve)
        return CountedServerPool(name, server, self.metrics, self._resolve, count)

    def _context(self, ca: str | None) -> ssl.SSLContext:
        context = self._contexts.get(ca)
        if context is None:
            context = self._contexts[ca] = tls_context(ca)
        return context

    def _retire(self, pool: ServerPool) -> None:
        watch = pool.retire()
        if watch is not None:
            self._ending = [task for task in self._ending if not task.done()] + [watch]

    # -- at each request --------------------------------------------------------------------------
    def serve(self, upstream: str, exchange: Admitted) -> None:
        """Call `exchange.connected` with a connection, at once if one is idle."""
        servers = self._upstreams.get(upstream)
        if servers is None:
            # A reload removed the upstream while the request was decided.
            exchange.fail(UPSTREAM_UNREACHABLE)
        elif servers.inflight is not None and servers.is_full:
            exchange.fail(UPSTREAM_BUSY)
        elif (pool := servers.only or servers.choose()) is None:
            exchange.fail(UPSTREAM_UNHEALTHY)
        elif (connection := pool.take()) is not None:
            exchange.connected(connection)
        else:
            self._connect_soon(exchange, servers, pool)

    def connect_afresh(self, upstream: str, exchange: Admitted) -> None:
        """Give it a new connection: its request is sent a second time."""
        servers = self._upstreams.get(upstream)
        if servers is None:
            exchange.fail(UPSTREAM_UNREACHABLE)
        elif (pool := servers.choose()) is None:
            exchange.fail(UPSTREAM_UNHEALTHY)
        else:
            self._connect_soon(exchange, servers, pool)

    def _connect_soon(self, exchange: Admitted, servers: UpstreamPool, pool: ServerPool) -> None:
        # Counted before the connection is open, so that a burst is spread over the servers.
        pool.reserve()
        tasks.spawn(self._connect(exchange, servers, pool), "connect")

    async def _connect(self, exchange: Admitted, servers: UpstreamPool, first: ServerPool) -> None:
        """Try each healthy server once: nothing was sent yet, so no request is sent twice."""
        try:
            await self._try_each(exchange, servers, first)
        except Exception:
            if not exchange.is_over:
                exchange.failed()

    async def _try_each(self, exchange: Admitted, servers: UpstreamPool, first: ServerPool) -> None:
        tried: list[ServerPool] = []
        pool: ServerPool | None = first
        while pool is not None:
            connection = await self._try(pool)
            if connection is not None:
                if exchange.is_over:
                    pool.give_back(connection, reusable=True)
                else:
                    exchange.connected(connection)
                return
            tried.append(pool)
            pool = None if exchange.is_over else servers.next_untried(tried)
            if pool is not None:
                pool.reserve()
        if not exchange.is_over:
            exchange.fail(UPSTREAM_UNREACHABLE)

    async def _try(self, pool: ServerPool) -> UpstreamConnection | None:
        try:
            return await pool.connect()
        except OSError as error:
            self._log_failure(pool, error)
            if error.errno not in _LOCAL_ERRORS:
                pool.failed()
            return None

    def _log_failure(self, pool: ServerPool, error: OSError) -> None:
        """Log at most one line a second for each server."""
        now_s = asyncio.get_running_loop().time()
        suppressed = self._throttle.suppressed((pool.name, pool.authority), now_s)
        if suppressed is not None:
            log.warning(
                "upstream %s: no connection to %s: %s%s",
                *(pool.name, pool.authority, error or type(error).__name__),
                f" (and {suppressed} times before)" if suppressed else "",
            )
