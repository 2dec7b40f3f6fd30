"""Keys in process, store and directory, for memory:// and tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from gateway.domain.identity import Absent, Identity
from gateway.domain.keylife import is_wanted
from gateway.domain.keys import Account, KeyRecord, with_account
from gateway.domain.ports import ONCE_S, KeyChanged, KeyCount, KeyFilter, KeyTaken, MadeBefore
from gateway.stores.keys.cache import IdentityCache


class MemoryKeyStore:
    """domain.ports.KeyStore over two dictionaries; it never raises StoreDown.

    on_key, on_account: if set, called with the id of a changed key, the name of a changed account
    """

    def __init__(self) -> None:
        self.on_key: Callable[[str], None] | None = None
        self.on_account: Callable[[str], None] | None = None
        self._records: dict[str, KeyRecord] = {}
        self._accounts: dict[str, Account] = {}
        self._used: dict[str, int] = {}
        #: By idempotency key: the id that was created under it, and when.
        self._once: dict[str, tuple[str, int]] = {}

    async def add(self, record: KeyRecord, once: str | None = None) -> None:
        """Store a new record. Raises KeyTaken, and MadeBefore."""
        self._expire_idempotency_keys(record.created_us - ONCE_S * 1_000_000)
        if once is not None:
            made, _ = self._once.get(once, (record.id, 0))
            if made != record.id:
                raise MadeBefore(made)
        if self._records.setdefault(record.id, record) != record:
            raise KeyTaken(record.id)
        if once is not None:
            self._once[once] = record.id, record.created_us
        self._key_changed(record.id)

    async def get(self, key_id: str) -> KeyRecord | None:
        """The record of an id."""
        return self.record_now(key_id)

    def record_now(self, key_id: str) -> KeyRecord | None:
        """The same, not awaited: for the directory of this process."""
        return self._records.get(key_id)

    async def replace(self, old: KeyRecord, new: KeyRecord) -> None:
        """Store `new` if `old` is stored now. Raises KeyChanged."""
        if self._records.get(old.id) not in (old, new):
            raise KeyChanged(old.id)
        self._records[old.id] = new
        self._key_changed(old.id)

    async def records(self) -> list[KeyRecord]:
        """All of them, oldest first."""
        return sorted(self._records.values(), key=lambda record: (record.created_us, record.id))

    async def page(
        self, wanted: KeyFilter, *, after: str | None = None, count: int = 50
    ) -> list[KeyRecord]:
        """Keys that match, newest first, up to `count`; from the one after this id."""
        records = (await self.records())[::-1]
        if after is not None:
            ids = [record.id for record in records]
            records = records[ids.index(after) + 1 :] if after in ids else []
        found = (record for record in records if is_wanted(record, self._plan_of(record), wanted))
        return list(islice(found, count))

    def _plan_of(self, record: KeyRecord) -> str:
        account = self._accounts.get(record.account)
        return record.plan or (account.plan if account else "")

    async def account(self, name: str) -> Account | None:
        """The account of a name."""
        return self.account_now(name)

    def account_now(self, name: str) -> Account | None:
        """The same, not awaited."""
        return self._accounts.get(name)

    async def put_account(self, account: Account) -> None:
        """Store an account, replacing the one of this name."""
        self._accounts[account.name] = account
        if self.on_account is not None:
            self.on_account(account.name)

    async def replace_account(self, old: Account | None, new: Account) -> None:
        """Store `new` if `old` is stored now. Raises KeyChanged."""
        if self._accounts.get(new.name) not in (old, new):
            raise KeyChanged(new.name)
        await self.put_account(new)

    async def accounts(self) -> list[Account]:
        """All of them, by name."""
        return sorted(self._accounts.values(), key=lambda account: account.name)

    async def accounts_named(self, names: Sequence[str]) -> list[Account]:
        """The accounts of these names that exist, in the order of the names."""
        return [self._accounts[name] for name in names if name in self._accounts]

    async def account_names(self) -> list[str]:
        """The names of all of them, in order."""
        return sorted(self._accounts)

    async def remove_account(self, account: Account) -> None:
        """Delete an account, if it is stored so now, or not at all. Raises KeyChanged."""
        if self._accounts.get(account.name, account) != account:
            raise KeyChanged(account.name)
        if self._accounts.pop(account.name, None) and self.on_account is not None:
            self.on_account(account.name)

    async def key_counts(self) -> Mapping[str, KeyCount]:
        """How many keys each account has, by its name; also accounts that have no record."""
        found: dict[str, KeyCount] = {}
        for record in self._records.values():
            count = found.get(record.account, KeyCount())
            is_own = record.account == record.lineage
            found[record.account] = count.with_key(record.status == "revoked", is_own)
        return found

    async def touch(self, key_ids: Iterable[str], now_us: int) -> None:
        """Note that these keys were used now."""
        self.touch_now(key_ids, now_us)

    def touch_now(self, key_ids: Iterable[str], now_us: int) -> None:
        """The same, not awaited."""
        self._used.update(dict.fromkeys(key_ids, now_us))

    async def last_used(self, key_ids: Iterable[str]) -> Mapping[str, int]:
        """When each of these keys was last used, Unix microseconds; unused keys are omitted."""
        return {key_id: self._used[key_id] for key_id in key_ids if key_id in self._used}

    def _expire_idempotency_keys(self, before_us: int) -> None:
        """Drop idempotency keys that are older than this."""
        while self._once and next(iter(self._once.values()))[1] <= before_us:
            del self._once[next(iter(self._once))]

    def _key_changed(self, key_id: str) -> None:
        if self.on_key is not None:
            self.on_key(key_id)


class MemoryDirectory:
    """domain.ports.KeyDirectory over a key store of the same process: it sees changes at once."""

    is_up: Final = True

    def __init__(self, store: MemoryKeyStore, identities: IdentityCache | None = None) -> None:
        self._store = store
        self._identities = IdentityCache(time.monotonic) if identities is None else identities
        store.on_key = self._identities.invalidate_key
        store.on_account = self._identities.invalidate_account

    def known(self, key_id: str) -> Identity | Absent | None:
        """The cached identity; None: look it up."""
        return self._identities.find(key_id)

    def look_up(self, key_id: str, done: Callable[[Identity | Absent], None]) -> None:
        """Look up a key; `done` is called before this returns."""
        record = self._store.record_now(key_id)
        if record is None:
            done(Absent.UNKNOWN)
            return
        account = self._store.account_now(record.account) or Account(record.account)
        identity = Identity(with_account(record, account), account)
        self._identities.keep(identity)
        done(identity)

    def touch(self, identity: Identity) -> None:
        """The key was used just now."""
        self._store.touch_now((identity.record.id,), time.time_ns() // 1000)
