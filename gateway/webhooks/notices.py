"""Turns notices into events of the integrations of the kinds `gateway` and `operator`.

A notice is read, accepted into the shard of each integration that gets it, and then removed. Its
event has always the same id. So a courier that dies between loses nothing, and what several do at
the same time, or do again, is accepted once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from urllib.parse import urlsplit

from gateway.domain.audit import Event as AuditEvent
from gateway.domain.ports import AuditWriter, CorruptRecord, StoreDown
from gateway.domain.warnings import LimitWarning
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.kinds.own import GATEWAY, OPERATOR
from gateway.domain.webhooks.notices import (
    Disabled,
    Notice,
    disabled_notice,
    event_of,
    limit_notice,
)
from gateway.domain.webhooks.watches import Watch
from gateway.manage import audit_log
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.webhooks.notices import NoticeStore
from gateway.stores.webhooks.queue import BudgetSpent, DeliveryQueue, shard_of

log = logging.getLogger("gateway")

#: How often notices are looked for; and while some cannot be accepted.
EVERY_S: Final = 1.0
STUCK_S: Final = 10.0
#: How long the operators' integrations are cached: to find them, all are read.
OPERATORS_S: Final = 5.0
_BATCH: Final = 100
_LOG_EVERY_S: Final = 60.0


class Resources(Protocol):
    """What `stores.webhooks.resources` keeps; its methods may raise StoreDown and CorruptRecord."""

    async def integration(self, integration: str) -> Integration | None: ...
    async def integrations(self) -> list[Integration]: ...
    async def watch(self, integration: str, watch: str) -> Watch | None: ...


class Notices:
    """Takes notices until it is cancelled.

    queues:      by shard
    monotonic_s: the time in which operators' integrations are cached
    audit:       gets an entry for each watch that was disabled
    dropped:     notices, of all gateways, that there was no room for
    """

    def __init__(
        self,
        store: NoticeStore,
        resources: Resources,
        queues: Sequence[DeliveryQueue],
        monotonic_s: Callable[[], float] = time.monotonic,
        audit: AuditWriter | None = None,
    ) -> None:
        self.dropped = 0
        self._store = store
        self._resources = resources
        self._queues = queues
        self._monotonic_s = monotonic_s
        self._audit = audit
        self._throttle = LogThrottle(_LOG_EVERY_S)
        self._operators: tuple[Integration, ...] = ()
        self._operators_until_s: float | None = None
        #: Of one round: shards that take nothing, and the integrations of accounts.
        self._stuck: set[int] = set()
        self._of_accounts: dict[str, tuple[Integration, ...]] = {}

    async def run(self) -> None:
        """Take notices until cancelled, also after errors of the store."""
        while True:
            try:
                await self.take()
            except StoreDown as error:
                self._log_throttled("notices cannot be read: %s", error)
            await asyncio.sleep(STUCK_S if self._stuck else EVERY_S)

    async def take(self) -> None:
        """Accept all notices that wait. Raises StoreDown."""
        self._stuck.clear()
        self._of_accounts.clear()
        if dropped := await self._store.dropped():
            self.dropped += dropped
            log.warning("%d notices were dropped, as too many waited", dropped)
        await self._take_limits()
        for shard in range(len(self._queues)):
            try:
                await self._take_disabled(shard)
            except StoreDown as error:
                self._set_stuck(shard, error)

    # ----------------------------------------------------------------------------------------------

    async def _take_limits(self) -> None:
        skip = 0
        while found := await self._store.limits(skip, _BATCH):
            done = [
                read
                for read, warning in found
                if warning is None or await self._tell_of_limit(warning)
            ]
            await self._store.remove(*done)
            skip += len(found) - len(done)

    async def _take_disabled(self, shard: int) -> None:
        skip = 0
        while found := await self._store.disabled(shard, skip, _BATCH):
            done = [
                read
                for read, disabled in found
                if disabled is None or await self._tell_of_disabled(read, disabled)
            ]
            await self._store.remove_disabled(shard, *done)
            skip += len(found) - len(done)

    async def _tell_of_limit(self, warning: LimitWarning) -> bool:
        """Tell the account. False: it is not accepted yet."""
        receivers = await self._of(warning.account)
        return not receivers or await self._accept(limit_notice(warning), receivers)

    async def _tell_of_disabled(self, read: bytes, disabled: Disabled) -> bool:
        """Tell the audit log, the account and the operators. False: not all accepted it yet."""
        if self._audit is not None and await self._store.is_first(read):
            after = {"status": "disabled", "reason": disabled.why}
            subject = f"watch:{disabled.watch}"
            event = AuditEvent(
                disabled.at_us, "courier", "watch.disable", subject, before=None, after=after
            )
            await audit_log.note(self._audit, event)
        integration = await self._integration(disabled.integration)
        if integration is None:
            return True  # removed with its watches
        try:
            watch = await self._resources.watch(integration.id, disabled.watch)
        except CorruptRecord:
            watch = None
        host = "" if watch is None else urlsplit(watch.url).hostname or ""
        notice = disabled_notice(disabled, integration, host)
        receivers = (*await self._of(integration.account), *await self._of_operators())
        return await self._accept(notice, receivers)

    async def _accept(self, notice: Notice, receivers: Sequence[Integration]) -> bool:
        is_accepted = True
        for integration in receivers:
            shard = shard_of(integration.id)
            if shard in self._stuck:
                is_accepted = False
                continue
            event = event_of(integration, notice)
            queue = self._queues[shard]
            try:
                await queue.accept(
                    *(integration.id, event.id, event.type, event.body), integration.account
                )
            except BudgetSpent:
                self._set_stuck(shard, "there is no room for events")
                is_accepted = False
            except StoreDown as error:
                self._set_stuck(shard, error)
                is_accepted = False
        return is_accepted

    # -- who gets them -----------------------------------------------------------------------------

    async def _of(self, account: str) -> tuple[Integration, ...]:
        """The account's integration of the kind `gateway`, if it has one that is not paused."""
        if account not in self._of_accounts:
            named = await self._store.integration_for(account)
            found = None if named is None else await self._integration(named)
            receives = (
                found is not None
                and (found.account, found.kind) == (account, GATEWAY.name)
                and not found.is_paused
            )
            self._of_accounts[account] = (found,) if found is not None and receives else ()
        return self._of_accounts[account]

    async def _of_operators(self) -> tuple[Integration, ...]:
        now_s = self._monotonic_s()
        if self._operators_until_s is None or now_s >= self._operators_until_s:
            self._operators = tuple(
                each
                for each in await self._resources.integrations()
                if each.kind == OPERATOR.name and not each.is_paused
            )
            self._operators_until_s = now_s + OPERATORS_S
        return self._operators

    async def _integration(self, integration: str) -> Integration | None:
        try:
            return await self._resources.integration(integration)
        except CorruptRecord as error:
            self._log_throttled("a notice has no receiver: %s", error)
            return None

    def _set_stuck(self, shard: int, why: object) -> None:
        self._stuck.add(shard)
        self._log_throttled("notices cannot be accepted, and will be retried: %s", why)

    def _log_throttled(self, words: str, why: object) -> None:
        if self._throttle.suppressed(words, self._monotonic_s()) is not None:
            log.warning(words, why)
