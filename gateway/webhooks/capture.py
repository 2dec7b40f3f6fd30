"""The HTTP application that captures what providers send: `POST /hooks/{capture}`.

A webhook is answered 202 once it is kept. What is wrong with one is said without naming the
integration: the address is the only thing that a stranger knows.

While the store is unavailable, webhooks of the integrations that were known before are kept in a
local file.
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
from gateway.webhooks.known import KnownIntegrations
from gateway.webhooks.sealing import Sealer
from gateway.webhooks.spool import Spool, SpoolFull

log = logging.getLogger("gateway")

#: After so many seconds a provider may try again, where there is no room or no store.
RETRY_S: Final = 30


class CaptureStore(Protocol):
    """What `stores.webhooks.resources` keeps."""

    async def captures_to(self, capture: str) -> Integration | None: ...


class Capture:
    """Captures webhooks of all kinds.

    queues:  by shard
    known:   integrations, for an outage; spool: for their webhooks; None: they are refused then
    results: how many webhooks of each kind had which result
    """

    def __init__(
        self,
        store: CaptureStore,
        queues: Sequence[DeliveryQueue],
        sealer: Sealer,
        clock_us: Callable[[], int],
        known: KnownIntegrations | None = None,
        spool: Spool | None = None,
    ) -> None:
        self._store = store
        self._known = known
        self._spool = spool
        self._queues = queues
        self._sealer = sealer
        self._clock_us = clock_us
        self.results: Counter[tuple[str, str]] = Counter()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=MOST_EVENT)
        application.router.add_post("/hooks/{capture}", self.serve)
        return application

    async def serve(self, request: web.Request) -> web.Response:
        is_outage = False
        try:
            integration = await self._integration(request.match_info["capture"])
        except (StoreDown, CorruptRecord) as error:
            is_outage = isinstance(error, StoreDown)
            integration = self._known_integration(request.match_info["capture"])
            if not is_outage or integration is None:
                log.warning("a webhook cannot be captured: %s", error)
                return self._answer("", "unavailable", 503, "Try again later.")
            if integration.is_paused:
                integration = None
        if integration is None:
            return self._answer("", "unknown", 404, "Nothing is captured at this address.")
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            words = f"The webhook is larger than {MOST_EVENT} bytes."
            return self._answer(integration.kind, "too_large", 413, words)
        return await self._captured(integration, body, request, is_outage)

    async def _integration(self, capture: str) -> Integration | None:
        found = await self._store.captures_to(capture) if is_capture(capture) else None
        return None if found is None or found.is_paused else found

    def _known_integration(self, capture: str) -> Integration | None:
        return None if self._known is None else self._known.captures_to(capture)

    async def _captured(
        self, integration: Integration, body: bytes, request: web.Request, is_outage: bool
    ) -> web.Response:
        kind = integration.kind

        def header(name: str) -> str:
            return request.headers.get(name, "")

        try:
            secrets = self._sealer.open(integration.id, integration.sealed)
            event = captured(integration, body, header, secrets, self._clock_us())
            if event is None:
                return self._answer(kind, "ignored", 202, "Events of this type are not captured.")
            deliveries = await self._kept(integration, event, is_outage)
        except Unverified as error:
            return self._answer(kind, "unverified", 401, f"Not verified: {error}.")
        except NotJson:
            return self._answer(kind, "not_json", 400, "The body is not JSON.")
        except (BudgetSpent, SpoolFull) as error:
            if isinstance(error, SpoolFull):
                log.warning("a webhook of %s cannot be kept: %s", integration.id, error)
            return self._answer(kind, "full", 503, "There is no room for it now. Try again later.")
        except (StoreDown, CorruptRecord) as error:
            log.warning("a webhook of %s cannot be captured: %s", integration.id, error)
            return self._answer(kind, "unavailable", 503, "Try again later.")
        if deliveries is None:
            words = f"Captured as {event.id}, which is delivered later."
            return self._answer(kind, "spooled", 202, words)
        words = f"Captured as {event.id}, for {deliveries} deliveries."
        return self._answer(kind, "captured", 202, words)

    async def accept(self, integration: str, event: Event) -> int:
        """Keep an event in the store; how many deliveries it has. Raises StoreDown, BudgetSpent."""
        queue = self._queues[shard_of(integration)]
        return await queue.accept(integration, event.id, event.type, event.body)

    async def _kept(self, integration: Integration, event: Event, is_outage: bool) -> int | None:
        """Its deliveries; None: it is in the local file."""
        if not is_outage:
            try:
                return await self.accept(integration.id, event)
            except StoreDown:
                if self._spool is None:
                    raise
        if self._spool is None:
            raise StoreDown("the store is unavailable")
        await self._spool.add(integration.id, event)
        return None

    def _answer(self, kind: str, result: str, status: int, message: str) -> web.Response:
        self.results[kind, result] += 1
        headers = {"Retry-After": str(RETRY_S)} if status == 503 else None
        body = {"result": result, "message": message}
        return web.json_response(body, status=status, headers=headers)
