"""The composition root: builds a running gateway from settings; imports all of its parts."""

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
from gateway.domain.mcp.sessions import Seals
from gateway.domain.policy import Policy
from gateway.domain.ports import KeyStore
from gateway.domain.upstreams import with_couriers
from gateway.observe.access import AccessLog, open_access_log
from gateway.observe.metrics import Metrics
from gateway.observe.registry import Snapshot
from gateway.observe.slow_steps import SlowSteps
from gateway.observe.totals import with_series
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.proxy.account import Accounting
from gateway.proxy.backlog import Backlog
from gateway.proxy.connections import Connections
from gateway.proxy.context import Context
from gateway.proxy.deadlines import watch_deadlines
from gateway.proxy.gate import Gate
from gateway.proxy.inflight import Inflight
from gateway.proxy.upstream_pool import UpstreamPools
from gateway.runtime.authorities import Authorities
from gateway.runtime.certificates import keep_certificates, warn_of_admin_tls
from gateway.runtime.channel import Report
from gateway.runtime.expiry import Expiry
from gateway.runtime.lifecycle import Event, State, step
from gateway.runtime.listen import Listener
from gateway.runtime.policy_watch import PolicyWatch, log_warnings
from gateway.runtime.process import raise_limit
from gateway.runtime.redirect_listen import RedirectListener, check_redirect
from gateway.runtime.settings import CannotStart, Settings, authority, naming
from gateway.runtime.sockets import Sockets, bind, close_all
from gateway.runtime.traces import Traces
from gateway.runtime.worker import WorkerInit
from gateway.stores.opening import Store, open_store
from gateway.stores.redis.embedded import EmbeddedFailed, embedded_store

if TYPE_CHECKING:
    from gateway.runtime.administration import Administration
    from gateway.runtime.policy_recorder import PolicyRecorder

__all__ = ["CannotStart", "Gateway", "Settings", "clock_us"]

log = logging.getLogger("gateway")

#: How often the access log is flushed.
FLUSH_S: Final = 0.1


