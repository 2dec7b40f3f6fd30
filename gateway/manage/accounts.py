"""Accounts: the plan of their keys, enabled services, and limit overrides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from gateway.domain.audit import Event
from gateway.domain.key_format import is_key_id
from gateway.domain.keys import Account, AccountStatus
from gateway.domain.patterns import is_word
from gateway.domain.policy import Policy
from gateway.domain.ports import (
    AuditStore,
    CorruptRecord,
    KeyChanged,
    KeyCount,
    KeyFilter,
    KeyStore,
)
from gateway.manage import audit_log
from gateway.manage.account_hooks import AccountHooks
from gateway.manage.audit_log import Actor
from gateway.manage.forms import read_account, read_account_change
from gateway.manage.problems import Changed, NotThere
from gateway.manage.views import account_as_json, version_of

#: The most accounts that one page reads, and how many at a time.
MOST_LOOKED_AT: Final = 10_000
_BATCH: Final = 500
#: How often a change is retried because someone else changed the account in between.
_TRIES: Final = 5
#: The name of a key whose record cannot be read.
UNREADABLE: Final = "(unreadable)"
#: At most this many keys without a plan are counted.
MOST_COUNTED: Final = 100

#: Which accounts without a record a list has: none; those that keys were given; and those that
#: keys have because none was given.
Implicit = Literal["none", "named", "all"]


@dataclass(frozen=True, slots=True)
class AccountView:
    """An account as it is listed.

    is_implicit: it has no record, but keys have it
    keys: how many of them are not revoked; None: they were not counted
    is_shared: its name is the id of a key that was given no account, and others were given it
    """

    account: Account
    is_implicit: bool = False
    keys: int | None = None
    is_shared: bool = False

    @property
    def name(self) -> str:
        return self.account.name

    @property
    def version(self) -> str:
        """Changes with every field of the record, and when it gets one."""
        return account_version(self.name, None if self.is_implicit else self.account)


@dataclass(frozen=True, slots=True)
class AccountPage:
    """A page of accounts, by name. next: the `after` of the next page; None: there is none"""

    accounts: tuple[AccountView, ...]
    next: str | None


def view_as_json(view: AccountView) -> dict[str, object]:
    """An account as it is listed, as JSON."""
    return {**account_as_json(view.account), "implicit": view.is_implicit, "keys": view.keys}


async def account_plan(keys: KeyStore, name: str) -> str:
    """The plan of an account's keys that have no plan of their own; "": none.

    An unreadable account must not hide its keys, which may have to be revoked.
    """
    try:
        account = await keys.account(name)
    except CorruptRecord:
        return ""
    return account.plan if account else ""


async def key_words(keys: KeyStore, key_id: str) -> tuple[str, str, str]:
    """Name, account and plan of a key in a list, the plan its own or its account's; "": none.

    All are "" if the key no longer exists; the name is UNREADABLE if its record cannot be read.
    """
    try:
        record = await keys.get(key_id)
    except CorruptRecord:
        return UNREADABLE, "", ""
    if record is None:
        return "", "", ""
    return record.name, record.account, record.plan or await account_plan(keys, record.account)


class Accounts:
    """Accounts in a store.

    policy: the current one, for plans and limits; None: unknown
    hooks:  their integrations; None: the store has none
    """

    def __init__(
        self,
        keys: KeyStore,
        audit: AuditStore,
        policy: Callable[[], Policy | None],
        clock_us: Callable[[], int],
        hooks: AccountHooks | None = None,
    ) -> None:
        self.hooks = hooks
        self._keys = keys
        self._audit = audit
        self._policy = policy
        self._clock_us = clock_us

    async def page(
        self,
        after: str | None = None,
        count: int = 50,
        text: str | None = None,
        implicit: Implicit = "none",
    ) -> AccountPage:
        """Accounts whose name contains the text, in any letter case, after this name.

        If many names have no account, a page may be short although more follow.

        implicit: accounts without a record that are listed too. Unless it is "none", all keys are
                  read, which takes some 50 ms for 10,000, and the keys of each account are counted
        """
        recorded = set(await self._keys.account_names())
        counts = None if implicit == "none" else await self._keys.key_counts()
        others = {
            name: AccountView(Account(name), is_implicit=True, keys=count.keys)
            for name, count in (counts or {}).items()
            if name not in recorded and (implicit == "all" or not count.is_own)
        }
        names = [
            name
            for name in sorted(recorded | others.keys())
            if (after is None or name > after) and (text is None or text.lower() in name.lower())
        ]
        # Only the shown accounts are read: of 100,000, that saves a second.
        found: list[AccountView] = []
        looked_at, batch = 0, count + 1
        while len(found) <= count and looked_at < min(len(names), MOST_LOOKED_AT):
            some = names[looked_at : looked_at + batch]
            kept = await self._keys.accounts_named([name for name in some if name in recorded])
            views = {one.name: AccountView(one, keys=_keys_of(one.name, counts)) for one in kept}
            found += [view for name in some if (view := others.get(name) or views.get(name))]
            looked_at, batch = looked_at + batch, min(2 * batch, _BATCH)
        found = [await self._marked(view, counts) for view in found]
        if len(found) > count:
            return AccountPage(tuple(found[:count]), found[count - 1].name)
        is_all = looked_at >= len(names)
        return AccountPage(tuple(found), None if is_all else names[looked_at - 1])

    async def _marked(
        self, view: AccountView, counts: Mapping[str, KeyCount] | None
    ) -> AccountView:
        """The same, and whether it is the account of a key that others were given."""
        known = None if counts is None else counts.get(view.name)
        if known is None or known.is_own or not is_key_id(view.name):
            return view
        try:
            key = await self._keys.get(view.name)
        except CorruptRecord:
            return view
        return view if key is None else replace(view, is_shared=True)

    async def get(self, name: str) -> Account:
        """An account's record. Raises NotThere, also if it has keys but no record."""
        if not is_word(name):  # and not printed, as it may be a secret
            raise NotThere("there is no account of this name")
        account = await self._keys.account(name)
        if account is None:
            raise NotThere(f"there is no account {name}")
        return account

    async def view(self, name: str) -> AccountView:
        """One account and how many keys it has. Raises NotThere if it has no record and no keys."""
        if not is_word(name):
            raise NotThere("there is no account of this name")
        account = await self._keys.account(name)
        counts = await self._keys.key_counts()
        if account is None and name not in counts:
            raise NotThere(f"there is no account {name}")
        keys = _keys_of(name, counts)
        return AccountView(account or Account(name), is_implicit=account is None, keys=keys)

    async def put(
        self,
        actor: Actor,
        name: str,
        given: Mapping[str, object],
        version: str | None = None,
        must_be_new: bool = False,
    ) -> Account:
        """Create or replace an account. Fields not given are empty. Raises Invalid, Changed.

        Its status stays: only `suspend` and `resume` change it.

        version: `account_version` of the account that may be replaced; None: any
        """
        new = read_account(name, given, self._policy())

        def decide(known: Account | None) -> Account:
            _check(name, known, version, must_be_new)
            return replace(new, status=known.status) if known else new

        return await self._change(actor, "account.set", name, decide)

    async def edit(
        self, actor: Actor, name: str, given: Mapping[str, object], version: str | None = None
    ) -> Account:
        """Change fields of an account; others stay. Raises NotThere, Invalid, Changed.

        An account without a record gets one, if it has keys.
        """
        values = read_account_change(given, self._policy())
        await self._check_there(name)

        def decide(known: Account | None) -> Account:
            _check(name, known, version, must_be_new=False)
            return replace(known or Account(name), **values)

        return await self._change(actor, "account.edit", name, decide)

    async def suspend(self, actor: Actor, name: str, version: str | None = None) -> Account:
        """Suspend an account: all of its keys are refused, and its events wait.

        Raises NotThere, Changed.
        """
        account = await self._turn(actor, name, "account.suspend", "suspended", version)
        if self.hooks is not None:
            await self.hooks.suspend(name)
        return account

    async def resume(self, actor: Actor, name: str, version: str | None = None) -> Account:
        """Resume a suspended account. Raises NotThere, Changed.

        One that is valid gets its events as well: an earlier try may have broken off.
        """
        account = await self._turn(actor, name, "account.resume", "valid", version)
        if self.hooks is not None:
            await self.hooks.restore(name)
        return account

    async def remove(self, actor: Actor, account: Account) -> None:
        """Delete an account's record. Raises Changed. `account_removal` looks after its keys."""
        try:
            await self._keys.remove_account(account)
        except KeyChanged as error:
            raise _changed(account.name) from error
        await self._note(actor, "account.delete", account.name, account, None)

    async def keys_without_plan(self, account: Account) -> int:
        """How many of its valid keys have no plan, and get 503; at most `MOST_COUNTED`."""
        if account.plan:
            return 0
        wanted = KeyFilter(
            status="valid",
            plans=frozenset({""}),
            account=account.name,
            now_us=self._clock_us(),
        )
        return len(await self._keys.page(wanted, count=MOST_COUNTED))

    async def _turn(
        self, actor: Actor, name: str, action: str, status: AccountStatus, version: str | None
    ) -> Account:
        await self._check_there(name)

        def decide(known: Account | None) -> Account | None:
            _check(name, known, version, must_be_new=False)
            if known is None and status == "valid":
                return None
            return replace(known or Account(name), status=status)

        return await self._change(actor, action, name, decide)

    async def _check_there(self, name: str) -> None:
        """Raises NotThere if the account has neither a record nor a key."""
        if not is_word(name):
            raise NotThere("there is no account of this name")
        if await self._keys.account(name) is not None:
            return
        if not await self._keys.page(KeyFilter(account=name), count=1):
            raise NotThere(f"there is no account {name}")

    async def _change(
        self,
        actor: Actor,
        action: str,
        name: str,
        decide: Callable[[Account | None], Account | None],
    ) -> Account:
        """Read, decide and replace an account; retried if someone else has changed it meanwhile.

        decide: returns the new record; None: none is needed
        """
        for _ in range(_TRIES):
            known = await self._keys.account(name)
            account = decide(known)
            if account is None or known == account:
                return account or Account(name)
            try:
                await self._keys.replace_account(known, account)
            except KeyChanged:
                continue
            await self._note(actor, action, name, known, account)
            return account
        raise _changed(name)

    async def _note(
        self, actor: Actor, action: str, name: str, before: Account | None, after: Account | None
    ) -> None:
        event = Event(
            at_us=self._clock_us(),
            actor=str(actor),
            action=action,
            subject=f"account:{name}",
            before=None if before is None else account_as_json(before),
            after=None if after is None else account_as_json(after),
        )
        await audit_log.note(self._audit, event)


def _keys_of(name: str, counts: Mapping[str, KeyCount] | None) -> int | None:
    """How many keys an account has that are not revoked; None: they were not counted."""
    return None if counts is None else counts.get(name, KeyCount()).keys


def _changed(name: str) -> Changed:
    return Changed(f"account {name} was being changed by someone else, try again")


def account_version(name: str, known: Account | None) -> str:
    """The version of an account, which changes with every field. known: None: it has no record"""
    return version_of({"name": name} if known is None else account_as_json(known))


def _check(name: str, known: Account | None, version: str | None, must_be_new: bool) -> None:
    """Raises Changed if the account has another version, or exists although it must be new."""
    if must_be_new and known is not None:
        raise Changed(f"account {name} exists already")
    if version is not None and version != account_version(name, known):
        raise Changed(f"account {name} was changed by someone else, load it again")
