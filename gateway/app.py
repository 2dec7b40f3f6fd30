"""The composition root: settings in, a running gateway out. Only this module knows every part."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, Final

from gateway import tasks
from gateway.admin.app import AdminServer, Readiness, build_admin
from gateway.domain.policy import Policy
from gateway.domain.ports import KeyStore
from gateway.observe.access import AccessLog, open_access_log
from gateway.observe.metrics import Metrics
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.proxy.account import Accounting
from gateway.proxy.context import Context
from gateway.proxy.deadlines import watch_deadlines
from gateway.proxy.gate import Gate
from gateway.proxy.pool import Pools
from gateway.runtime.certificates import CertificateFault, Certificates
from gateway.runtime.listen import Listener
from gateway.runtime.watch import PolicyWatch
from gateway.stores.connect import StoreAddress
from gateway.stores.embedded import EmbeddedFailed
from gateway.stores.opening import Store, embedded_store, open_store

log = logging.getLogger("gateway")

#: How often the access log is written out.
FLUSH_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Settings:
    """How one gateway is started.

    policies:   the folder of policy files, watched for changes
    listen:     where clients come in; port 0: any free one
    admin:      where /metrics and the probes are; None: nowhere
    store:      the store's address; None: a private Redis under `data`
    access_log: a path, "-" for standard output, or "off"
    """

    policies: Path
    listen: tuple[str, int] = ("127.0.0.1", 8080)
    admin: tuple[str, int] | None = ("127.0.0.1", 9901)
    store: StoreAddress | None = None
    data: Path = Path(".gateway")
    access_log: str = "off"


class CannotStart(Exception):
    """Why the gateway does not start, in one line that names the option to change."""


class Gateway:
    """One gateway: `start`, use, `stop`. `policy` overrides what the files say at the start."""

    def __init__(self, settings: Settings, *, policy: Policy | None = None) -> None:
        self.settings = settings
        self.metrics = Metrics(version("rate-limiting-gateway"))
        self._given_policy = policy
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
        self._listener.hurry()

    def reload(self) -> None:
        """Read the policy files now, and open the access log anew: it may have been rotated."""
        if self._access is not None:
            self._access.reopen()
        self._watch.reload_now()
        if self._certificates is not None:
            self._certificates.reload_now()

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def admin_port(self) -> int:
        return self._admin.port

    @property
    def keys(self) -> KeyStore:
        return self._store.keys

    # -- opening ----------------------------------------------------------------------------------
    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        policy = self._given_policy
        if policy is None:
            policy = await asyncio.to_thread(load, settings.policies)
        self._access = self._open_access_log(stack)
        self._policy = policy
        self._store = await self._open_store(stack)
        self._context = self._build(policy)
        self._admin = AdminServer(build_admin(self.metrics, self.readiness))
        if settings.admin is not None:
            await _bind("--admin", settings.admin, self._admin.start)
            stack.push_async_callback(self._admin.stop)
        self._watch = PolicyWatch(
            settings.policies, policy, on_change=self._use, on_fault=self._refuse
        )
        stack.push_async_callback(self._context.pools.stop)
        self._use(policy)
        _keep_running(stack, watch_deadlines(self._context), "deadlines")
        if self._given_policy is None:
            _keep_running(stack, self._watch.run(), "policy watch")
        self._certificates = self._open_certificates(policy, stack)
        self._listener = Listener(
            self._context, None if self._certificates is None else self._certificates.context
        )
        await _bind("--listen", settings.listen, self._listener.start)
        stack.push_async_callback(self._listener.drain)
        self._listening = True

    def _build(self, policy: Policy) -> Context:
        prefix, numbers = secrets.token_hex(6), count(1)
        self._gate = Gate(
            policy, self._store.limiter, self._store.directory, self.metrics, clock_us
        )
        return Context(
            gate=self._gate,
            pools=Pools(self.metrics),
            metrics=self.metrics,
            accounting=Accounting(self.metrics, self._access, clock_us),
            version=version("rate-limiting-gateway"),
            clock_us=clock_us,
            next_id=lambda: b"%b-%x" % (prefix.encode("ascii"), next(numbers)),
        )

    def _open_certificates(self, policy: Policy, stack: AsyncExitStack) -> Certificates | None:
        if policy.tls is None:
            return None
        try:
            certificates = Certificates(policy.tls, on_fault=_certificate_refused)
        except CertificateFault as fault:
            raise CannotStart(f"tls: {fault}") from fault
        _keep_running(stack, certificates.run(), "certificates")
        return certificates

    def _open_access_log(self, stack: AsyncExitStack) -> AccessLog | None:
        try:
            access = open_access_log(self.settings.access_log)
        except OSError as error:
            raise CannotStart(f"--access-log {self.settings.access_log}: {error}") from error
        if access is not None:
            stack.callback(access.close)
            _keep_running(stack, _flush(access), "access log")
        return access

    async def _open_store(self, stack: AsyncExitStack) -> Store:
        address, data = self.settings.store, self.settings.data
        if address is None:
            try:
                address = await stack.enter_async_context(embedded_store(data))
            except EmbeddedFailed as error:
                raise CannotStart(f"--data {data}: {error}") from error
        return await stack.enter_async_context(
            open_store(
                address,
                policy=lambda: self._policy,
                metrics=self.metrics,
                clock_us=clock_us,
            )
        )

    # -- what happens meanwhile -------------------------------------------------------------------
    def readiness(self) -> Readiness:
        """Can it decide? Without its store it can, by the policy's leave, for keys it knows."""
        checks = {"store": "ok", "listener": "ok"}
        ready = True
        if not self._store.is_up():
            mode = self._gate.policy.on_store_failure
            checks["store"] = f"down; on_store_failure: {mode}"
            ready = self._store.was_up() and mode != "closed"
        if self._draining or not self._listening:
            checks["listener"] = "draining" if self._draining else "not open yet"
            ready = False
        return Readiness(ready, checks)

    def _use(self, policy: Policy) -> None:
        if policy.tls != self._gate.policy.tls:
            log.warning("policies: a change of tls takes a restart")
        self._policy = policy
        self._gate.use(policy)
        self._context.pools.use(policy)
        self.metrics.policy_loaded(policy.hash, time.time(), policy.routes.keys())
        log.info("policies %s taken up: %s", policy.hash, ", ".join(policy.files))

    def _refuse(self, faults: PolicyFaults) -> None:
        self.metrics.policy_refused()
        log.error("policies refused, the last good ones stay: %s", faults)


def clock_us() -> int:
    """Wall clock, Unix microseconds."""
    return time.time_ns() // 1000


def _certificate_refused(fault: CertificateFault) -> None:
    log.error("tls: the last good certificate stays: %s", fault)


async def _bind(
    option: str, address: tuple[str, int], start: Callable[[str, int], Awaitable[None]]
) -> None:
    host, port = address
    try:
        await start(host, port)
    except OSError as error:
        raise CannotStart(f"{option} {host}:{port}: {error.strerror or error}") from error


def _keep_running(stack: AsyncExitStack, coroutine: Coroutine[Any, Any, None], name: str) -> None:
    """Run it until the stack is closed."""
    task = tasks.spawn(coroutine, name)

    async def end() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(end)


async def _flush(access: AccessLog) -> None:
    while True:
        await asyncio.sleep(FLUSH_S)
        access.flush()