class Gateway:
    """One gateway, or one worker of it: `start`, use, `stop`.

    policy: used in place of the policy files
    init:   what a worker gets from its supervisor; a worker has no admin listener
    """

    def __init__(
        self, settings: Settings, *, policy: Policy | None = None, init: WorkerInit | None = None
    ) -> None:
        self.settings = settings
        self.metrics = Metrics(version("rate-limiting-gateway"))
        self.steps = SlowSteps("worker")
        self._traces = Traces(self.metrics, version("rate-limiting-gateway"))
        self._given_policy = policy
        self._init = init
        self._admin: Administration | None = None
        self._recorder: PolicyRecorder | None = None
        self._stack = AsyncExitStack()
        self._listener: Listener | None = None
        self._state = State.OPENING

    # -- life -------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Open everything. Raises PolicyFaults or CannotStart, after closing what was opened."""
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """Drain: stop accepting, finish requests in progress, close everything. Idempotent."""
        self._state = step(self._state, Event.STOPPED)
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    def stop_now(self) -> None:
        """Stop waiting for requests in progress."""
        if self._listener is not None:
            self._listener.stop_now()

    def reload(self) -> None:
        """Reload policies and certificates now, and reopen the access log (after a rotation)."""
        if self._access is not None:
            self._access.reopen()
        self._watch.reload_now()
        if self._certificates is not None:
            self._certificates.reload_now()

    async def adopt(self, worker: int) -> None:
        """Accept connections for another worker as well."""
        await self._open_listener.adopt(worker)

    def release(self, worker: int) -> None:
        """Stop accepting for that worker."""
        self._open_listener.release(worker)

    def report(self) -> Report:
        """Counts and readiness, for a supervisor."""
        drain_s = self._gate.policy.timeouts.drain_s
        return Report(self._measured(), self.readiness(), drain_s)

    def _measured(self) -> Snapshot:
        return with_series(self.metrics.snapshot(), [self.steps.series])

    @property
    def _open_listener(self) -> Listener:
        assert self._listener is not None, "it has not started"
        return self._listener

    @property
    def port(self) -> int:
        return self._open_listener.port

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
        #: The setting in effect: whether there is TLS at all is decided at the start.
        self._tls = policy.tls if self._init is None else self._init.tls
        self._access = self._open_access_log(stack)
        self._store = await self._open_store(stack)
        self._context = self._build(policy)
        if settings.admin is not None:
            await self._open_admin(stack)
        self._watch = PolicyWatch(
            settings.policies,
            policy,
            on_change=self._use,
            on_fault=self._on_policy_faults,
            on_wait=self.metrics.policy_reload_waits,
        )
        stack.push_async_callback(self._traces.close)
        stack.push_async_callback(self._context.pools.stop)
        self._use(policy)
        tasks.keep_running(stack, watch_deadlines(self._context), "deadlines")
        if self._given_policy is None:
            tasks.keep_running(stack, self._watch.run(), "policy watch")
        authorities = Authorities(lambda: self._policy, self._context.pools.use)
        tasks.keep_running(stack, authorities.run(), "authorities")
        expiry = Expiry(lambda: self._policy, self.metrics.certificates_expire)
        tasks.keep_running(stack, expiry.run(), "expiry of certificates")
        certificates = self._certificates = keep_certificates(stack, lambda: self._tls, "tls")
        listener = self._listener = Listener(
            self._context,
            None if certificates is None else lambda: certificates.context,
            self._open_sockets(stack),
            settings.worker[0],
        )
        await listener.start()
        stack.push_async_callback(listener.drain)
        if settings.listen_http is not None:
            if self._init is None:
                check_redirect(settings, has_tls=self._tls is not None)
            self.redirects = RedirectListener(self._context, settings.listen_http, listener.port)
            await self.redirects.start()
            stack.push_async_callback(self.redirects.close)
        self._state = step(self._state, Event.OPENED)

    async def _first_policy(self) -> Policy:
        """The policy to start with; a worker gets it from its supervisor."""
        if self._given_policy is not None:
            return self._given_policy
        if self._init is not None:
            return self._init.policy
        return await asyncio.to_thread(load, self.settings.policies)

    async def _open_admin(self, stack: AsyncExitStack) -> None:
        # Workers do not get here, and do without these imports: aiohttp alone would be a third.
        from gateway.manage.policies import Loaded  # noqa: PLC0415
        from gateway.observe.exposition import render  # noqa: PLC0415
        from gateway.runtime.administration import administration  # noqa: PLC0415
        from gateway.runtime.policy_recorder import PolicyRecorder  # noqa: PLC0415
        from gateway.stores.managed import memory_managed  # noqa: PLC0415

        async def scrape(accept: str) -> tuple[bytes, str]:
            return render(self._measured(), accept, [os.getpid()])

        async def readiness() -> Readiness:
            return self.readiness()

        def loaded() -> Loaded:
            return Loaded(self._policy, self._policy_us, self.settings.policies)

        store = self._store
        stores = None
        if self._store_address.kind == "memory":
            stores = memory_managed(
                *(store.keys, store.local, store.usage, store.warnings, store.audit),
                connections=store.connections,
            )
        settings = replace(self.settings, store=self._store_address)
        recorder = self._recorder = PolicyRecorder(authority(*settings.listen), clock_us)
        recorder.loaded(self._policy, "start")
        self._admin = await stack.enter_async_context(
            administration(
                settings,
                scrape,
                readiness,
                loaded,
                clock_us,
                snapshot=self.metrics.snapshot,
                stores=stores,
                recorder=recorder,
            )
        )

    def _open_sockets(self, stack: AsyncExitStack) -> Sequence[Sockets]:
        if self._init is not None:
            return self._init.sockets
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
            collected=Backlog(asyncio.get_running_loop(), rests=True),
            gate=self._gate,
            pools=UpstreamPools(self.metrics, inflight=self._open_inflight()),
            metrics=self.metrics,
            accounting=Accounting(
                self.metrics, self._access, clock_us, self._store.table, self._store.warned
            ),
            version=version("rate-limiting-gateway"),
            clock_us=clock_us,
            next_id=lambda: b"%b%x" % (prefix, next(numbers)),
        )

    def _open_inflight(self) -> Inflight:
        if self._init is None or self._init.inflight is None:
            return Inflight.alone()
        return Inflight.open(self._init.inflight, *self.settings.worker)

    def _open_access_log(self, stack: AsyncExitStack) -> AccessLog | None:
        try:
            access = open_access_log(self.settings.access_log)
        except (OSError, ValueError) as error:
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

    # -- while it runs -------------------------------------------------------------------
    def readiness(self) -> Readiness:
        """Ready while serving; in an outage, only if the policy admits requests (cached keys)."""
        checks = {"store": self._store.detail(), "listener": self._state.value}
        ready = self._state is State.SERVING
        if not self._store.is_up():
            ready &= self._store.was_up() and self._gate.policy.on_store_failure != "closed"
        return Readiness(ready, checks)

    def _use(self, policy: Policy) -> None:
        couriers = self.settings.couriers
        server = None if couriers is None else couriers.upstream_server
        policy = replace(policy, upstreams=with_couriers(policy.upstreams, server))
        if (policy.tls is None) != (self._tls is None) and policy.tls != self._policy.tls:
            log.warning("policy: tls begins or ends after a restart")
        self._tls = self._tls and (policy.tls or self._tls)
        if self.settings.admin is not None:
            warn_of_admin_tls(policy, self._policy)
        if policy.hash != self._policy.hash:
            self._policy_us = clock_us()
            if self._recorder is not None:
                requested = self._watch.was_requested
                self._recorder.loaded(policy, "SIGHUP" if requested else "file change")
        self._policy = policy
        self._gate.use(policy)
        if self._access is not None:
            self._access.use(policy.access_log)
            self._gate.is_timed = policy.access_log.is_timed
        self._context.pools.use(policy)
        self._context.retries.use(policy.routes.keys())
        self._context.seals = Seals(policy.mcp_secrets or (self.settings.mcp_secret,))
        self._context.tracer = self._traces.use(policy.tracing)
        self.metrics.policy_loaded(policy.hash, time.time(), policy.routes.keys())
        if self._init is not None:
            # The supervisor logs its warnings, once for all workers.
            self._init.policy_loaded(policy, self._watch.was_requested)
        else:
            log_warnings(policy)
        log.info("policy loaded: %s, from %s", policy.hash, ", ".join(policy.files))

    async def _flush(self, access: AccessLog) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            access.flush()
            self.metrics.access_log_dropped = access.dropped

    def _close_access_log(self, access: AccessLog) -> None:
        access.close()
        self.metrics.access_log_dropped = access.dropped

    def _on_policy_faults(self, faults: PolicyFaults) -> None:
        self.metrics.policy_reload_failed()
        log.error("policy reload failed; keeping the previous policy: %s", faults)


def clock_us() -> int:
    """Wall clock, Unix microseconds."""
    return time.time_ns() // 1000
