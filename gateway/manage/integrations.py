"""Integrations of all accounts: made, changed, paused, given new secrets, and published to.

An integration is a connection of an account with a provider, whose webhooks it captures. Each
change is in the audit log, without secrets and without the capture address.
"""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from gateway.domain.audit import Event
from gateway.domain.json_text import MOST_LEVELS, TooDeep
from gateway.domain.ports import AuditStore, BudgetSpent
from gateway.domain.webhooks.events import MOST_EVENT, Integration, TooLarge, published
from gateway.domain.webhooks.kinds.own import GATEWAY
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.domain.webhooks.notices import has_notices
from gateway.domain.webhooks.watches import Watch
from gateway.manage import audit_log
from gateway.manage.audit_log import Actor
from gateway.manage.integration_fields import (
    CHANGEABLE,
    EVENT_FIELDS,
    NEW_FIELDS,
    check_id_header,
    read_secrets,
)
from gateway.manage.problems import Changed, Conflict, Fault, Full, Invalid, NotThere
from gateway.manage.reading import read_fields
from gateway.manage.views import moment, version_of
from gateway.manage.watches import check_mark

#: Before the random part of a capture address.
CAPTURE_PATH: Final = "/hooks/"


class IntegrationStore(Protocol):
    """What `stores.webhooks.resources` keeps."""

    async def add_integration(self, integration: Integration) -> bool: ...
    async def integration(self, integration: str) -> Integration | None: ...
    async def integrations(self) -> list[Integration]: ...
    async def has_mark(self, mark: str) -> bool: ...
    async def replace_integration(self, old: Integration, new: Integration) -> bool: ...
    async def remove_integration(self, integration: Integration) -> None: ...
    async def watches(self, integration: str) -> list[Watch]: ...


class EventQueue(Protocol):
    """What `stores.webhooks.queue` takes."""

    async def accept(
        self, integration: str, event: str, event_type: str, body: bytes, account: str
    ) -> int: ...


class Sealing(Protocol):
    """What `webhooks.sealing` does."""

    @property
    def mark(self) -> str: ...
    def seal(self, integration: str, secrets: Sequence[str]) -> str: ...


@dataclass(frozen=True, slots=True)
class NewSecrets:
    """What is shown once. made: the provider's secret, if it was not given"""

    made: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Published:
    """event: its id; deliveries: how many are queued, 0 also if it was published before"""

    event: str
    deliveries: int


