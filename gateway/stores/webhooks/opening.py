"""Opens what is stored of webhooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.webhooks.settings import WebhookSettings
from gateway.stores.redis.errors import translating
from gateway.stores.webhooks.queue import SHARDS, DeliveryQueue, Execute, shard_of
from gateway.stores.webhooks.resources import Resources


@dataclass(frozen=True, slots=True)
class WebhookStores:
    """Integrations and watches, and the events and deliveries of each shard."""

    resources: Resources
    queues: tuple[DeliveryQueue, ...]

    def queue_of(self, integration: str) -> DeliveryQueue:
        """The queue of an integration's events."""
        return self.queues[shard_of(integration)]


def open_webhooks(execute: Execute, settings: Callable[[], WebhookSettings]) -> WebhookStores:
    """The stores over any function that sends commands; every method raises StoreDown.

    A shard may have the whole budget here: couriers know how much the others have.
    """
    queues = (
        DeliveryQueue(
            execute,
            shard,
            lambda: settings().budget_bytes,
            lambda: settings().per_watch,
            lambda: settings().keep_s,
        )
        for shard in range(SHARDS)
    )
    return WebhookStores(translating(Resources(execute)), tuple(map(translating, queues)))
