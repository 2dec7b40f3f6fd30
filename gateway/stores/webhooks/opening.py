"""Opens what is stored of webhooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gateway.domain.webhooks.settings import WebhookSettings
from gateway.stores.webhooks.budget import Budget
from gateway.stores.webhooks.notices import NoticeStore
from gateway.stores.webhooks.queue import SHARDS, DeliveryQueue, shard_of
from gateway.stores.webhooks.resources import Resources
from gateway.stores.webhooks.scripts import Execute


@dataclass(frozen=True, slots=True)
class WebhookStores:
    """Integrations and watches, notices, and the events and deliveries of each shard.

    budget: of all shards; what accepts events for longer has to run it
    """

    resources: Resources
    notices: NoticeStore
    queues: tuple[DeliveryQueue, ...]
    budget: Budget

    def queue_of(self, integration: str) -> DeliveryQueue:
        """The queue of an integration's events."""
        return self.queues[shard_of(integration)]


def open_webhooks(execute: Execute, settings: Callable[[], WebhookSettings]) -> WebhookStores:
    """The stores over any function that sends commands; every method raises StoreDown."""
    budget = Budget(lambda: settings().budget_bytes, lambda: settings().keep_s)
    queues = (
        DeliveryQueue(
            execute,
            shard,
            partial(budget.of, shard),
            lambda: settings().per_watch,
            lambda: settings().keep_s,
            partial(budget.share_of, shard),
        )
        for shard in range(SHARDS)
    )
    return WebhookStores(Resources(execute), NoticeStore(execute), tuple(queues), budget)
