"""Accounts: the plan of their keys, enabled services, and limit overrides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.domain.audit import Event
from gateway.domain.keys import Account
from gateway.domain.patterns import is_word
from gateway.domain.policy import Policy
from gateway.domain.ports import AuditStore, CorruptRecord, KeyChanged, KeyFilter, KeyStore
from gateway.manage import audit_log
from gateway.manage.audit_log import Actor
from gateway.manage.forms import read_account
from gateway.manage.problems import Changed, NotThere
from gateway.manage.views import account_as_json, version_of

#: The most accounts that one page reads, and how many at a time.
MOST_LOOKED_AT: Final = 10_000
_BATCH: Final = 500
#: How often a change is retried because someone else changed the account in between.
_TRIES: Final = 5
#: At most this many keys without a plan are counted.
MOST_COUNTED: Final = 100


@dataclass(frozen=True, slots=True)
class AccountPage:
    """A page of accounts, by name. next: the `after` of the next page; None: there is none"""

    accounts: tuple[Account, ...]
    next: str | None


async def account_plan(keys: KeyStore, name: str) -> str:
    """The plan of an account's keys that have no plan of their own; "": none.

    An unreadable account must not hide its keys, which may have to be revoked.
    """
    try:
        account = await keys.account(name)
    except CorruptRecord:
        return ""
    return account.plan if account else ""


class Accounts:
    """Accounts in a store. policy: the current one, for plans and limits; None: unknown"""

    def __init__(
        self,
        keys: KeyStore,
        audit: AuditStore,
        policy: Callable[[], Policy | None],
        clock_us: Callable[[], int],
    ) -> None:
        self._keys = keys
        self._audit = audit
        self._policy = policy
        self._clock_us = clock_us

    async def page(
        self, after: str | None = None, count: int = 50, text: str | None = None
    ) -> AccountPage:
        """Accounts whose name contains the text, in any letter case, after this name.

        If many names have no account, a page may be short although more follow.
        """
        names = [
            name
            for name in await self._keys.account_names()
            if (after is None or name > after) and (text is None or text.lower() in name.lower())
        ]
        # Only the shown accounts are read: of 100,000, that saves a second.
        found: list[Account] = []
        looked_at, batch = 0, count + 1
        while len(found) <= count and looked_at < min(len(names), MOST_LOOKED_AT):
            found += await self._keys.accounts_named(names[looked_at : looked_at + batch])
            looked_at, batch = looked_at + batch, min(2 * batch, _BATCH)
        if len(found) > count:
            return AccountPage(tuple(found[:count]), found[count - 1].name)
        is_all = looked_at >= len(names)
        return AccountPage(tuple(found), None if is_all else names[looked_at - 1])

    async def get(self, name: str) -> Account:
        """One account. Raises NotThere, also for an account that has keys but was never created."""
        if not is_word(name):  # and not printed, as it may be a secret
            raise NotThere("there is no account of this name")
        account = await self._keys.account(name)
        if account is None:
            raise NotThere(f"there is no account {name}")
        return account

    async def put(
        self,
        actor: Actor,
        name: str,
        given: Mapping[str, object],
        version: str | None = None,
        must_be_new: bool = False,
    ) -> Account:
        """Create or replace an account. Fields not given are empty. Raises Invalid, Changed.

        version: `views.version_of` the account that may be replaced; None: any
        """
        account = read_account(name, given, self._policy())
        for _ in range(_TRIES):
            known = await self._keys.account(name)
            _check(name, known, version, must_be_new)
            if known == account:
                return account
            try:
                await self._keys.replace_account(known, account)
            except KeyChanged:
                continue
            await self._note(actor, known, account)
            return account
        raise Changed(f"account {name} was being changed by someone else, try again")

    async def keys_without_plan(self, account: Account) -> int:
        """How many of its valid keys have no plan, and get 503; at most `MOST_COUNTED`."""
        if account.plan:
            return 0
        wanted = KeyFilter(status="valid", plan="", account=account.name, now_us=self._clock_us())
        return len(await self._keys.page(wanted, count=MOST_COUNTED))

    async def _note(self, actor: Actor, before: Account | None, after: Account) -> None:
        event = Event(
            at_us=self._clock_us(),
            actor=str(actor),
            action="account.set",
            subject=f"account:{after.name}",
            before=None if before is None else account_as_json(before),
            after=account_as_json(after),
        )
        await audit_log.note(self._audit, event)


def _check(name: str, known: Account | None, version: str | None, must_be_new: bool) -> None:
    """Raises Changed if the account has another version, or exists although it must be new."""
    if must_be_new and known is not None:
        raise Changed(f"account {name} exists already")
    if version is not None and (known is None or version_of(account_as_json(known)) != version):
        raise Changed(f"account {name} was changed by someone else, load it again")
