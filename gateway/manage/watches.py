"""Watches of an account: registered, listed, changed, paused and given new secrets.

An account sees its own integrations only; another one's does not exist for it. Each change is in
the audit log, without secrets.
"""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from gateway.domain.audit import Event
from gateway.domain.ports import AuditWriter
from gateway.domain.webhooks.destinations import Destinations, fault_of_url
from gateway.domain.webhooks.event_types import is_pattern
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import (
    MOST_PATTERNS,
    MOST_WATCHES,
    Health,
    Rate,
    Watch,
    mark_of,
    secret_of,
)
from gateway.manage import audit_log
from gateway.manage.audit_log import Actor
from gateway.manage.problems import Changed, Conflict, Fault, Invalid, NotThere
from gateway.manage.reading import Reader, found, or_none, read_fields
from gateway.manage.views import moment, version_of
from gateway.policies import fields

_URL_WORDS: Final = "an https:// URL of a public host"
_PATTERN_WORDS: Final = 'a type such as "pull_request.merged", or "pull_request.*"'
_FORM_WORDS: Final = '"timed" or "body-only"'


class Marked(Protocol):
    """What has the mark of the webhook key."""

    async def has_mark(self, mark: str) -> bool: ...


async def check_mark(store: Marked, mark: str) -> None:
    """Raises Conflict: secrets that are made here would be of no use to the couriers."""
    if not await store.has_mark(mark):
        raise Conflict(
            "the webhook key here is not that of the store's couriers: set the same "
            "GATEWAY_WEBHOOK_KEY for all"
        )


class WatchStore(Protocol):
    """What `stores.webhooks.resources` keeps."""

    async def integration(self, integration: str) -> Integration | None: ...
    async def integrations_of(self, account: str) -> list[Integration]: ...
    async def integration_of(self, watch: str) -> str | None: ...
    async def has_mark(self, mark: str) -> bool: ...
    async def add_watch(self, watch: Watch) -> bool: ...
    async def watch(self, integration: str, watch: str) -> Watch | None: ...
    async def watches(self, integration: str) -> list[Watch]: ...
    async def replace_watch(self, old: Watch, new: Watch) -> bool: ...
    async def remove_watch(self, watch: Watch) -> bool: ...
    async def pause(self, watch: Watch) -> bool: ...
    async def resume(self, watch: Watch) -> bool: ...
    async def forget_failures(self, watch: Watch) -> bool: ...
    async def health(self, watch: Watch) -> Health: ...
    async def healths(self, watches: Sequence[Watch]) -> builtins.list[Health]: ...


@dataclass(frozen=True, slots=True)
class WatchView:
    """A watch as it is shown."""

    watch: Watch
    health: Health

    @property
    def version(self) -> str:
        return watch_version(self.watch)


