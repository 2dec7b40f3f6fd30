"""The HTTP application that captures what providers send: `POST /hooks/{capture}`.

A webhook is answered 202 once it is kept. What is wrong with one is said without naming the
integration: the address is the only thing that a stranger knows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from aiohttp import web

from gateway.domain.ports import BudgetSpent, CorruptRecord, StoreDown
from gateway.domain.webhooks.events import MOST_EVENT, Event, Integration, NotJson, captured
from gateway.domain.webhooks.signatures import Unverified
from gateway.stores.webhooks.queue import DeliveryQueue, shard_of
from gateway.stores.webhooks.records import is_capture
from gateway.webhooks.sealing import Sealer

log = logging.getLogger("gateway")

#: After so many seconds a provider may try again, where there is no room or no store.
RETRY_S: Final = 30


class CaptureStore(Protocol):
    """What `stores.webhooks.resources` keeps."""

    async def captures_to(self, capture: str) -> Integration | None: ...


class Capture:
    """Captures webhooks of all kinds.

    queues: by shard; results: how many webhooks of each kind had which result
    """

    def __init__(
        self,
        store: CaptureStore,
        queues: Sequence[DeliveryQueue],
        sealer: Sealer,
        clock_us: Callable[[], int],
    ) -> None:
        self._store = store
        self._queues = queues
        self._sealer = sealer
        self._clock_us = clock_us
        self.results: Counter[tuple[str, str]] = Counter()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=MOST_EVENT)
        application.router.add_post("/hooks/{capture}", self.serve)
        return application

    async def serve(self, request: web.Request) -> web.Response:
        try:
            integration = await self._integration(request.match_info["capture"])
        except (StoreDown, CorruptRecord) as error:
            log.warning("a webhook cannot be captured: %s", error)
            return self._answer("", "unavailable", 503, "Try again later.")
        if integration is None:
            return self._answer("", "unknown", 404, "Nothing is captured at this address.")
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            words = f"The webhook is larger than {MOST_EVENT} bytes."
            return self._answer(integration.kind, "too_large", 413, words)
        return await self._captured(integration, body, request)

    async def _integration(self, capture: str) -> Integration | None:
        found = await self._store.captures_to(capture) if is_capture(capture) else None
        return None if found is None or found.is_paused else found

    async def _captured(
        self, integration: Integration, body: bytes, request: web.Request
    ) -> web.Response:
        kind = integration.kind

        def header(name: str) -> str:
            return request.headers.get(name, "")

        try:
            secrets = self._sealer.open(integration.id, integration.sealed)
            event = captured(integration, body, header, secrets, self._clock_us())
            if event is None:
                return self._answer(kind, "ignored", 202, "Events of this type are not captured.")
            deliveries = await self._accept(integration, event)
        except Unverified as error:
            return self._answer(kind, "unverified", 401, f"Not verified: {error}.")
        except NotJson:
            return self._answer(kind, "not_json", 400, "The body is not JSON.")
        except BudgetSpent:
            return self._answer(kind, "full", 503, "There is no room for it now. Try again later.")
        except (StoreDown, CorruptRecord) as error:
            log.warning("a webhook of %s cannot be captured: %s", integration.id, error)
            return self._answer(kind, "unavailable", 503, "Try again later.")
        words = f"Captured as {event.id}, for {deliveries} deliveries."
        return self._answer(kind, "captured", 202, words)

    async def _accept(self, integration: Integration, event: Event) -> int:
        queue = self._queues[shard_of(integration.id)]
        return await queue.accept(integration.id, event.id, event.type, event.body)

    def _answer(self, kind: str, result: str, status: int, message: str) -> web.Response:
        self.results[kind, result] += 1
        headers = {"Retry-After": str(RETRY_S)} if status == 503 else None
        body = {"result": result, "message": message}
        return web.json_response(body, status=status, headers=headers)
