"""One server of an upstream, at one address: its connections and its health."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, Protocol, TypeVar

from gateway import tasks
from gateway.domain import balance
from gateway.domain.balance import Health
from gateway.domain.breaker import Window
from gateway.domain.mcp.sessions import server_tag
from gateway.domain.policy import Timeouts
from gateway.domain.targets import Target
from gateway.domain.upstreams import Ejection, HealthCheck, Trust, Upstream
from gateway.observe.metrics import Metrics
from gateway.proxy.dial import dial
from gateway.proxy.health import watch_health
from gateway.proxy.inflight import Count
from gateway.proxy.kernel import end_if_gone, probe_peers
from gateway.proxy.upstream_connection import TimedConnection, UpstreamConnection

log = logging.getLogger("gateway.upstream")

#: Idle connections to one server. More than a worker's requests in flight are of no use.
MOST_IDLE: Final = 256
#: A connection is not reused after this time, so that what balances in front of the server can
#: move it.
MOST_AGE_S: Final = 300.0

_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)


class Siblings(Protocol):
    """All servers of one upstream, as each of them uses them."""

    ejection: Ejection

    def is_last_healthy(self, pool: ServerPool) -> bool:
        """Is no other one healthy?"""
        ...

    def health_changed(self) -> None:
        """Note that the health of one has changed."""
        ...


def connect_timeout(upstream: Upstream, timeouts: Timeouts) -> float:
    """How long connecting to a server of the upstream may take, in seconds."""
    return timeouts.connect_s if upstream.connect_s is None else upstream.connect_s


class ServerPool:
    """The connections to one target. The last used is used next, so that the others expire.

    label:      names it in logs and metrics
    tag:        names it in the sessions of MCP clients
    weight:     how many requests it gets, in proportion to those of other servers
    priority:   it gets requests while no server with a lower one is healthy
    busy:       exchanges on its connections, or waiting for one to open; changed only here
    count:      of the upstream's requests in flight; None: they have no limit
    connect_s, response_s: timeouts for a connection, and for the first byte of an answer
    write_s:    how long it may take nothing of what is sent
    """

    servers: Siblings
    connect_s: float
    response_s: float
    write_s: float
    count: Count | None = None

    def __init__(self, name: str, target: Target, metrics: Metrics) -> None:
        self.name = name
        self.target = target
        self.server = target.server
        self.label = target.label
        self.tag = server_tag(target.label)
        self.weight = 1
        self.priority = 0
        self.metrics = metrics
        self.idle: list[UpstreamConnection] = []
        self.busy = 0
        self.health = Health()
        self._loop = asyncio.get_running_loop()
        self._tls: ssl.SSLContext | None = None
        self._trust = Trust()
        self._rule: HealthCheck | None = None
        self._ejection: Ejection | None = None
        self._window: Window | None = None
        self._watch: asyncio.Task[None] | None = None
        self._was_healthy = True
        self._is_removed = False
        metrics.upstream_health(name, self.label, True)

    # -- life -------------------------------------------------------------------------------------
    def use(
        self,
        servers: Siblings,
        upstream: Upstream,
        timeouts: Timeouts,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Apply the policy's settings of its upstream."""
        self.servers = servers
        self.connect_s = connect_timeout(upstream, timeouts)
        self.response_s = (
            timeouts.response_s if upstream.response_s is None else upstream.response_s
        )
        self.write_s = timeouts.write_s
        self._tls = tls
        if self._ejection != upstream.ejection:
            self._ejection = upstream.ejection
            if self.health.counted != upstream.ejection.counts_answers:
                self.close_idle(inf)  # the next ones are of the other kind
            self.health.counted = upstream.ejection.counts_answers
            self._window = Window(upstream.ejection) if self.health.counted else None
        if self._trust != upstream.trust:
            # Connections that were verified by other authorities, or for which we identified
            # ourselves otherwise, are not used any more.
            self.close_idle(inf)
            self._trust = upstream.trust
        if self._rule != upstream.health:
            self._rule = rule = upstream.health
            self._stop_watch()
            self.health.passes, self.health.streak = True, 0
            self._report_health()
            if rule is not None:
                report = partial(self._checked, rule)
                host = self.server.asked or self.server.authority
                watch = watch_health(self.dial, host, rule, report)
                self._watch = tasks.spawn(watch, f"health check of {self.label}")

    def retire(self) -> asyncio.Task[None] | None:
        """Remove it: the policy, or DNS, no longer has it. Exchanges go on; no connection is kept.

        Returns its health check, if there is one, which was cancelled.
        """
        self._is_removed = True
        self.close_idle(inf)
        self.metrics.upstream_health(self.name, self.label, None)
        return self._stop_watch()

    def _stop_watch(self) -> asyncio.Task[None] | None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
        return watch

    # -- connections ------------------------------------------------------------------------------
    def take(self) -> UpstreamConnection | None:
        """Take an idle connection; None: there is none."""
        while self.idle:
            connection = self.idle.pop()
            if not connection.transport.is_closing():
                self.busy += 1
                return connection
        return None

    def reserve(self) -> None:
        """Count an exchange for which `connect` will be called."""
        self.busy += 1

    async def connect(self) -> UpstreamConnection:
        """Open a connection for an exchange that was counted by `reserve`.

        Raises OSError, TimeoutError included; the exchange is then no longer counted.
        """
        try:
            kind = UpstreamConnection if self._window is None else TimedConnection
            transport, connection = await self.dial(lambda: kind(self), self.connect_s)
            if connection.transport.is_closing():
                raise ConnectionAbortedError("the server closed, or sent data before a request")
        except BaseException:
            self.busy -= 1
            raise
        # It may be idle, or in a stream, while its server loses its network.
        if (opened := transport.get_extra_info("socket")) is not None:
            probe_peers(opened)
        end_if_gone(transport, self.write_s)
        return connection

    async def dial(
        self, factory: Callable[[], _Protocol], timeout_s: float
    ) -> tuple[asyncio.Transport, _Protocol]:
        """Connect a protocol. Raises OSError."""
        return await dial(factory, self.target, self._tls, timeout_s)

    def give_back(self, connection: UpstreamConnection, reusable: bool) -> None:
        """Take a connection back after its exchange."""
        self.busy -= 1
        now = self._loop.time()
        if (
            reusable
            and len(self.idle) < MOST_IDLE
            and now - connection.opened < MOST_AGE_S
            and not self._is_removed
        ):
            connection.idle_since = now
            self.idle.append(connection)
        else:
            connection.close()

    def lost(self, connection: UpstreamConnection, *, is_failure: bool) -> None:
        """Note that it closed during its exchange. is_failure: a failure of the server"""
        self.busy -= 1
        if is_failure:
            self.failed()

    def remove(self, connection: UpstreamConnection) -> None:
        """Remove a closed connection."""
        self.metrics.connections("upstream", "open", -1)
        if connection in self.idle:
            self.idle.remove(connection)

    def close_idle(self, before: float) -> None:
        """Close connections that have been idle since before this time."""
        while self.idle and self.idle[0].idle_since < before:
            self.idle.pop(0).close()

    # -- health -----------------------------------------------------------------------------------
    def failed(self) -> None:
        """Count a failure: it was not reachable, or gave no valid answer in time."""
        servers = self.servers
        is_last = servers.is_last_healthy(self)
        now = asyncio.get_running_loop().time()
        if self._window is not None and self.health.is_healthy:
            self._count(self._window, now, error=True, slow=False)
        balance.fail(self.health, servers.ejection, now, is_last=is_last)
        self._report_health()

    def answered(self, status: int, waited_s: float) -> None:
        """Note the head of an answer of a server in doubt."""
        window, health = self._window, self.health
        if window is not None:
            error, slow = window.is_error(status), window.is_slow(waited_s)
            now = self._loop.time()
            if health.probing and (error or slow):
                balance.eject(health, self.servers.ejection, now)
            elif not health.out_until:
                self._count(window, now, error=error, slow=slow)
        balance.answer(health)
        self._report_health()

    def _count(self, window: Window, now: float, *, error: bool, slow: bool) -> None:
        """Count an answer, or the lack of one, of a server that is not ejected."""
        why = window.add(now, error=error, slow=slow)
        if why is not None and not self.servers.is_last_healthy(self):
            log.warning("upstream %s: %s is ejected: %s", self.name, self.label, why)
            balance.eject(self.health, self.servers.ejection, now)
            window.clear()

    def _checked(self, rule: HealthCheck, words: str | None) -> None:
        if words is not None and self.health.passes:
            log.warning("upstream %s: %s fails its check: %s", self.name, self.label, words)
        balance.check(self.health, rule, words is None)
        self._report_health()

    def _report_health(self) -> None:
        """Report a change of health."""
        is_healthy = self.health.is_healthy
        if is_healthy == self._was_healthy:
            return
        self._was_healthy = is_healthy
        log.warning(
            "upstream %s: %s is %s",
            *(self.name, self.label, "healthy" if is_healthy else "unhealthy"),
        )
        self.servers.health_changed()
        if not self._is_removed:
            self.metrics.upstream_health(self.name, self.label, is_healthy)


class CountedServerPool(ServerPool):
    """One of an upstream with a limit on requests in flight. Others do without its cost."""

    count: Count

    def __init__(self, name: str, target: Target, metrics: Metrics, count: Count) -> None:
        self.count = count
        self._busy = 0
        super().__init__(name, target, metrics)

    @property
    def busy(self) -> int:
        return self._busy

    @busy.setter
    def busy(self, number: int) -> None:
        self.count.add(number - self._busy)
        self._busy = number