class Integrations:
    """The integrations of all accounts.

    Changes take a version, as `integration_version` of what may be changed; None: any.

    queue_of:   the queue of an integration's events
    most_bytes: of an event
    new_id:     the random part of an id
    """

    def __init__(
        self,
        store: IntegrationStore,
        audit: AuditStore,
        queue_of: Callable[[str], EventQueue],
        sealer: Sealing,
        clock_us: Callable[[], int],
        most_bytes: Callable[[], int] = lambda: MOST_EVENT,
        new_id: Callable[[], str] = lambda: secrets.token_hex(12),
    ) -> None:
        self._store = store
        self._audit = audit
        self._queue_of = queue_of
        self._sealer = sealer
        self._clock_us = clock_us
        self._most_bytes = most_bytes
        self._new_id = new_id

    async def create(
        self, actor: Actor, given: Mapping[str, object]
    ) -> tuple[Integration, NewSecrets]:
        """A new one, and its provider's secret if none was given. Raises Invalid, Conflict."""
        values = read_fields(given, NEW_FIELDS, "kind", "account", "name")
        its_secrets = values.pop("secrets", None)
        kind = KINDS[values["kind"]]
        check_id_header(kind.name, values)
        integration = Integration(
            f"int_{self._new_id()}", created_us=self._clock_us(), **_in_record(values)
        )
        shown = NewSecrets()
        if kind.captures:
            integration = replace(integration, capture=secrets.token_hex(16))
            integration, shown = await self._sealed(integration, its_secrets)
        elif its_secrets is not None:
            raise Invalid(_no_provider(kind.name))
        if not await self._store.add_integration(integration):
            raise Conflict(await self._why_not(integration))
        await self._note(actor, "integration.create", None, integration)
        return integration, shown

    async def _why_not(self, integration: Integration) -> str:
        if integration.kind == GATEWAY.name:
            its = await self.list(integration.account)
            if has_notices(integration.account, its):
                return f"account {integration.account} has an integration of the kind gateway"
        return "there are as many integrations as the store may have: remove some"

    async def get(self, integration: str) -> Integration:
        """Raises NotThere."""
        its = await self._store.integration(integration)
        if its is None:
            raise NotThere("there is no integration with this id")
        return its

    async def list(self, account: str | None = None) -> builtins.list[Integration]:
        """By id. account: only its own; None: all"""
        known = await self._store.integrations()
        return [each for each in known if account in (None, each.account)]

    async def edit(
        self,
        actor: Actor,
        integration: str,
        given: Mapping[str, object],
        version: str | None = None,
    ) -> Integration:
        """Change some fields. Raises NotThere, Invalid, Changed."""
        old = await self._known(integration, version)
        faults = [
            Fault(name, "a value", "no change of it: make another integration")
            for name in ("kind", "account")
            if name in given
        ]
        if faults:
            raise Invalid(*faults)
        values = read_fields(given, CHANGEABLE)
        check_id_header(old.kind, values)
        new = replace(old, **_in_record(values))
        return await self._change(actor, "integration.edit", old, new)

    async def pause(
        self, actor: Actor, integration: str, version: str | None = None
    ) -> Integration:
        """Nothing is captured until it is resumed. Raises NotThere, Changed."""
        old = await self._known(integration, version)
        return await self._change(actor, "integration.pause", old, replace(old, is_paused=True))

    async def resume(
        self, actor: Actor, integration: str, version: str | None = None
    ) -> Integration:
        """Raises NotThere, Changed."""
        old = await self._known(integration, version)
        return await self._change(actor, "integration.resume", old, replace(old, is_paused=False))

    async def rotate_address(
        self, actor: Actor, integration: str, version: str | None = None
    ) -> Integration:
        """A new capture address, in place of the one before.

        Raises NotThere, Conflict, Changed.
        """
        old = await self._captures(integration, version)
        new = replace(old, capture=secrets.token_hex(16))
        return await self._change(actor, "integration.rotate_address", old, new)

    async def set_secrets(
        self,
        actor: Actor,
        integration: str,
        given: Mapping[str, object],
        version: str | None = None,
    ) -> tuple[Integration, NewSecrets]:
        """Replace the provider's secrets, or make one if none is given.

        Raises NotThere, Invalid, Conflict, Changed.
        """
        old = await self._captures(integration, version)
        values = read_fields(given, {"secrets": read_secrets})
        new, shown = await self._sealed(old, values.get("secrets"))
        return await self._change(actor, "integration.set_secrets", old, new), shown

    async def remove(
        self,
        actor: Actor,
        integration: str,
        *,
        force: bool = False,
        version: str | None = None,
    ) -> int:
        """Remove it; returns how many watches went with it. Raises NotThere, Conflict, Changed.

        force: with its watches, which cancels what waits for them; else they are a Conflict
        """
        old = await self._known(integration, version)
        watches = len(await self._store.watches(integration))
        if watches and not force:
            what = "1 watch" if watches == 1 else f"{watches} watches"
            raise Conflict(
                f"integration {integration} has {what}: remove them first, or remove the "
                "integration with force, which cancels what waits for them"
            )
        await self._store.remove_integration(old)
        await self._note(actor, "integration.remove", old, None)
        return watches

    async def publish(self, integration: str, given: Mapping[str, object]) -> Published:
        """Queue an event of the API itself. Raises NotThere, Invalid, Conflict, Full.

        An id that was used in the last days is of the same event, which is not delivered again.
        It is not in the audit log, which would have no room for anything else.
        """
        its = await self.get(integration)
        values = read_fields(given, EVENT_FIELDS, "type", "data")
        if its.is_paused:
            raise Conflict(f"integration {integration} is paused: resume it")
        event_id = values.get("id") or secrets.token_hex(16)
        try:
            event = published(
                *(its, values["type"], values["data"], event_id, self._clock_us()),
                self._most_bytes(),
            )
        except TooLarge as error:
            what = f"an event of {error.size} bytes"
            raise Invalid(Fault("data", what, f"{error.most} at most")) from error
        except TooDeep as error:
            what = f"an event with {error.found}"
            raise Invalid(Fault("data", what, f"{MOST_LEVELS} at most")) from error
        except ValueError as error:
            what = "a value that JSON does not have"
            raise Invalid(Fault("data", what, "an object of JSON")) from error
        queue = self._queue_of(integration)
        try:
            deliveries = await queue.accept(
                integration, event.id, event.type, event.body, its.account
            )
        except BudgetSpent as error:
            raise Full("there is no room for events until some are delivered") from error
        return Published(event.id, deliveries)

    # -- the parts ---------------------------------------------------------------------------------

    async def _known(self, integration: str, version: str | None) -> Integration:
        """Raises NotThere; Changed if it has another version."""
        its = await self.get(integration)
        if version not in (None, integration_version(its)):
            raise _changed(integration)
        return its

    async def _captures(self, integration: str, version: str | None) -> Integration:
        its = await self._known(integration, version)
        if not KINDS[its.kind].captures:
            raise Conflict(str(_no_provider(its.kind)))
        return its

    async def _sealed(
        self, integration: Integration, given: Sequence[str] | None
    ) -> tuple[Integration, NewSecrets]:
        """With these secrets, or one that is made."""
        kind, made = KINDS[integration.kind], None
        if given is None:
            made = f"gateway:{secrets.token_urlsafe(32)}" if kind.is_basic else _new_secret()
        elif kind.is_basic:
            faults = [
                Fault(f"secrets[{index}]", "one without a colon", "USER:PASSWORD")
                for index, each in enumerate(given)
                if ":" not in each
            ]
            if faults:
                raise Invalid(*faults)
        await check_mark(self._store, self._sealer.mark)
        sealed = self._sealer.seal(integration.id, given or (made or "",))
        return replace(integration, sealed=sealed), NewSecrets(made)

    async def _change(
        self, actor: Actor, action: str, old: Integration, new: Integration
    ) -> Integration:
        if new != old:
            if not await self._store.replace_integration(old, new):
                raise _changed(old.id)
            await self._note(actor, action, old, new)
        return new

    async def _note(
        self, actor: Actor, action: str, before: Integration | None, after: Integration | None
    ) -> None:
        its = after or before
        assert its is not None
        event = Event(
            at_us=self._clock_us(),
            actor=str(actor),
            action=action,
            subject=f"integration:{its.id}",
            before=None if before is None else _recorded(before),
            after=None if after is None else _recorded(after),
        )
        await audit_log.note(self._audit, event)


def integration_as_json(integration: Integration) -> dict[str, object]:
    """An integration, as an operator sees it: also its capture address."""
    capture = f"{CAPTURE_PATH}{integration.capture}" if integration.capture else None
    return {**_recorded(integration), "capture": capture}


def integration_version(integration: Integration) -> str:
    """The version of an integration, which changes with every field and with its secrets."""
    return version_of({**integration_as_json(integration), "sealed": integration.sealed})


def _changed(integration: str) -> Changed:
    return Changed(f"integration {integration} was changed by someone else, load it again")


def _recorded(integration: Integration) -> dict[str, object]:
    return {
        "id": integration.id,
        "account": integration.account,
        "kind": integration.kind,
        "name": integration.name,
        "paused": integration.is_paused,
        "created": moment(integration.created_us),
        "id_header": integration.id_header or None,
    }


def _in_record(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"is_paused" if name == "paused" else name: each for name, each in values.items()}


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


def _no_provider(kind: str) -> Fault:
    return Fault("kind", kind, "one with a provider: this one has no address and no secret")
