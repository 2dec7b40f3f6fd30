"""Integrations, watches, events and deliveries, as one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.domain.ports import AuditStore
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.manage.account_hooks import AccountHooks, EventStore, HookStore
from gateway.manage.deliveries import Deliveries, Queue, ReplayStore
from gateway.manage.integrations import EventQueue, Integrations, IntegrationStore, Sealing
from gateway.manage.watches import Watches, WatchStore


class ResourceStore(IntegrationStore, WatchStore, ReplayStore, HookStore, Protocol):
    """What `stores.webhooks.resources` keeps."""


class IntegrationQueue(EventQueue, EventStore, Protocol):
    """The events of an integration."""


class WebhookStores(Protocol):
    """What `stores.webhooks.opening` opens. queues: by shard"""

    @property
    def resources(self) -> ResourceStore: ...

    @property
    def queues(self) -> Sequence[Queue]: ...

    def queue_of(self, integration: str) -> IntegrationQueue: ...


@dataclass(frozen=True, slots=True)
class Webhooks:
    """What the faces for operators use."""

    integrations: Integrations
    watches: Watches
    deliveries: Deliveries
    accounts: AccountHooks


def build_webhooks(
    stores: WebhookStores,
    audit: AuditStore,
    master: bytes,
    sealer: Sealing,
    clock_us: Callable[[], int],
    settings: Callable[[], WebhookSettings] = WebhookSettings,
) -> Webhooks:
    """Build it on these stores.

    master: the webhook key; sealer: of the secrets of providers, by the same key
    """
    return Webhooks(
        Integrations(
            *(stores.resources, audit, stores.queue_of, sealer, clock_us),
            lambda: settings().event_bytes,
        ),
        Watches(stores.resources, audit, master, clock_us, lambda: settings().destinations),
        Deliveries(stores.resources, stores.queues, audit, clock_us),
        AccountHooks(stores.resources, stores.queue_of),
    )