class Watches:
    """The watches of all accounts.

    Changes take a version, as `watch_version` of the watch that may be changed; None: any.

    master:       the key of which secrets are derived
    destinations: where deliveries may go
    new_id:       the random part of an id
    """

    def __init__(
        self,
        store: WatchStore,
        audit: AuditWriter,
        master: bytes,
        clock_us: Callable[[], int],
        destinations: Callable[[], Destinations],
        new_id: Callable[[], str] = lambda: secrets.token_hex(12),
    ) -> None:
        self._store = store
        self._audit = audit
        self._master = master
        self._clock_us = clock_us
        self._destinations = destinations
        self._new_id = new_id

    async def integrations(self, account: str) -> list[Integration]:
        """Those of an account, by id."""
        return await self._store.integrations_of(account)

    async def create(
        self, actor: Actor, account: str, integration: str, given: Mapping[str, object]
    ) -> tuple[WatchView, str]:
        """A new watch, and its secret, which is shown once. Raises NotThere, Invalid, Conflict."""
        await self._integration(account, integration)
        values = read_fields(given, self._readers(), "url", "events")
        await check_mark(self._store, mark_of(self._master))
        watch = Watch(f"wat_{self._new_id()}", integration, created_us=self._clock_us(), **values)
        if not await self._store.add_watch(watch):
            raise Conflict(f"the integration has {MOST_WATCHES} watches, which is the most")
        await self._note(actor, "watch.create", None, watch)
        return await self._view(watch), secret_of(self._master, watch.id, watch.version)

    async def list(self, account: str, integration: str) -> list[WatchView]:
        """The oldest first. Raises NotThere."""
        await self._integration(account, integration)
        watches = await self._store.watches(integration)
        healths = await self._store.healths(watches)
        return [WatchView(*pair) for pair in zip(watches, healths, strict=True)]

    async def get(self, account: str, integration: str, watch: str) -> WatchView:
        """Raises NotThere."""
        return await self._view(await self._watch(account, integration, watch))

    async def find(self, account: str, watch: str) -> tuple[Integration, Watch]:
        """A watch of the account, with its integration. Raises NotThere."""
        integration = await self._store.integration_of(watch)
        # Also looked up where there is none, so that the work is that for another account's.
        its = await self._store.integration(integration or "")
        if its is not None and its.account == account:
            its_watch = await self._store.watch(its.id, watch)
            if its_watch is not None:
                return its, its_watch
        raise _not_there()

    async def edit(
        self,
        actor: Actor,
        account: str,
        integration: str,
        watch: str,
        given: Mapping[str, object],
        version: str | None = None,
    ) -> WatchView:
        """Change some fields. With another URL, what waits is due now; another rate holds at once.

        Raises NotThere, Invalid, Changed.
        """
        old = await self._watch(account, integration, watch, version)
        values = read_fields(given, self._readers(old.url))
        view = await self._change(actor, "watch.edit", old, values)
        if view.watch.url == old.url:
            return view
        if not await self._store.forget_failures(view.watch):
            raise _not_there()
        return await self._view(view.watch)

    async def rotate(
        self,
        actor: Actor,
        account: str,
        integration: str,
        watch: str,
        version: str | None = None,
    ) -> tuple[WatchView, str]:
        """A new secret; for a day, deliveries are signed with the one before as well.

        Raises NotThere, Changed.
        """
        old = await self._watch(account, integration, watch, version)
        await check_mark(self._store, mark_of(self._master))
        values = {"version": old.version + 1, "rotated_us": self._clock_us()}
        view = await self._change(actor, "watch.rotate", old, values)
        return view, secret_of(self._master, watch, view.watch.version)

    async def remove(
        self,
        actor: Actor,
        account: str,
        integration: str,
        watch: str,
        version: str | None = None,
    ) -> None:
        """Cancels what waits for it. Raises NotThere, Changed."""
        old = await self._watch(account, integration, watch, version)
        if not await self._store.remove_watch(old):
            raise _not_there()
        await self._note(actor, "watch.remove", old, None)

    async def pause(
        self,
        actor: Actor,
        account: str,
        integration: str,
        watch: str,
        version: str | None = None,
    ) -> WatchView:
        """Its events wait until it is resumed. Raises NotThere, Conflict, Changed."""
        old = await self._view(await self._watch(account, integration, watch, version))
        if old.health.state == "disabled":
            raise Conflict(f"watch {watch} is disabled ({old.health.why}): resume it")
        if old.health.state != "paused":
            if not await self._store.pause(old.watch):
                raise _not_there()
            await self._note(actor, "watch.pause", old.watch, old.watch)
        return await self._view(old.watch)

    async def resume(
        self,
        actor: Actor,
        account: str,
        integration: str,
        watch: str,
        version: str | None = None,
    ) -> WatchView:
        """Also one that was disabled. What waits is due now. Raises NotThere, Changed."""
        old = await self._view(await self._watch(account, integration, watch, version))
        if old.health.state != "active" or old.health.waiting:
            if not await self._store.resume(old.watch):
                raise _not_there()
            await self._note(actor, "watch.resume", old.watch, old.watch)
        return await self._view(old.watch)

    # -- the parts ---------------------------------------------------------------------------------

    def _readers(self, known: str = "") -> Mapping[str, Reader]:
        """The readers of all fields. known: a URL that the watch has, whatever is allowed by now"""

        def read_url(value: object) -> str:
            url = _read_url(value)
            fault = None if url == known else self._destinations().fault_of_address(url)
            if fault is not None:
                raise Invalid(Fault("url", fault, _URL_WORDS))
            return url

        return {
            "url": read_url,
            "events": _read_events,
            "form": _read_form,
            "rate": or_none(_read_rate),
        }

    async def _integration(self, account: str, integration: str) -> Integration:
        its = await self._store.integration(integration)
        if its is None or its.account != account:
            raise NotThere("there is no integration with this id")
        return its

    async def _watch(
        self, account: str, integration: str, watch: str, version: str | None = None
    ) -> Watch:
        """Raises NotThere; Changed if it has another version."""
        await self._integration(account, integration)
        its = await self._store.watch(integration, watch)
        if its is None:
            raise _not_there()
        if version not in (None, watch_version(its)):
            raise _changed(watch)
        return its

    async def _change(
        self, actor: Actor, action: str, before: Watch, values: Mapping[str, Any]
    ) -> WatchView:
        after = replace(before, **values)
        if after != before:
            if not await self._store.replace_watch(before, after):
                raise _changed(before.id)
            await self._note(actor, action, before, after)
        return await self._view(after)

    async def _view(self, watch: Watch) -> WatchView:
        return WatchView(watch, await self._store.health(watch))

    async def _note(
        self, actor: Actor, action: str, before: Watch | None, after: Watch | None
    ) -> None:
        its = after or before
        assert its is not None
        event = Event(
            at_us=self._clock_us(),
            actor=str(actor),
            action=action,
            subject=f"watch:{its.id}",
            before=None if before is None else watch_as_json(before),
            after=None if after is None else watch_as_json(after),
        )
        await audit_log.note(self._audit, event)


