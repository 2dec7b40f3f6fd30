"""The servers of the upstreams: chooses one for a request, and finds a connection to it."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, Protocol

from gateway import tasks
from gateway.domain.balance import due, probe
from gateway.domain.balancing.rule import Asking
from gateway.domain.balancing.rules import RULES
from gateway.domain.policy import Policy, Timeouts
from gateway.domain.targets import Target, place
from gateway.domain.upstreams import Server, Trust, Upstream
from gateway.errors import (
    NO_COURIERS,
    UPSTREAM_BUSY,
    UPSTREAM_UNHEALTHY,
    UPSTREAM_UNREACHABLE,
    Refusal,
)
from gateway.observe.log_throttle import LogThrottle
from gateway.observe.metrics import Metrics
from gateway.proxy.dial import tls_context
from gateway.proxy.inflight import Count, Inflight
from gateway.proxy.lookups import LookUp, Lookups
from gateway.proxy.resolver import Resolver
from gateway.proxy.server_pool import CountedServerPool, ServerPool, connect_timeout
from gateway.proxy.upstream_connection import UpstreamConnection, UpstreamExchange

log = logging.getLogger("gateway.upstream")

#: Below nginx's 60 and 75 seconds, so that the upstream rarely closes first.
IDLE_S: Final = 50.0

#: Errors of this machine, which are no failures of a server.
_LOCAL_ERRORS: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
)


class Admitted(UpstreamExchange, Asking, Protocol):
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
    """The targets of one upstream's servers, in the policy's order.

    pools:   one for each target; (): none is known
    count:   of requests in flight, on all workers; None: they have no limit
    settled: set when there is a target, or all first look-ups have ended
    """

    def __init__(
        self, upstream: Upstream, count: Count | None, below: Callable[[int], int]
    ) -> None:
        self.pools: tuple[ServerPool, ...] = ()
        self.upstream = upstream
        self.ejection = upstream.ejection
        self.inflight = upstream.inflight
        self.count = count
        self.settled = asyncio.Event()
        self._below = below
        self._rule = RULES[upstream.balance.rule]
        self.health_changed()

    def take(self, pools: tuple[ServerPool, ...]) -> None:
        """Use these from now on."""
        self.pools = pools
        self.health_changed()

    def health_changed(self) -> None:
        """Note that the health of one has changed, or its weight."""
        healthy = [pool for pool in self.pools if pool.health.is_healthy]
        self._unhealthy = [pool for pool in self.pools if not pool.health.is_healthy]
        self._pick = self._build(_first(healthy)) if healthy else None
        #: The only server, if it is healthy.
        self.only = healthy[0] if len(self.pools) == len(healthy) == 1 else None

    def _build(self, pools: list[ServerPool]) -> Callable[[Asking], ServerPool]:
        return self._rule.build(pools, self.upstream.balance.by or "", self._below)

    def is_last_healthy(self, pool: ServerPool) -> bool:
        """Is no other one healthy?"""
        return not any(other.health.is_healthy for other in self.pools if other is not pool)

    @property
    def is_full(self) -> bool:
        """Are as many requests in flight as the limit allows?"""
        most, count = self.inflight, self.count
        return most is not None and count is not None and count.total() >= most

    def choose(self, request: Asking) -> ServerPool | None:
        """Choose the server for the next request; None: none is healthy."""
        pick, unhealthy = self._pick, self._unhealthy
        if unhealthy:
            now = asyncio.get_running_loop().time()
            at = due([pool.health for pool in unhealthy], now, is_only=pick is None)
            if at is not None:
                probe(unhealthy[at].health, self.ejection, now)
                return unhealthy[at]
        return None if pick is None else pick(request)

    def next_untried(self, tried: list[ServerPool], request: Asking) -> ServerPool | None:
        """One of the healthy servers that were not tried, by the same rule."""
        left = [pool for pool in self.pools if pool.health.is_healthy and pool not in tried]
        return self._build(_first(left))(request) if left else None


def _first(pools: list[ServerPool]) -> list[ServerPool]:
    """Those with the best priority."""
    best = min(pool.priority for pool in pools)
    return [pool for pool in pools if pool.priority == best]


class UpstreamPools:
    """The servers of every upstream of the policy.

    look_up:  looks a server's name up; below(n): a random number from 0 to n - 1
    inflight: counts requests in flight over all workers; by default, of this one alone
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        look_up: LookUp | None = None,
        below: Callable[[int], int] = random.randrange,
        inflight: Inflight | None = None,
    ) -> None:
        self.metrics = metrics
        look_up = Resolver().look_up if look_up is None else look_up
        self._lookups = Lookups(metrics, look_up, self._targets_changed)
        self._below = below
        self._inflight = Inflight.alone() if inflight is None else inflight
        self._timeouts = Timeouts()
        self._by_server: dict[tuple[str, Target], ServerPool] = {}
        self._upstreams: dict[str, UpstreamPool] = {}
        self._contexts: dict[Trust, ssl.SSLContext] = {}
        #: Servers whose names could not be looked up, by upstream.
        self._unknown: dict[str, set[str]] = {}
        self._ending: list[asyncio.Task[None]] = []
        self._throttle = LogThrottle()

    # -- life -------------------------------------------------------------------------------------
    def use(self, policy: Policy) -> None:
        """Apply a policy: keep the servers that stay, remove the others.

        Call it within the event loop: look-ups and health checks begin here. Files of TLS are read
        again; the system's authorities, which takes 50 ms, only once.
        """
        upstreams = policy.upstreams.values()
        self._timeouts = policy.timeouts
        counts = self._inflight.use([one.name for one in upstreams if one.inflight is not None])
        self._contexts = {trust: tls for trust, tls in self._contexts.items() if not trust.files}
        for servers in self._upstreams.values():
            servers.settled.set()
        self._upstreams = {
            one.name: UpstreamPool(one, counts.get(one.name), self._below) for one in upstreams
        }
        self._end(self._lookups.use({place(each) for one in upstreams for each in one.servers}))
        for name in {name for name, _ in self._by_server} - self._upstreams.keys():
            self._retire(name, ())
        for name in self._unknown.keys() - self._upstreams.keys():
            self._report_unknown(name, [])
        for servers in self._upstreams.values():
            self._arrange(servers)

    def _targets_changed(self, server: Server) -> None:
        for servers in self._upstreams.values():
            if server in map(place, servers.upstream.servers):
                self._arrange(servers)

    def _arrange(self, servers: UpstreamPool) -> None:
        """Give an upstream a pool for each target that is known: those it had, and new ones."""
        upstream = servers.upstream
        found = [(server, self._lookups.targets(place(server))) for server in upstream.servers]
        self._report_unknown(upstream.name, [server for server, targets in found if not targets])
        wanted = {
            target.place: (server.weight * target.weight, target.priority)
            for server, targets in found
            for target in targets
        }
        self._retire(upstream.name, wanted, servers.count)
        pools = []
        for target, (weight, priority) in wanted.items():
            pool = self._by_server.get((upstream.name, target))
            if pool is None:
                pool = self._pool(upstream.name, target, servers.count)
                self._by_server[upstream.name, target] = pool
            tls = self._context(upstream.trust) if target.server.scheme == "https" else None
            pool.use(servers, upstream, self._timeouts, tls)
            pool.weight, pool.priority = weight, priority
            pools.append(pool)
        servers.take(tuple(pools))
        if wanted or not any(self._lookups.is_first(place(server)) for server in upstream.servers):
            servers.settled.set()

    def _report_unknown(self, name: str, servers: list[Server]) -> None:
        """Report servers as unhealthy that have no address after the first look-up."""
        unknown = {each.authority for each in servers if not self._lookups.is_first(place(each))}
        for authority in self._unknown.pop(name, set()) - unknown:
            self.metrics.upstream_health(name, authority, None)
        for authority in unknown:
            self.metrics.upstream_health(name, authority, False)
        if unknown:
            self._unknown[name] = unknown

    async def stop(self) -> None:
        """End look-ups, health checks and idle connections; exchanges keep their connections."""
        self._end(self._lookups.use(()))
        for name in {name for name, _ in self._by_server}:
            self._retire(name, ())
        self._upstreams = {}
        ending, self._ending = self._ending, []
        if ending:
            await asyncio.wait(ending)

    def close_idle(self, before: float) -> None:
        """Close connections that have been idle since before this time, by the loop's clock."""
        for pool in self._by_server.values():
            pool.close_idle(before)

    def _pool(self, name: str, target: Target, count: Count | None) -> ServerPool:
        if count is None:
            return ServerPool(name, target, self.metrics)
        return CountedServerPool(name, target, self.metrics, count)

    def _context(self, trust: Trust) -> ssl.SSLContext:
        context = self._contexts.get(trust)
        if context is None:
            context = self._contexts[trust] = tls_context(trust)
        return context

    def _retire(self, name: str, kept: Collection[Target], count: Count | None = None) -> None:
        """Remove an upstream's pools, except for these targets and with this count."""
        for at, pool in tuple(self._by_server.items()):
            if at[0] == name and (at[1] not in kept or pool.count is not count):
                watch = self._by_server.pop(at).retire()
                self._end([] if watch is None else [watch])

    def _end(self, ended: list[asyncio.Task[None]]) -> None:
        """Keep tasks that were cancelled, until they have ended."""
        if ended:
            self._ending = [task for task in self._ending if not task.done()] + ended

    # -- at each request --------------------------------------------------------------------------
    def serve(self, upstream: str, exchange: Admitted) -> None:
        """Call `exchange.connected` with a connection, at once if one is idle."""
        servers = self._upstreams.get(upstream)
        if servers is None:
            # A reload removed the upstream while the request was decided.
            exchange.fail(UPSTREAM_UNREACHABLE)
        elif servers.inflight is not None and servers.is_full:
            exchange.fail(UPSTREAM_BUSY)
        elif (pool := servers.only or servers.choose(exchange)) is None:
            self._without_server(exchange, servers)
        elif (connection := pool.take()) is not None:
            exchange.connected(connection)
        else:
            self._connect_soon(exchange, servers, pool)

    def serve_at(
        self, upstream: str, server: str, exchange: Admitted, *, afresh: bool = False
    ) -> bool:
        """The same with one server, which alone can serve it; False: the upstream has it no more.

        server: as in `server_tag`; afresh: by a new connection
        """
        servers = self._upstreams.get(upstream)
        pools = () if servers is None else servers.pools
        pool = next((pool for pool in pools if pool.tag == server), None)
        if servers is None or pool is None:
            return False
        if servers.is_full:
            exchange.fail(UPSTREAM_BUSY)
        elif not pool.health.is_healthy:
            exchange.fail(UPSTREAM_UNHEALTHY)
        elif not afresh and (connection := pool.take()) is not None:
            exchange.connected(connection)
        else:
            self._connect_soon(exchange, None, pool)
        return True

    def connect_afresh(self, upstream: str, exchange: Admitted, failed: object) -> None:
        """Give it a new connection: its request is sent a second time.

        failed: the pool of the last attempt; another server is tried if there is a healthy one
        """
        servers = self._upstreams.get(upstream)
        if servers is None:
            exchange.fail(UPSTREAM_UNREACHABLE)
        elif servers.is_full:
            # Its place was given back, and may be another's.
            exchange.fail(UPSTREAM_BUSY)
        elif (pool := servers.choose(exchange)) is None:
            self._without_server(exchange, servers)
        else:
            if pool is failed:
                pool = servers.next_untried([pool], exchange) or pool
            self._connect_soon(exchange, servers, pool)

    def _without_server(self, exchange: Admitted, servers: UpstreamPool) -> None:
        """Fail an exchange; or have it wait, if the first look-ups have not ended."""
        if servers.pools:
            exchange.fail(UPSTREAM_UNHEALTHY)
        elif not servers.upstream.servers:
            exchange.fail(NO_COURIERS)
        elif servers.settled.is_set():
            exchange.fail(UPSTREAM_UNREACHABLE)
        else:
            tasks.spawn(self._serve_when_settled(exchange, servers), "first look-up")

    async def _serve_when_settled(self, exchange: Admitted, servers: UpstreamPool) -> None:
        """Serve it when a server has an address: only the first look-ups are waited for."""
        upstream = servers.upstream
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(connect_timeout(upstream, self._timeouts)):
                    await servers.settled.wait()
            if exchange.is_over:
                return
            if servers.settled.is_set():
                self.serve(upstream.name, exchange)
            else:
                exchange.fail(UPSTREAM_UNREACHABLE)
        except Exception:
            if not exchange.is_over:
                exchange.failed()

    def _connect_soon(
        self, exchange: Admitted, servers: UpstreamPool | None, pool: ServerPool
    ) -> None:
        """servers: that may serve it in place of this one; None: no other may"""
        # Counted before the connection is open, so that a burst is spread over the servers.
        pool.reserve()
        tasks.spawn(self._connect(exchange, servers, pool), "connect")

    async def _connect(
        self, exchange: Admitted, servers: UpstreamPool | None, first: ServerPool
    ) -> None:
        """Try each healthy server once: nothing was sent yet, so no request is sent twice."""
        try:
            await self._try_each(exchange, servers, first)
        except Exception:
            if not exchange.is_over:
                exchange.failed()

    async def _try_each(
        self, exchange: Admitted, servers: UpstreamPool | None, first: ServerPool
    ) -> None:
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
            if exchange.is_over or servers is None:
                break
            pool = servers.next_untried(tried, exchange)
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
        suppressed = self._throttle.suppressed((pool.name, pool.label), now_s)
        if suppressed is not None:
            log.warning(
                "upstream %s: no connection to %s: %s%s",
                *(pool.name, pool.label, str(error) or type(error).__name__),
                f" (and {suppressed} times before)" if suppressed else "",
            )
