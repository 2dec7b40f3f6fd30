"""The HTTP application that captures what providers send: `POST /hooks/{capture}`.

A webhook is answered 202 once it is kept. What is wrong with one is said without naming the
integration: the address is the only thing that a stranger knows. A refusal has the form of the
gateway's errors.

While the store is unavailable, webhooks of the integrations that were known before are kept in a
local file.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from aiohttp import web

from gateway import errors
from gateway.domain.ports import BudgetSpent, CorruptRecord, StoreDown
from gateway.domain.webhooks.events import (
    MOST_EVENT,
    Event,
    Integration,
    NotJson,
    TooLarge,
    captured,
)
from gateway.domain.webhooks.signatures import Unverified
from gateway.manage.deliveries import queued_words
from gateway.manage.refusals import BODIES_FULL, BODY_NOT_JSON, FULL, Refused, Told, told
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.webhooks.queue import DeliveryQueue, shard_of
from gateway.stores.webhooks.records import is_capture
from gateway.webhooks.answers import refused, shown
from gateway.webhooks.bodies import BodiesFull, BodyBudget
from gateway.webhooks.known import KnownIntegrations
from gateway.webhooks.requests import client_of, read_body, request_id_of
from gateway.webhooks.sealing import Sealer
from gateway.webhooks.spool import Spool, SpoolFull
from gateway.webhooks.turns import Turns

log = logging.getLogger("gateway")

#: A larger webhook may take 5 to 80 ms of the event loop. They are read one at a time, those of all
#: accounts in turn, and after each the loop is left to all else for as long as it took.
LARGE: Final = 64 * 1024
#: After so many seconds a provider may try again, where there is no store.
RETRY_S: Final = 30


class CaptureStore(Protocol):
    """What `stores.webhooks.resources` keeps."""

    async def captures_to(self, capture: str) -> Integration | None: ...
    async def integration(self, integration: str) -> Integration | None: ...
    async def is_marked(self) -> bool: ...


class Capture:
    """Captures webhooks of all kinds.

    queues:     by shard
    known:      integrations, for an outage; spool: for their webhooks; None: they are refused then
    most_bytes: of a webhook, and of its event
    client:     the address of a request's client; "": it is not known
    bodies:     of webhooks that are read at once
    results:    how many webhooks of each kind had which result
    """

    def __init__(
        self,
        store: CaptureStore,
        queues: Sequence[DeliveryQueue],
        sealer: Sealer,
        clock_us: Callable[[], int],
        known: KnownIntegrations | None = None,
        spool: Spool | None = None,
        most_bytes: Callable[[], int] = lambda: MOST_EVENT,
        client: Callable[[web.Request], str] = client_of,
        bodies: BodyBudget | None = None,
    ) -> None:
        self._store = store
        self._known = known
        self._spool = spool
        self._queues = queues
        self._sealer = sealer
        self._clock_us = clock_us
        self._most_bytes = most_bytes
        self._client = client
        self._bodies = bodies or BodyBudget()
        self._large = Turns(at_once=1, of_account=1, most_of_account=None)
        self._throttle = LogThrottle()
        self.results: Counter[tuple[str, str]] = Counter()

    async def serve(self, request: web.Request) -> web.Response:
        request_id = request_id_of(request)
        kind = ""
        try:
            integration, is_outage = await self._captured_by(request.match_info["capture"])
            kind = integration.kind
            senders = [integration.capture, self._client(request)]
            with self._bodies.body(*filter(None, senders)) as held:
                body = await read_body(request, self._most_bytes(), held)
                result, words = await self._captured(integration, body, request, is_outage)
        except BodiesFull:
            self.results[kind, BODIES_FULL.reason] += 1
            return refused(told(BODIES_FULL), request_id)
        except _NotCaptured as error:
            self.results[kind, error.result] += 1
            return refused(error.told, request_id, retry_s=RETRY_S)
        except Refused as error:
            self.results[kind, error.refusal.reason] += 1
            return refused(told(error.refusal, error.named), request_id)
        self.results[kind, result] += 1
        return shown({"result": result, "message": words, "request_id": request_id}, 202)

    async def _captured_by(self, capture: str) -> tuple[Integration, bool]:
        """The integration of an address, and is the store unavailable? Raises _NotCaptured."""
        is_outage = False
        try:
            found = await self._store.captures_to(capture) if is_capture(capture) else None
        except CorruptRecord as error:
            raise self._unavailable("a webhook", error) from error
        except StoreDown as error:
            is_outage = True
            found = None if self._known is None else self._known.captures_to(capture)
            if found is None:
                raise self._unavailable("a webhook", error) from error
        if found is None or found.is_paused:
            unknown = Told(errors.NOT_FOUND, "Nothing is captured at this address.")
            raise _NotCaptured("unknown", unknown)
        return found, is_outage

    async def _captured(
        self, integration: Integration, body: bytes, request: web.Request, is_outage: bool
    ) -> tuple[str, str]:
        """The result, and words for the provider. Raises _NotCaptured."""

        def header(name: str) -> str:
            if name == integration.id_header:
                # Of two there is no telling which is the id: as one value, they cannot be any.
                return ", ".join(request.headers.getall(name, []))
            return request.headers.get(name, "")

        try:
            event = await self._read(integration, body, header)
            if event is None:
                return "ignored", "Events of this type are not captured."
            deliveries = await self._kept(integration, event, is_outage)
        except Unverified as error:
            why = told(errors.SIGNATURE_INVALID, str(error))
            raise _NotCaptured("unverified", why) from error
        except NotJson as error:
            reason = f" Reason: {error}." if str(error) else ""
            why = Told(BODY_NOT_JSON, f"The body is not JSON.{reason}")
            raise _NotCaptured("not_json", why) from error
        except TooLarge as error:
            words = f"Its event would have {error.size} bytes. At most: {error.most} bytes."
            refusal = errors.BODY_TOO_LARGE
            raise _NotCaptured(refusal.reason, Told(refusal, words)) from error
        except (BudgetSpent, SpoolFull) as error:
            if isinstance(error, SpoolFull):
                self._warn(f"a webhook of {integration.id} cannot be kept", error, "full")
            raise _NotCaptured("full", told(FULL)) from error
        except (StoreDown, CorruptRecord) as error:
            raise self._unavailable(f"a webhook of {integration.id}", error) from error
        if deliveries is None:
            return "spooled", f"Captured as {event.id}, which is delivered later."
        return "captured", f"Captured as {event.id}; {queued_words(deliveries)}."

    async def _read(
        self, integration: Integration, body: bytes, header: Callable[[str], str]
    ) -> Event | None:
        """The event of a webhook; raises what `captured` does."""
        secrets = self._sealer.open(integration.id, integration.sealed)

        def read() -> Event | None:
            now_us, most = self._clock_us(), self._most_bytes()
            return captured(integration, body, header, secrets, now_us, most)

        if len(body) <= LARGE:
            return read()
        async with self._large.of(integration.account):
            began = time.monotonic()
            try:
                return read()
            finally:
                await asyncio.sleep(time.monotonic() - began)

    async def accept_spooled(self, integration: str, event: Event) -> int:
        """Keep an event of the local file in the store. Raises StoreDown, BudgetSpent.

        It waits while the store has no data: a backup may be restored.
        """
        try:
            its = await self._store.integration(integration)
        except CorruptRecord:
            return await self._accept(integration, "", event)
        if its is not None:
            return await self._accept(integration, its.account, event)
        if not await self._store.is_marked():
            raise StoreDown("the store has lost its integrations")
        self._warn(f"a webhook of {integration} is dropped", "it was removed", "removed")
        return 0

    async def _accept(self, integration: str, account: str, event: Event) -> int:
        """How many deliveries an event has, which is kept in the store."""
        queue = self._queues[shard_of(integration)]
        return await queue.accept(integration, event.id, event.type, event.body, account)

    async def _kept(self, integration: Integration, event: Event, is_outage: bool) -> int | None:
        """Its deliveries; None: it is in the local file."""
        if not is_outage:
            try:
                return await self._accept(integration.id, integration.account, event)
            except StoreDown:
                if self._spool is None:
                    raise
        if self._spool is None:
            raise StoreDown("the store is unavailable")
        await self._spool.add(integration.id, event)
        return None

    def _unavailable(self, what: str, error: Exception) -> _NotCaptured:
        # In an outage one line stands for all webhooks, a corrupt record for those of its own.
        subject = "store" if isinstance(error, StoreDown) else what
        self._warn(f"{what} cannot be captured", error, subject)
        return _NotCaptured("unavailable", told(errors.STORE_UNAVAILABLE))

    def _warn(self, words: str, error: Exception | str, subject: str) -> None:
        if (suppressed := self._throttle.suppressed(subject, time.monotonic())) is not None:
            more = f" ({suppressed} such webhooks were suppressed)" if suppressed else ""
            log.warning("%s: %s%s", words, error, more)


class _NotCaptured(Exception):
    """result: as metrics name it; told: what the provider is told"""

    def __init__(self, result: str, told: Told) -> None:
        super().__init__(result)
        self.result = result
        self.told = told
