"""A courier's application over a real Redis, and a client that sends what a worker would."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Self

from redis.asyncio import Redis

from gateway.domain.webhooks.destinations import Destinations
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.manage.deliveries import Deliveries
from gateway.manage.watches import Watches
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.redis.errors import translating
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.queue import SHARDS, DeliveryQueue
from gateway.stores.webhooks.resources import Resources
from gateway.webhooks.application import ApplicationDeps, build_application
from gateway.webhooks.bodies import BodyBudget
from gateway.webhooks.capture import Capture
from gateway.webhooks.listener import CourierListener
from gateway.webhooks.sealing import Sealer
from gateway.webhooks.sender import Sender
from tests.kit.wire import Response, fetch

MASTER = b"m" * 32
TOKEN = "0123456789abcdef" * 4
NOW_US = 1_800_000_000_000_000
CAPTURE = "fedcba9876543210" * 2
GIVEN = {"url": "https://hook.example/", "events": ["pull_request.*"]}
WATCHES = "/api/v1/integrations/int_1/watches"


class Scene:
    """The application, which is served within its `async with`. settings, budget: can be changed

    bodies: room for webhooks that are read
    """

    def __init__(
        self, client: Redis, sender: Sender | None = None, bodies: BodyBudget | None = None
    ) -> None:
        self.client = client
        self.budget = 1_000_000
        self.store: Resources = translating(Resources(executing(client)))
        self.queues = [
            translating(DeliveryQueue(executing(client), shard, lambda: self.budget))
            for shard in range(SHARDS)
        ]
        self.audit = MemoryAuditStore()
        self.settings = WebhookSettings()
        self.watches = Watches(
            *(self.store, self.audit, MASTER, lambda: NOW_US), lambda: self.settings.destinations
        )
        self.sealer = Sealer(MASTER)
        self.sender = sender or Sender(Destinations)
        self.deliveries = Deliveries(self.store, self.queues, self.audit, lambda: NOW_US)
        self.capture = Capture(
            *(self.store, self.queues, self.sealer, lambda: NOW_US),
            most_bytes=lambda: self.settings.event_bytes,
            bodies=bodies,
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        await self._stack.enter_async_context(self.sender)
        application = build_application(
            ApplicationDeps(
                token=TOKEN,
                watches=self.watches,
                deliveries=self.deliveries,
                capture=self.capture,
                sender=self.sender,
                master=MASTER,
                clock_us=lambda: NOW_US,
                settings=lambda: self.settings,
            )
        )
        at = socket.create_server(("127.0.0.1", 0))
        self.port: int = at.getsockname()[1]
        self.listener = CourierListener(application)
        await self.listener.start(at)
        self._stack.push_async_callback(self.listener.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def add_integrations(self) -> None:
        """One of the account acme, and one of another."""
        sealed = self.sealer.seal("int_1", ["s" * 20])
        await self.store.add_integration(
            Integration("int_1", "acme", "github", "Code", 1, CAPTURE, sealed)
        )
        await self.store.add_integration(Integration("int_2", "other", "github", "Theirs", 1))

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        account: str = "acme",
        more: Sequence[tuple[str, str]] = (),
        **headers: str | None,
    ) -> Response:
        """What a worker sends. headers: by names with _ for -; None: without this one"""
        given = {
            "X-Gateway-Courier": TOKEN,
            "X-Gateway-Account": account,
            "X-Gateway-Key-Id": "7h3k9m2p4q6r",
            "X-Request-Id": "worker-1",
            "Content-Type": None if body is None else "application/json",
        }
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        fields = [(name, value) for name, value in given.items() if value is not None]
        return await fetch(self.port, path, method=method, headers=[*fields, *more], body=content)