def watch_as_json(watch: Watch) -> dict[str, object]:
    """The record of a watch, as the API shows it."""
    return {
        "id": watch.id,
        "integration": watch.integration,
        "url": watch.url,
        "events": list(watch.events),
        "form": watch.form,
        "rate": None if watch.rate is None else str(watch.rate),
        "secret_version": watch.version,
        "created": moment(watch.created_us),
    }


def watch_version(watch: Watch) -> str:
    """The version of a watch, which changes with every field of its record, not with its status."""
    return version_of(watch_as_json(watch))


def view_as_json(view: WatchView) -> dict[str, object]:
    """A watch and how it does."""
    health = view.health
    return {
        **watch_as_json(view.watch),
        "status": health.state,
        "reason": health.why or None,
        "disabled_since": moment(health.disabled_us or None),
        "waiting": health.waiting,
        "in_flight": health.in_flight,
        "failures": health.failures,
        "failing_since": moment(health.failed_us or None),
        "last_success": moment(health.last_success_us or None),
        "next_attempt": moment(health.next_us or None),
    }


def status_words(health: Health) -> str:
    """How a watch does: "disabled since …, after 3 failed attempts since …, because …"."""
    failed = "1 failed attempt" if health.failures == 1 else f"{health.failures} failed attempts"
    first = f" since {moment(health.failed_us)}" if health.failed_us else ""
    if health.state == "failing":
        return f"failing{first}, {failed}"
    if health.state != "disabled":
        return health.state
    since = f" since {moment(health.disabled_us)}" if health.disabled_us else ""
    after = f", after {failed}{first}" if health.failures else ""
    because = f", because {health.why}" if health.why else ""
    return f"disabled{since}{after}{because}"


def read_pattern(at: str, value: object) -> str:
    """A type of events, or `PREFIX.*`. at: the field's name; raises Invalid"""
    if not isinstance(value, str) or not is_pattern(value):
        raise Invalid(Fault(at, found(value), _PATTERN_WORDS))
    return value


def _not_there() -> NotThere:
    return NotThere("there is no watch with this id")


def _changed(watch: str) -> Changed:
    return Changed(f"watch {watch} was changed by someone else, load it again")


def _read_url(value: object) -> str:
    if not isinstance(value, str):
        raise Invalid(Fault("url", found(value), _URL_WORDS))
    fault = fault_of_url(value)
    if fault is not None:
        raise Invalid(Fault("url", fault, _URL_WORDS))
    return value


def _read_events(value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise Invalid(Fault("events", found(value), "a list"))
    if not 1 <= len(value) <= MOST_PATTERNS:
        raise Invalid(Fault("events", f"{len(value)} entries", f"1 to {MOST_PATTERNS}"))
    faults = [
        Fault(f"events[{index}]", found(entry), _PATTERN_WORDS)
        for index, entry in enumerate(value)
        if not isinstance(entry, str) or not is_pattern(entry)
    ]
    if faults:
        raise Invalid(*faults)
    return tuple(dict.fromkeys(value))


def _read_form(value: object) -> str:
    if value not in ("timed", "body-only"):
        raise Invalid(Fault("form", found(value), _FORM_WORDS))
    return str(value)


def _read_rate(value: object) -> Rate:
    if not isinstance(value, str):
        raise Invalid(Fault("rate", found(value), fields.DELIVERY_RATE_EXPECTED))
    try:
        return Rate(*fields.read_delivery_rate(value))
    except ValueError as error:
        raise Invalid(Fault("rate", found(value), str(error))) from error
