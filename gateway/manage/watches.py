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
from gateway.domain.ports import AuditStore
from gateway.domain.webhooks.destinations import fault_of_url
from gateway.domain.webhooks.event_types import is_pattern
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import (
    MOST_PATTERNS,
    MOST_WATCHES,
    Health,
    Watch,
    mark_of,
    secret_of,
)
from gateway.manage import audit_log
from gateway.manage.audit_log import Actor
from gateway.manage.problems import Changed, Conflict, Fault, Invalid, NotThere
from gateway.manage.reading import Reader, found, read_fields
from gateway.manage.views import moment

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
    async def remove_watch(self, watch: Watch) -> None: ...
    async def pause(self, watch: Watch) -> None: ...
    async def resume(self, watch: Watch) -> None: ...
    async def health(self, watch: Watch) -> Health: ...
    async def healths(self, watches: Sequence[Watch]) -> builtins.list[Health]: ...


@dataclass(frozen=True, slots=True)
class WatchView:
    """A watch as it is shown."""

    watch: Watch
    health: Health


class Watches:
    """The watches of all accounts.

    master: the key of which secrets are derived; new_id: the random part of an id
    """

    def __init__(
        self,
        store: WatchStore,
        audit: AuditStore,
        master: bytes,
        clock_us: Callable[[], int],
        new_id: Callable[[], str] = lambda: secrets.token_hex(12),
    ) -> None:
        self._store = store
        self._audit = audit
        self._master = master
        self._clock_us = clock_us
        self._new_id = new_id

    async def integrations(self, account: str) -> list[Integration]:
        """Those of an account, by id."""
        return await self._store.integrations_of(account)

    async def create(
        self, actor: Actor, account: str, integration: str, given: Mapping[str, object]
    ) -> tuple[WatchView, str]:
        """A new watch, and its secret, which is shown once. Raises NotThere, Invalid, Conflict."""
        await self._integration(account, integration)
        values = read_fields(given, _READERS, "url", "events")
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
        raise NotThere("there is no watch with this id")

    async def edit(
        self,
        actor: Actor,
        account: str,
        integration: str,
        watch: str,
        given: Mapping[str, object],
    ) -> WatchView:
        """Change some fields. Raises NotThere, Invalid, Changed."""
        values = read_fields(given, _READERS)
        return await self._change(actor, "watch.edit", account, integration, watch, values)

    async def rotate(
        self, actor: Actor, account: str, integration: str, watch: str
    ) -> tuple[WatchView, str]:
        """A new secret; for a day, deliveries are signed with the one before as well.

        Raises NotThere, Changed.
        """
        old = await self._watch(account, integration, watch)
        await check_mark(self._store, mark_of(self._master))
        values = {"version": old.version + 1, "rotated_us": self._clock_us()}
        view = await self._change(actor, "watch.rotate", account, integration, watch, values, old)
        return view, secret_of(self._master, watch, view.watch.version)

    async def remove(self, actor: Actor, account: str, integration: str, watch: str) -> None:
        """Cancels what waits for it. Raises NotThere."""
        old = await self._watch(account, integration, watch)
        await self._store.remove_watch(old)
        await self._note(actor, "watch.remove", old, None)

    async def pause(self, actor: Actor, account: str, integration: str, watch: str) -> WatchView:
        """Its events wait until it is resumed. Raises NotThere, Conflict."""
        old = await self.get(account, integration, watch)
        if old.health.state == "disabled":
            raise Conflict(f"watch {watch} is disabled ({old.health.why}): resume it")
        if old.health.state != "paused":
            await self._store.pause(old.watch)
            await self._note(actor, "watch.pause", old.watch, old.watch)
        return await self._view(old.watch)

    async def resume(self, actor: Actor, account: str, integration: str, watch: str) -> WatchView:
        """Also one that was disabled. Raises NotThere."""
        old = await self.get(account, integration, watch)
        if old.health.state in ("paused", "disabled"):
            await self._store.resume(old.watch)
            await self._note(actor, "watch.resume", old.watch, old.watch)
        return await self._view(old.watch)

    # -- the parts ---------------------------------------------------------------------------------

    async def _integration(self, account: str, integration: str) -> Integration:
        its = await self._store.integration(integration)
        if its is None or its.account != account:
            raise NotThere("there is no integration with this id")
        return its

    async def _watch(self, account: str, integration: str, watch: str) -> Watch:
        await self._integration(account, integration)
        its = await self._store.watch(integration, watch)
        if its is None:
            raise NotThere("there is no watch with this id")
        return its

    async def _change(
        self,
        actor: Actor,
        action: str,
        account: str,
        integration: str,
        watch: str,
        values: Mapping[str, Any],
        old: Watch | None = None,
    ) -> WatchView:
        before = old or await self._watch(account, integration, watch)
        after = replace(before, **values)
        if after != before:
            if not await self._store.replace_watch(before, after):
                raise Changed(f"watch {watch} was changed by someone else, load it again")
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
        "secret_version": watch.version,
        "created": moment(watch.created_us),
    }


def view_as_json(view: WatchView) -> dict[str, object]:
    """A watch and how it does."""
    health = view.health
    return {
        **watch_as_json(view.watch),
        "status": health.state,
        "reason": health.why or None,
        "waiting": health.waiting,
        "in_flight": health.in_flight,
        "failures": health.failures,
        "last_success": moment(health.last_success_us or None),
        "next_probe": moment(health.probe_us or None),
    }


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


_READERS: Final[Mapping[str, Reader]] = {
    "url": _read_url,
    "events": _read_events,
    "form": _read_form,
}
