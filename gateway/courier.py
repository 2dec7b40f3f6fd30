"""The composition root of a courier: builds a running one from settings.

It captures webhooks and answers customers over HTTP, which only workers can ask it for; and it
delivers.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

from gateway import tasks
from gateway.admin.readiness import Readiness
from gateway.domain.policy import Policy
from gateway.domain.ports import StoreDown
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.manage.deliveries import Deliveries
from gateway.manage.watches import Watches
from gateway.observe.log_throttle import LogThrottle
from gateway.observe.registry import Snapshot
from gateway.observe.slow_steps import SlowSteps
from gateway.observe.webhook_metrics import WebhookMetrics
from gateway.policies.faults import PolicyFaults
from gateway.runtime import lifecycle
from gateway.runtime.channel import Report
from gateway.runtime.policy_watch import PolicyWatch
from gateway.runtime.process import raise_limit
from gateway.runtime.receivers import ReceiverTrust
from gateway.runtime.settings import Settings
from gateway.runtime.worker import WorkerInit
from gateway.stores.managed import open_managed
from gateway.stores.redis.reasons import with_cure
from gateway.stores.webhooks.link import listen, open_link
from gateway.stores.webhooks.opening import WebhookStores, open_webhooks
from gateway.webhooks.application import ApplicationDeps, build_application
from gateway.webhooks.capture import Capture
from gateway.webhooks.changes import CustomerAudit
from gateway.webhooks.courier import Courier
from gateway.webhooks.known import KnownIntegrations
from gateway.webhooks.listener import CourierListener
from gateway.webhooks.notices import Notices
from gateway.webhooks.requests import client_of
from gateway.webhooks.sealing import Sealer
from gateway.webhooks.sender import TOTAL_S, Sender
from gateway.webhooks.spool import Spool
from gateway.webhooks.suspensions import Suspensions

log = logging.getLogger("gateway")

#: How long attempts and requests in progress may take at the end.
DRAIN_S: Final = TOTAL_S + 1.0
#: How long requests may take that are in progress when attempts have taken all of that.
_LEAST_S: Final = 2.0
#: Between attempts to compare the webhook key with the store's mark, and to begin again.
_AGAIN_S: Final = 1.0
_LOG_EVERY_S: Final = 60.0
_ANOTHER_KEY: Final = (
    "the webhook key in %s is not the one that the watches of this store were made with; nothing "
    "is delivered. Set the same GATEWAY_WEBHOOK_KEY for all"
)


class CourierProcess:
    """One courier: `start`, use, `stop`.

    trust:       for the demo; else the system's authorities and those of the policy are trusted
    is_watching: the policy files; else the first policy stays
    """

    def __init__(
        self,
        settings: Settings,
        init: WorkerInit,
        *,
        trust: ssl.SSLContext | None = None,
        is_watching: bool = True,
    ) -> None:
        assert settings.master is not None, "a courier needs the webhook key"
        assert settings.couriers is not None, "a courier needs the token of its application"
        assert settings.store is not None, "a courier needs a store"
        self._settings = settings
        self._master = settings.master
        self._token = settings.couriers.token
        self._store = settings.store
        self._init = init
        self._policy = init.policy
        self._trust = trust
        self._is_watching = is_watching
        self.steps = SlowSteps("courier")
        self._stack = AsyncExitStack()
        self._state = lifecycle.State.OPENING
        self._listeners: list[CourierListener] = []
        self._delivering: asyncio.Task[None] | None = None
        #: The ends of listeners, which wait for requests in progress.
        self._answering: list[asyncio.Task[None]] = []
        self._is_stopping_now = False
        #: Has the webhook key been compared with the store's mark?
        self._is_delivering = False
        #: Why nothing is delivered; "ok": it is.
        self._detail = "ok"

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open everything. Raises CannotStart, after closing what was opened."""
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """Claim nothing more, finish what is in flight, close everything. Idempotent."""
        self._state = lifecycle.step(self._state, lifecycle.Event.STOPPED)
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    def stop_now(self) -> None:
        """Stop waiting for attempts in flight: others make them again when their leases end.

        Nor for requests in progress.
        """
        self._is_stopping_now = True
        for task in (self._delivering, *self._answering):
            if task is not None:
                task.cancel()

    def reload(self) -> None:
        """Reload the policies now."""
        self._watch.reload_now()

    def report(self) -> Report:
        """Counts and readiness, for the supervisor."""
        fault = self._stores.budget.fault
        detail = with_cure(fault) if self._detail == "ok" and fault is not None else self._detail
        checks = {"webhooks": detail}
        ready = Readiness(self._state is lifecycle.State.SERVING, checks)
        series = (*self._measured().series(), self.steps.series)
        return Report(Snapshot(series), ready, DRAIN_S)

    async def adopt(self, worker: int) -> None:
        """Couriers share their sockets: nobody stands in for one."""

    def release(self, worker: int) -> None: ...

    # -- opening ----------------------------------------------------------------------------------

    async def _open(self, stack: AsyncExitStack) -> None:
        raise_limit()
        self._watch = PolicyWatch(
            self._settings.policies, self._policy, on_change=self._use, on_fault=_keep_policy
        )
        if self._is_watching:
            tasks.keep_running(stack, self._watch.run(), "policy watch")
        managed = await stack.enter_async_context(open_managed(self._store))
        execute = await stack.enter_async_context(open_link(self._store))
        stores = self._stores = open_webhooks(execute, self._webhooks)
        sender = await stack.enter_async_context(
            Sender(lambda: self._webhooks().destinations, tls=self._trusted(stack))
        )
        # By the store's time, as events: a host whose clock is wrong signs with the right one.
        self._courier = Courier(
            *(stores.queues, sender, self._master.key, self._webhooks),
            now_us=managed.clock_us,
            is_suspended=Suspensions(managed.keys).has,
        )
        known = KnownIntegrations(stores.resources)
        self._spool = Spool(
            self._settings.data, self._settings.worker[0], lambda: self._webhooks().spool_bytes
        )
        capture = self._capture = Capture(
            *(stores.resources, stores.queues, Sealer(self._master.key), managed.clock_us),
            *(known, self._spool, lambda: self._webhooks().event_bytes),
            lambda request: client_of(
                request, self._policy.trusted_proxies, self._policy.ipv6_prefix
            ),
        )
        audit = CustomerAudit(managed.customers)
        notices = Notices(stores.notices, stores.resources, stores.queues, audit=audit)
        application = build_application(
            self._deps(stores, audit, capture, sender, managed.clock_us)
        )
        # When nothing is captured any more, so that a successor can have the file.
        stack.push_async_callback(self._spool.close)
        stack.push_async_callback(self._finish)
        # What comes in an outage that begins now is of a known integration, too.
        with suppress(StoreDown):
            await known.load()
        for sockets in self._init.sockets:
            for bound in sockets:
                listener = CourierListener(application)
                self._listeners.append(listener)
                await listener.start(bound)
        self._delivering = tasks.spawn(self._deliver(), "deliveries")
        tasks.keep_running(stack, self._listen(), "what is due")
        tasks.keep_running(stack, stores.budget.run(stores.queues), "budget of webhooks")
        tasks.keep_running(stack, notices.run(), "notices")
        tasks.keep_running(stack, known.run(), "known integrations")
        tasks.keep_running(stack, self._spool.run(capture.accept_spooled), "spool of webhooks")
        self._state = lifecycle.step(self._state, lifecycle.Event.OPENED)

    def _deps(
        self,
        stores: WebhookStores,
        audit: CustomerAudit,
        capture: Capture,
        sender: Sender,
        clock_us: Callable[[], int],
    ) -> ApplicationDeps:
        return ApplicationDeps(
            token=self._token,
            watches=Watches(
                *(stores.resources, audit, self._master.key, clock_us),
                lambda: self._webhooks().destinations,
            ),
            deliveries=Deliveries(stores.resources, stores.queues, audit, clock_us),
            capture=capture,
            sender=sender,
            master=self._master.key,
            clock_us=clock_us,
            settings=self._webhooks,
        )

    def _webhooks(self) -> WebhookSettings:
        return self._policy.webhooks

    def _trusted(self, stack: AsyncExitStack) -> Callable[[], ssl.SSLContext]:
        """What is trusted now. Raises CannotStart."""
        if (always := self._trust) is not None:
            return lambda: always
        trust = ReceiverTrust(lambda: self._webhooks().ca)
        tasks.keep_running(stack, trust.run(), "authorities of receivers")
        return lambda: trust.context

    def _use(self, policy: Policy) -> None:
        self._policy = policy
        self._init.policy_loaded(policy, self._watch.was_requested)

    def _measured(self) -> WebhookMetrics:
        metrics, settings = self._courier.metrics, self._webhooks()
        metrics.captured = self._capture.results
        metrics.slots, metrics.slots_used = settings.slots, self._courier.in_flight
        metrics.bytes_budget = settings.budget_bytes
        spool = self._spool
        metrics.spool_bytes, metrics.spooled = spool.bytes, spool.spooled
        metrics.spool_replayed = spool.replayed
        metrics.store_has(self._stores.budget.shards)
        return metrics

    # -- while it runs ----------------------------------------------------------------------------

    async def _deliver(self) -> None:
        """Deliver, if the webhook key is that of the store's watches."""
        throttle = LogThrottle(_LOG_EVERY_S)
        while not await self._has_key():
            if throttle.suppressed("key", time.monotonic()) is not None:
                log.error(_ANOTHER_KEY, self._master.source)
            await asyncio.sleep(_AGAIN_S)
        self._is_delivering, self._detail = True, "ok"
        while True:
            try:
                await self._courier.run()
            except Exception as error:
                log.error("deliveries failed, and begin again: %r", error)
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    async def _has_key(self) -> bool:
        while True:
            try:
                found: bool = await self._stores.resources.has_mark(self._master.mark)
            except StoreDown as error:
                self._detail = with_cure(error)
                await asyncio.sleep(_AGAIN_S)
            else:
                self._detail = "ok" if found else "another webhook key"
                return found

    async def _finish(self) -> None:
        """End what is in flight, and then what is asked, within DRAIN_S and _LEAST_S."""
        until_s = time.monotonic() + DRAIN_S
        self._courier.stop()
        if self._delivering is not None and self._is_delivering:
            await asyncio.wait({self._delivering}, timeout=DRAIN_S)
        await tasks.end(self._delivering)
        self._answering = [tasks.spawn(each.stop(), "listener's end") for each in self._listeners]
        if self._answering:
            left_s = 0.0 if self._is_stopping_now else until_s - time.monotonic()
            await asyncio.wait(self._answering, timeout=max(left_s, _LEAST_S))
        await tasks.end(*self._answering)

    async def _listen(self) -> None:
        """Wake the courier when something is due, so that it need not wait until it looks."""
        while True:
            with suppress(StoreDown):
                async for shard in listen(self._store):
                    self._courier.wake(shard)
            await asyncio.sleep(_AGAIN_S)


def _keep_policy(faults: PolicyFaults) -> None:
    log.error("policy reload failed; keeping the previous policy: %s", faults)
