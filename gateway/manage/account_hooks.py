"""What becomes of an account's integrations when it is suspended, resumed or deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import Watch


class HookStore(Protocol):
    """What `stores.webhooks.resources` keeps."""

    async def integrations_of(self, account: str) -> list[Integration]: ...
    async def watches(self, integration: str) -> list[Watch]: ...
    async def suspend(self, watch: Watch) -> None: ...
    async def restore(self, watch: Watch) -> None: ...
    async def remove_integration(self, integration: Integration) -> None: ...


class EventStore(Protocol):
    """What `stores.webhooks.queue` keeps of integrations."""

    async def purge(self, integration: str) -> None: ...


class AccountHooks:
    """The integrations of accounts. queue_of: the events of an integration"""

    def __init__(self, store: HookStore, queue_of: Callable[[str], EventStore]) -> None:
        self._store = store
        self._queue_of = queue_of

    async def count(self, account: str) -> int:
        """How many integrations an account has."""
        return len(await self._store.integrations_of(account))

    async def suspend(self, account: str) -> None:
        """Its watches get nothing until `restore`. Couriers do the same of watches made later."""
        for watch in await self._watches(account):
            await self._store.suspend(watch)

    async def restore(self, account: str) -> None:
        """Deliver what waits, but for watches that were paused by somebody."""
        for watch in await self._watches(account):
            await self._store.restore(watch)

    async def remove(self, account: str) -> int:
        """Remove its integrations with their watches and events; how many."""
        its = await self._store.integrations_of(account)
        for integration in its:
            await self._store.remove_integration(integration)
            await self._queue_of(integration.id).purge(integration.id)
        return len(its)

    async def _watches(self, account: str) -> list[Watch]:
        its = await self._store.integrations_of(account)
        return [watch for each in its for watch in await self._store.watches(each.id)]
