"""Events and deliveries of an account: what was captured, what became of it, and once more.

An account sees its own integrations only; another one's does not exist for it. An operator sees all
of them: their account is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from gateway.domain.audit import Event
from gateway.domain.json_text import read_json
from gateway.domain.ports import (
    AuditWriter,
    BudgetSpent,
    CorruptRecord,
    ResentTooOften,
    StoreDown,
)
from gateway.domain.webhooks.deliveries import (
    ALL,
    Attempt,
    Delivery,
    Filter,
    KeptEvent,
    Page,
    Replayed,
    is_id,
    shard_of,
)
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import Watch
from gateway.manage import audit_log
from gateway.manage.audit_log import Actor
from gateway.manage.problems import Conflict, Fault, Full, Invalid, NotThere
from gateway.manage.reading import Reader, found, read_fields, read_moment_us
from gateway.manage.views import moment
from gateway.manage.watches import read_pattern

#: The most of one page, and deliveries of one replay.
MOST_PAGE: Final = 200
MOST_REPLAY: Final = 10_000
STATES: Final = ("queued", "leased", "waiting", "delivered", "dead", "cancelled")
_TOO_OFTEN: Final = "this event was sent again as often as one may be"


class ReplayStore(Protocol):
    """What `stores.webhooks.resources` keeps."""

    async def integration(self, integration: str) -> Integration | None: ...
    async def watch(self, integration: str, watch: str) -> Watch | None: ...
    async def begin_replay(self, account: str) -> str | None: ...
    async def end_replay(self, account: str, token: str) -> None: ...


class Queue(Protocol):
    """What `stores.webhooks.queue` keeps of a shard."""

    async def events(
        self, integration: str, most: int, before_us: int, wanted: Filter
    ) -> Page[KeptEvent]: ...
    async def event(self, event: str) -> KeptEvent | None: ...
    async def delivery(self, delivery: str) -> Delivery | None: ...
    async def deliveries(
        self, watch: str, most: int, before_us: int, states: Collection[str], wanted: Filter
    ) -> Page[Delivery]: ...
    async def deliveries_of(self, event: str) -> list[Delivery]: ...
    async def dead(
        self, integration: str, most: int, before_us: int, wanted: Filter
    ) -> Page[Delivery]: ...
    async def resend(self, event: str, watch: str, account: str) -> str | None: ...
    async def replay(
        self, integration: str, watch: str, from_us: int, to_us: int, most: int, account: str
    ) -> Replayed | None: ...


@dataclass(frozen=True, slots=True)
class EventView:
    """An event with its deliveries, the oldest first."""

    event: KeptEvent
    deliveries: tuple[Delivery, ...]


class Deliveries:
    """The events and deliveries of all accounts. queues: by shard; every method raises StoreDown"""

    def __init__(
        self,
        resources: ReplayStore,
        queues: Sequence[Queue],
        audit: AuditWriter,
        clock_us: Callable[[], int],
    ) -> None:
        self._resources = resources
        self._queues = queues
        self._audit = audit
        self._clock_us = clock_us

    async def events(
        self,
        account: str | None,
        integration: str,
        most: int = 50,
        before_us: int = 0,
        wanted: Filter = ALL,
    ) -> Page[KeptEvent]:
        """The newest first; large ones make a page shorter.

        Only the next 500 are searched for a type: a page may be empty though there are more.

        before_us: accepted before then; 0: any. Raises NotThere, Invalid.
        """
        queue = await self._queue(account, integration)
        return await queue.events(integration, _page(most), before_us, wanted)

    async def event_views(
        self,
        account: str | None,
        integration: str,
        most: int = 50,
        before_us: int = 0,
        wanted: Filter = ALL,
    ) -> Page[EventView]:
        """`events` with the deliveries of each."""
        queue = await self._queue(account, integration)
        kept = await queue.events(integration, _page(most), before_us, wanted)
        views = [EventView(each, tuple(await queue.deliveries_of(each.id))) for each in kept]
        return Page(views, kept.next_us)

    async def event(self, account: str | None, integration: str, event: str) -> EventView:
        """Raises NotThere."""
        queue = await self._queue(account, integration)
        kept = await self._event(queue, integration, event)
        return EventView(kept, tuple(await queue.deliveries_of(event)))

    async def of_watch(
        self,
        account: str | None,
        integration: str,
        watch: str,
        states: Collection[str] = (),
        most: int = 50,
        before_us: int = 0,
        wanted: Filter = ALL,
    ) -> Page[Delivery]:
        """Those of a watch, the newest first. states: only these; raises NotThere, Invalid

        Only the next 500 are searched for states and a type: a page may be empty though there are
        more.
        """
        queue = await self._watch(account, integration, watch)
        faults = [
            Fault("state", found(each), "one of " + ", ".join(STATES))
            for each in states
            if each not in STATES
        ]
        if faults:
            raise Invalid(*faults)
        return await queue.deliveries(watch, _page(most), before_us, states, wanted)

    async def delivery(
        self, account: str | None, integration: str, watch: str, delivery: str
    ) -> Delivery:
        """With its attempts. Raises NotThere."""
        queue = await self._watch(account, integration, watch)
        parts = delivery.split(":")
        known = None
        if len(parts) == 3 and all(map(is_id, parts)) and parts[1] == watch:
            known = await queue.delivery(delivery)
        if known is None:
            raise NotThere("there is no delivery with this id, or it is not kept any more")
        return known

    async def dead(
        self,
        account: str | None,
        integration: str,
        most: int = 50,
        before_us: int = 0,
        wanted: Filter = ALL,
    ) -> Page[Delivery]:
        """The dead letters, the last one first; what is sent again is none.

        before_us: given up before then; 0: any. wanted: by when they were given up. Raises
            NotThere, Invalid.
        """
        queue = await self._queue(account, integration)
        return await queue.dead(integration, _page(most), before_us, wanted)

    async def resend(
        self, actor: Actor, account: str | None, integration: str, watch: str, event: str
    ) -> str:
        """Deliver an event to a watch once more: the id of the delivery.

        Raises NotThere, Conflict, Full.
        """
        its = await self._integration(account, integration)
        queue = await self._watch(account, integration, watch)
        await self._event(queue, integration, event)
        try:
            made = await queue.resend(event, watch, its.account)
        except BudgetSpent as error:
            raise Full("there is no room for more deliveries until some are over") from error
        except ResentTooOften as error:
            raise Conflict(_TOO_OFTEN) from error
        if made is None:
            raise Conflict(f"watch {watch} is disabled: resume it")
        await self._note(actor, "watch.resend", watch, {"event": event, "delivery": made})
        return made

    async def replay(
        self,
        actor: Actor,
        account: str | None,
        integration: str,
        watch: str,
        from_us: int,
        to_us: int,
    ) -> Replayed:
        """Deliver the kept events of a time again, as far as the watch takes them.

        Of an account one replay at a time, whoever asks for it.

        from_us, to_us: accepted from then, and before then. Raises NotThere, Invalid, Conflict,
            Full.
        """
        its = await self._integration(account, integration)
        queue = await self._watch(account, integration, watch)
        _check_span(from_us, to_us)
        token = await self._resources.begin_replay(its.account)
        if token is None:
            raise Conflict("another replay of the account is in progress: wait until it has ended")
        try:
            made = await queue.replay(integration, watch, from_us, to_us, MOST_REPLAY, its.account)
        except BudgetSpent as error:
            raise Full("there is no room for more deliveries until some are over") from error
        finally:
            with suppress(StoreDown):
                await self._resources.end_replay(its.account, token)
        if made is None:
            raise Conflict(f"watch {watch} is disabled: resume it")
        if made.count:
            after = {"from": moment(from_us), "to": moment(to_us), "deliveries": made.count}
            await self._note(actor, "watch.replay", watch, after)
        return made

    # -- the parts ---------------------------------------------------------------------------------

    async def _integration(self, account: str | None, integration: str) -> Integration:
        its = await self._resources.integration(integration)
        if its is None or account not in (None, its.account):
            raise NotThere("there is no integration with this id")
        return its

    async def _queue(self, account: str | None, integration: str) -> Queue:
        await self._integration(account, integration)
        return self._queues[shard_of(integration)]

    async def _watch(self, account: str | None, integration: str, watch: str) -> Queue:
        queue = await self._queue(account, integration)
        try:
            its = await self._resources.watch(integration, watch)
        except CorruptRecord:
            # What was delivered to it can be looked at.
            return queue
        if its is None:
            raise NotThere("there is no watch with this id")
        return queue

    async def _event(self, queue: Queue, integration: str, event: str) -> KeptEvent:
        kept = await queue.event(event) if is_id(event) else None
        if kept is None or kept.integration != integration:
            raise NotThere("there is no event with this id, or it is not kept any more")
        return kept

    async def _note(
        self, actor: Actor, action: str, watch: str, after: Mapping[str, object]
    ) -> None:
        event = Event(
            at_us=self._clock_us(),
            actor=str(actor),
            action=action,
            subject=f"watch:{watch}",
            after=after,
        )
        await audit_log.note(self._audit, event)


#: The fields of a replay, both required.
SPAN_FIELDS: Final[Mapping[str, Reader]] = {
    name: partial(read_moment_us, name) for name in ("from", "to")
}
#: The filters of lists of events and deliveries, none required.
FILTER_FIELDS: Final[Mapping[str, Reader]] = {"type": partial(read_pattern, "type"), **SPAN_FIELDS}


def read_filter(given: Mapping[str, object]) -> Filter:
    """The filter of a list. given: some of FILTER_FIELDS; raises Invalid"""
    return filter_of(read_fields(given, FILTER_FIELDS))


def filter_of(values: Mapping[str, Any]) -> Filter:
    """The same of values that were read, among others. Raises Invalid."""
    from_us, to_us = values.get("from"), values.get("to")
    if from_us is not None and to_us is not None:
        _check_span(from_us, to_us)
    return Filter(values.get("type", ""), from_us, to_us)


def _check_span(from_us: int, to_us: int) -> None:
    if from_us >= to_us:
        raise Invalid(Fault("to", str(moment(to_us)), f"a time after {moment(from_us)}"))


def queued_words(count: int) -> str:
    """How many deliveries were queued: "1 delivery is queued"."""
    return f"{count} {'delivery is' if count == 1 else 'deliveries are'} queued"


def delivery_states(deliveries: Iterable[Delivery]) -> list[tuple[str, int]]:
    """How many of these deliveries are in each state, in the order of STATES."""
    counts = Counter(each.state for each in deliveries)
    return [(state, counts[state]) for state in STATES if counts[state]]


def _page(most: int) -> int:
    if not 1 <= most <= MOST_PAGE:
        raise Invalid(Fault("limit", str(most), f"1 to {MOST_PAGE}"))
    return most


def body_as_json(body: bytes) -> object:
    """The body of an event; null where it is too long or too deep, or no JSON."""
    try:
        return read_json(body)
    except ValueError:
        return None


def event_as_json(
    event: KeptEvent, body_as_json: Callable[[bytes], object] = body_as_json
) -> dict[str, object]:
    """An event; `event` is what is delivered."""
    return {
        "id": event.id,
        "integration": event.integration,
        "type": event.type,
        "accepted": moment(event.at_us),
        "open_deliveries": event.left,
        "event": body_as_json(event.body),
    }


def event_view_as_json(
    view: EventView, body_as_json: Callable[[bytes], object] = body_as_json
) -> dict[str, object]:
    """An event with its deliveries."""
    return {
        **event_as_json(view.event, body_as_json),
        "deliveries": [delivery_as_json(each) for each in view.deliveries],
    }


def delivery_as_json(delivery: Delivery) -> dict[str, object]:
    """A delivery with its attempts, the first one first."""
    return {
        "id": delivery.id,
        "event": delivery.event,
        "watch": delivery.watch,
        "state": delivery.state,
        "reason": delivery.reason or None,
        "created": moment(delivery.at_us),
        "ended": moment(delivery.ended_us or None),
        "attempts": [attempt_as_json(each) for each in delivery.attempts],
    }


def replayed_as_json(replayed: Replayed) -> dict[str, object]:
    """What a replay has queued.

    waiting: the events that were left out, as their deliveries to the watch are not over
    next:    the `from` that goes on with the rest; null: it was all
    """
    return {
        "deliveries": replayed.count,
        "waiting": replayed.waiting,
        "next": None if replayed.complete else moment(replayed.next_us),
    }


def attempt_as_json(attempt: Attempt) -> dict[str, object]:
    """An attempt. status: null where there was no answer, and `answer` says why"""
    return {
        "at": moment(attempt.at_us),
        "status": attempt.status or None,
        "ms": attempt.ms,
        "answer": attempt.found,
    }
