"""Creates, reads and changes keys, for commands, API calls and pages.

Every change is recorded in the audit log, without the key or its digest. Suspending, resuming and
revoking are idempotent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Final

from gateway.domain import key_format, keylife
from gateway.domain.audit import Event
from gateway.domain.keys import KeyRecord, Status
from gateway.domain.policy import Policy
from gateway.domain.ports import (
    AuditStore,
    CorruptRecord,
    KeyChanged,
    KeyFilter,
    KeyStore,
    MadeBefore,
)
from gateway.manage import audit_log
from gateway.manage.accounts import account_plan
from gateway.manage.audit_log import Actor
from gateway.manage.batches import ask_each
from gateway.manage.forms import KeyChange, NewKey, read_key_change, read_new_key
from gateway.manage.problems import Changed, Conflict, Fault, Invalid, NotThere
from gateway.manage.views import recorded, version_of

#: How often a change is retried because someone else changed the key in between.
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key as it is listed.

    used_us: when it was last used; None: never
    plan:    the effective one: its own, or its account's; "": none
    """

    record: KeyRecord
    used_us: int | None
    plan: str


@dataclass(frozen=True, slots=True)
class KeyPage:
    """A page of keys, newest first. next: the `after` of the next page; None: there is none"""

    keys: tuple[KeyView, ...]
    next: str | None


def mint_key(
    new: NewKey, now_us: int, randbelow: Callable[[int], int] = secrets.randbelow
) -> tuple[KeyRecord, str]:
    """A new key: its record, which is not stored yet, and its text.

    randbelow: randbelow(n) is a uniform, unpredictable random number from 0 to n - 1
    """
    text, key_id = key_format.mint(new.environment, randbelow)
    record = KeyRecord(
        id=key_id,
        digest=key_format.digest(text.encode()),
        name=new.name,
        account=new.account or key_id,
        plan=new.plan,
        environment=new.environment,
        lineage=key_id,
        created_us=now_us,
        scopes=new.scopes,
        permissions=new.permissions,
        networks=new.networks,
        expires_us=new.expires_us,
        limits=new.limits,
    )
    return record, text


