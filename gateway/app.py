"""The composition root: settings in, a running gateway out. Only this module knows every part."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from typing import TYPE_CHECKING, Final

from gateway import tasks
from gateway.admin.readiness import Readiness
from gateway.domain.policy import Policy
from gateway.domain.ports import KeyStore
from gateway.observe.access import AccessLog, open_access_log
from gateway.observe.metrics import Metrics
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.proxy.account import Accounting
from gateway.proxy.backlog import Backlog
from gateway.proxy.connections import Connections
from gateway.proxy.context import Context
from gateway.proxy.deadlines import watch_deadlines
from gateway.proxy.gate import Gate
from gateway.proxy.inflight import Inflight
from gateway.proxy.pool import Pools
from gateway.runtime.authorities import Authorities
from gateway.runtime.certificates import CertificateFault, Certificates
from gateway.runtime.channel import Report
from gateway.runtime.descriptors import raise_limit
from gateway.runtime.listen import Listener
from gateway.runtime.settings import CannotStart, Settings, naming
from gateway.runtime.sockets import Sockets, bind, close_all
from gateway.runtime.watch import PolicyWatch
from gateway.runtime.worker import Handed
from gateway.stores.embedded import EmbeddedFailed, embedded_store
from gateway.stores.opening import Store, open_store

if TYPE_CHECKING:
    from gateway.runtime.administration import Administration

__all__ = ["CannotStart", "Gateway", "Settings", "clock_us"]

log = logging.getLogger("gateway")

#: How often the access log is written out.
FLUSH_S: Final = 0.1


class Gateway:
    """One gateway, or one worker of it: `start`, use, `stop`.

    policy: overrides what the files say at the start
    handed: what a worker has from its supervisor; it has no admin listener of its own
    """

    def __init__(
        self, settings: Settings, *, policy: Policy | None = None, handed: Handed | None = None
    ) -> None:
        self.settings = settings
        self.metrics = Metrics(version("rate-limiting-gateway"))
        self._given_policy = policy
        self._handed = handed
        self._admin: Administration | None = None
        self._stack = AsyncExitStack()
        self._listening = False
        self._draining = False

    # -- life -------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Open everything. Raises PolicyFaults or CannotStart, and leaves nothing open then."""
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """Drain: take no more, finish what is under way, close everything; harmless if repeated."""
        self._draining = True
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    def hurry(self) -> None:
        """Do not wait any longer for what is under way."""
        if self._listening:
            self._listener.hurry()

    def reload(self) -> None:
        """Read the policy files now, and open the access log anew: it may have been rotated."""
        if self._access is not None:
            self._access.reopen()
        self._watch.reload_now()
        if self._certificates is not None:
            self._certificates.reload_now()

    async def adopt(self, worker: int) -> None:
        """Accept the clients of another worker, too."""
        await self._listener.adopt(worker)

    def release(self, worker: int) -> None:
        """Leave them to that worker again."""
        self._listener.release(worker)

    def report(self) -> Report:
        """How it fares, for a supervisor."""
        drain_s = self._gate.policy.timeouts.drain_s
        return Report(self.metrics.snapshot(), self.readiness(), drain_s)

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def admin(self) -> Administration:
        assert self._admin is not None, "there is no admin listener"
        return self._admin

    @property
    def admin_port(self) -> int:
        return self.admin.port

    @property
    def keys(self) -> KeyStore:
        return self._store.keys

    # -- opening ----------------------------------------------------------------------------------
    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        policy = self._policy = await self._first_policy()
        self._policy_us = clock_us()
        self._tls = policy.tls if self._handed is None else self._handed.tls
        self._access = self._open_access_log(stack)
        self._store = await self._open_store(stack)
        self._context = self._build(policy)
        if settings.admin is not None:
            await self._open_admin(stack)
        self._watch = PolicyWatch(
            settings.policies, policy, on_change=self._use, on_fault=self._refuse
        )
        stack.push_async_callback(self._context.pools.stop)
        self._use(policy)
        tasks.keep_running(stack, watch_deadlines(self._context), "deadlines")
        if self._given_policy is None:
            tasks.keep_running(stack, self._watch.run(), "policy watch")
        authorities = Authorities(lambda: self._policy, self._context.pools.use)
        tasks.keep_running(stack, authorities.run(), "authorities")
        self._certificates = self._open_certificates(stack)
        self._listener = Listener(
            self._context,
            None if self._certificates is None else self._certificates.context,
            self._open_sockets(stack),
            settings.worker[0],
        )
        await self._listener.start()
        stack.push_async_callback(self._listener.drain)
        self._listening = True

    async def _first_policy(self) -> Policy:
        """The one to start with; a worker's is handed to it, and its watch then reads the files."""
        if self._given_policy is not None:
            return self._given_policy
        if self._handed is not None:
            return self._handed.policy
        return await asyncio.to_thread(load, self.settings.policies)

    async def _open_admin(self, stack: AsyncExitStack) -> None:
        # A worker never gets here, and does without these: aiohttp alone would be a third of it.
        from gateway.manage.policies import Loaded  # noqa: PLC0415
        from gateway.observe.exposition import render  # noqa: PLC0415
        from gateway.runtime.administration import administration  # noqa: PLC0415
        from gateway.stores.managed import memory_managed  # noqa: PLC0415

        async def scrape(accept: str) -> tuple[bytes, str]:
            return render(self.metrics.snapshot(), accept, [os.getpid()])

        async def readiness() -> Readiness:
            return self.readiness()

        def loaded() -> Loaded:
            return Loaded(self._policy, self._policy_us, self.settings.policies)

        store = self._store
        stores = None
        if self._store_address.kind == "memory":
            stores = memory_managed(
                store.keys, store.local, store.usage, store.warnings, store.audit
            )
        settings = replace(self.settings, store=self._store_address)
        self._admin = await stack.enter_async_context(
            administration(settings, scrape, readiness, loaded, clock_us, stores=stores)
        )

    def _open_sockets(self, stack: AsyncExitStack) -> Sequence[Sockets]:
        if self._handed is not None:
            return self._handed.sockets
        with naming("--listen", self.settings.listen):
            sockets = bind(*self.settings.listen, workers=1)
        stack.callback(close_all, sockets)
        return sockets

    def _build(self, policy: Policy) -> Context:
        prefix, numbers = secrets.token_hex(6).encode("ascii") + b"-", count(1)
        self._gate = Gate(
            policy,
            self._store.limiter,
            self._store.directory,
            self.metrics,
            self._store.clock_us,
        )
        return Context(
            connections=Connections(
                self.metrics, lambda: self._gate.policy.bounds.memory_bytes, raise_limit()
            ),
            backlog=Backlog(asyncio.get_running_loop()),
            gate=self._gate,
            pools=Pools(self.metrics, inflight=self._open_inflight()),
            metrics=self.metrics,
            accounting=Accounting(
                self.metrics, self._access, clock_us, self._store.table, self._store.warned
            ),
            version=version("rate-limiting-gateway"),
            clock_us=clock_us,
            next_id=lambda: b"%b%x" % (prefix, next(numbers)),
        )

    def _open_inflight(self) -> Inflight:
        if self._handed is None or self._handed.inflight is None:
            return Inflight.alone()
        return Inflight.open(self._handed.inflight, *self.settings.worker)

    def _open_certificates(self, stack: AsyncExitStack) -> Certificates | None:
        if self._tls is None:
            return None
        try:
            certificates = Certificates(self._tls, on_fault=_certificate_refused)
        except CertificateFault as fault:
            raise CannotStart(f"tls: {fault}") from fault
        tasks.keep_running(stack, certificates.run(), "certificates")
        return certificates

    def _open_access_log(self, stack: AsyncExitStack) -> AccessLog | None:
        try:
            access = open_access_log(self.settings.access_log)
        except OSError as error:
            raise CannotStart(f"--access-log {self.settings.access_log}: {error}") from error
        if access is not None:
            stack.callback(self._close_access_log, access)
            tasks.keep_running(stack, self._flush(access), "access log")
        return access

    async def _open_store(self, stack: AsyncExitStack) -> Store:
        address, data = self.settings.store, self.settings.data
        if address is None:
            try:
                address = await stack.enter_async_context(embedded_store(data))
            except EmbeddedFailed as error:
                raise CannotStart(f"--data {data}: {error}") from error
        self._store_address = address
        return await stack.enter_async_context(
            open_store(
                address,
                policy=lambda: self._policy,
                metrics=self.metrics,
                clock_us=clock_us,
                worker=self.settings.worker,
            )
        )

    # -- what happens meanwhile -------------------------------------------------------------------
    def readiness(self) -> Readiness:
        """Can it decide? Without its store it can, by the policy's leave, for keys it knows."""
        checks = {"store": self._store.detail(), "listener": "ok"}
        ready = True
        if not self._store.is_up():
            ready = self._store.was_up() and self._gate.policy.on_store_failure != "closed"
        if self._draining or not self._listening:
            checks["listener"] = "draining" if self._draining else "not open yet"
            ready = False
        return Readiness(ready, checks)

    def _use(self, policy: Policy) -> None:
        if policy.tls not in (self._tls, self._policy.tls):
            log.warning("policies: a change of tls takes a restart")
        if self.settings.admin is not None and policy.admin_tls != self._policy.admin_tls:
            log.warning("policies: a change of admin_tls takes a restart")
        if policy.hash != self._policy.hash:
            self._policy_us = clock_us()
        self._policy = policy
        self._gate.use(policy)
        self._context.pools.use(policy)
        self.metrics.policy_loaded(policy.hash, time.time(), policy.routes.keys())
        if self._handed is not None:
            self._handed.took_up(policy)
        log.info("policies %s taken up: %s", policy.hash, ", ".join(policy.files))

    async def _flush(self, access: AccessLog) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            access.flush()
            self.metrics.access_log_dropped = access.dropped

    def _close_access_log(self, access: AccessLog) -> None:
        access.close()
        self.metrics.access_log_dropped = access.dropped

    def _refuse(self, faults: PolicyFaults) -> None:
        self.metrics.policy_refused()
        log.error("policies refused, the last good ones stay: %s", faults)


def clock_us() -> int:
    """Wall clock, Unix microseconds."""
    return time.time_ns() // 1000


def _certificate_refused(fault: CertificateFault) -> None:
    log.error("tls: the last good certificate stays: %s", fault)