class Keys:
    """Keys in a store.

    policy:    the current one, for plans, limits and the environment; None: unknown
    randbelow: as for `mint_key`
    """

    def __init__(
        self,
        keys: KeyStore,
        audit: AuditStore,
        policy: Callable[[], Policy | None],
        clock_us: Callable[[], int],
        randbelow: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._keys = keys
        self._audit = audit
        self._policy = policy
        self._clock_us = clock_us
        self._randbelow = randbelow

    # -- reading -----------------------------------------------------------------------------------

    async def page(self, wanted: KeyFilter, after: str | None = None, count: int = 50) -> KeyPage:
        """The keys that match, newest first, after this id. Raises Invalid.

        A plan that was renamed is found by each of its names, whichever the key's record has.
        Expiry is decided by the current time, whatever `wanted` has.
        """
        if after is not None and await self._keys.get(after) is None:
            raise Invalid(Fault("after", "no key's id", "what a page before gave as next"))
        policy, names = self._policy(), wanted.plans
        if policy is not None and names is not None:
            names = frozenset().union(*map(policy.plan_names, names))
        wanted = replace(wanted, plans=names, now_us=self._clock_us())
        records = await self._keys.page(wanted, after=after, count=count + 1)
        more, records = len(records) > count, records[:count]
        used = await self._keys.last_used([record.id for record in records])
        plans = await self._account_plans(records)
        views = tuple(
            KeyView(record, used.get(record.id), record.plan or plans[record.account])
            for record in records
        )
        return KeyPage(views, records[-1].id if more else None)

    async def get(self, key_id: str) -> KeyView:
        """One key. Raises NotThere."""
        record = await self._record(key_id)
        used = await self._keys.last_used([key_id])
        plans = await self._account_plans([record])
        return KeyView(record, used.get(key_id), record.plan or plans[record.account])

    def read_new(self, given: Mapping[str, object]) -> NewKey:
        """The argument of `create`, from the fields of a form. Raises Invalid."""
        return read_new_key(given, self._policy(), self._clock_us())

    def read_change(self, given: Mapping[str, object]) -> KeyChange:
        """The argument of `edit`, from the fields of a form. Raises Invalid."""
        return read_key_change(given, self._policy(), self._clock_us())

    # -- changes -----------------------------------------------------------------------------------

    async def create(
        self, actor: Actor, new: NewKey, once: str | None = None
    ) -> tuple[KeyRecord, str]:
        """Create a key; returns its record and text, which is shown once. Raises Invalid, Conflict.

        once: an idempotency key: a second request with it within a day creates no key, but raises
              a Conflict that names the first
        """
        record, text = mint_key(new, self._clock_us(), self._randbelow)
        await self._check_account(record)
        await self._check_plan(record)
        try:
            # Stored as a digest: the client chooses the text and its length.
            word = None if once is None else sha256(once.encode()).hexdigest()
            await self._keys.add(record, word)
        except MadeBefore as made:
            raise Conflict(f"an earlier request with the same text created key {made}") from made
        await self._note(actor, "key.create", None, record)
        return record, text

    async def edit(
        self, actor: Actor, key_id: str, change: KeyChange, version: str | None = None
    ) -> KeyRecord:
        """Change fields of a key. Raises NotThere, Invalid, Conflict, Changed.

        version: `views.version_of` the key that may be changed; None: any
        """
        return await self._change(
            actor,
            ("key.edit", "edited"),
            key_id,
            lambda record: keylife.edit(record, change.values),
            version,
        )

    async def suspend(self, actor: Actor, key_id: str, version: str | None = None) -> KeyRecord:
        """Suspend a key until it is resumed. Raises NotThere, Conflict, Changed."""
        done = ("key.suspend", "suspended")
        return await self._change(
            actor, done, key_id, _unless("suspended", keylife.suspend), version
        )

    async def resume(self, actor: Actor, key_id: str, version: str | None = None) -> KeyRecord:
        """Resume a suspended key. Raises NotThere, Conflict, Changed."""
        done = ("key.resume", "resumed")
        return await self._change(actor, done, key_id, _unless("valid", keylife.resume), version)

    async def revoke(self, actor: Actor, key_id: str, version: str | None = None) -> KeyRecord:
        """Revoke a key, which is final. Raises NotThere, Changed."""
        done = ("key.revoke", "revoked")
        return await self._change(actor, done, key_id, _unless("revoked", keylife.revoke), version)

    async def rotate(
        self, actor: Actor, key_id: str, overlap_us: int, version: str | None = None
    ) -> tuple[KeyRecord, KeyRecord, str]:
        """Create a key's successor; returns the old record, the new one, and the new key's text.

        Raises NotThere, Conflict, Changed. overlap_us: how long the old key stays valid
        """
        record = await self._record(key_id)
        _check_version(record, version)
        text, new_id = key_format.mint(record.environment, self._randbelow)
        digest = key_format.digest(text.encode())
        rotated = keylife.rotate(record, new_id, digest, self._clock_us(), overlap_us)
        if isinstance(rotated, str):
            raise _impossible(key_id, "rotated", rotated)
        old, new = rotated
        # The successor first: if this stops half-way, there is an unknown extra key, rather than an
        # expiring key without a successor.
        await self._keys.add(new)
        try:
            await self._keys.replace(record, old)
        except KeyChanged as error:
            await self._keys.replace(new, replace(new, status="revoked"))
            raise _changed(key_id) from error
        await self._note(actor, "key.rotate", record, old)
        return old, new, text

    # -- the parts ---------------------------------------------------------------------------------

    async def _change(
        self,
        actor: Actor,
        done: tuple[str, str],
        key_id: str,
        decide: Callable[[KeyRecord], KeyRecord | str],
        version: str | None,
    ) -> KeyRecord:
        """Read, decide and replace a record; retried if someone else has changed it meanwhile.

        done: the action in the audit log, and in words: ("key.revoke", "revoked")
        """
        for _ in range(_TRIES):
            record = await self._record(key_id)
            _check_version(record, version)
            changed = decide(record)
            if isinstance(changed, str):
                raise _impossible(key_id, done[1], changed)
            if changed == record:
                return record
            if (changed.plan, changed.account) != (record.plan, record.account):
                await self._check_plan(changed)
            if changed.account != record.account:
                await self._check_account(changed)
            try:
                await self._keys.replace(record, changed)
            except KeyChanged:
                continue
            await self._note(actor, done[0], record, changed)
            return changed
        raise _changed(key_id)

    async def _check_account(self, record: KeyRecord) -> None:
        """Raises Invalid: its account is that of another key, which was given none."""
        name = record.account
        if name in (record.id, record.lineage) or not key_format.is_key_id(name):
            return
        try:
            other = await self._keys.get(name)
        except CorruptRecord:
            return
        if other is not None:
            raise Invalid(
                Fault(
                    "account",
                    "the id of another key",
                    "a name: an account of this name is that key's own",
                )
            )

    async def _record(self, key_id: str) -> KeyRecord:
        if not key_format.is_key_id(key_id):  # and not shown: it may be a whole key
            raise NotThere("there is no key with this id: an id is 12 letters and digits")
        record = await self._keys.get(key_id)
        if record is None:
            raise NotThere(f"there is no key with the id {key_id}")
        return record

    async def _check_plan(self, record: KeyRecord) -> None:
        """Raises Invalid if the key would have no plan, or one that is not in the policies."""
        plan = record.plan
        if not plan:
            account = await self._keys.account(record.account)
            plan = account.plan if account else ""
        policy = self._policy()
        if not plan:
            raise Invalid(Fault("plan", "nothing", "a plan, as its account has none"))
        if policy is not None and policy.plan(plan) is None:
            raise Invalid(Fault("plan", f"that of its account, {plan!r}", "one of the policies"))

    async def _account_plans(self, records: Sequence[KeyRecord]) -> Mapping[str, str]:
        """Account -> plan, for the keys that have no plan of their own; "": none."""
        names = {record.account for record in records if not record.plan}
        plans = await ask_each(partial(account_plan, self._keys), names)
        return dict(zip(names, plans, strict=True))

    async def _note(
        self, actor: Actor, action: str, before: KeyRecord | None, after: KeyRecord
    ) -> None:
        event = Event(
            at_us=self._clock_us(),
            actor=str(actor),
            action=action,
            subject=f"key:{after.id}",
            before=None if before is None else recorded(before),
            after=recorded(after),
        )
        await audit_log.note(self._audit, event)


def _unless(
    status: Status, decide: Callable[[KeyRecord], KeyRecord | str]
) -> Callable[[KeyRecord], KeyRecord | str]:
    """The same decision, but a key with this status stays as it is."""
    return lambda record: record if record.status == status else decide(record)


def _check_version(record: KeyRecord, version: str | None) -> None:
    """Raises Changed if the key has another version."""
    if version is not None and version_of(recorded(record)) != version:
        raise Changed(f"key {record.id} was changed by someone else, load it again")


def _impossible(key_id: str, done: str, reason: str) -> Conflict:
    return Conflict(f"key {key_id} cannot be {done}: {reason}")


def _changed(key_id: str) -> Changed:
    return Changed(f"key {key_id} was being changed by someone else, try again")
