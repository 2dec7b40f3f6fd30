"""Keys inside one process, store and directory: for tests, and for a gateway on memory://."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gateway.domain.keys import Account, KeyRecord
from gateway.domain.ports import Absent, Identity, KeyChanged, KeyTaken
from gateway.stores.identities import Identities


class MemoryKeyStore:
    """domain.ports.KeyStore over two dictionaries; it is never down.

    on_key and on_account, where set, are called with the id or name of what has just changed.
    """

    def __init__(self) -> None:
        self.on_key: Callable[[str], None] | None = None
        self.on_account: Callable[[str], None] | None = None
        self._records: dict[str, KeyRecord] = {}
        self._accounts: dict[str, Account] = {}
        self._used: dict[str, int] = {}

    async def add(self, record: KeyRecord) -> None:
        """Keep a new record. Raises KeyTaken."""
        if self._records.setdefault(record.id, record) != record:
            raise KeyTaken(record.id)
        self._key_changed(record.id)

    async def get(self, key_id: str) -> KeyRecord | None:
        """The record of an id."""
        return self.record_now(key_id)

    def record_now(self, key_id: str) -> KeyRecord | None:
        """The same without waiting: the directory of this process asks."""
        return self._records.get(key_id)

    async def replace(self, old: KeyRecord, new: KeyRecord) -> None:
        """Keep `new` where `old` is what is kept now. Raises KeyChanged."""
        if self._records.get(old.id) not in (old, new):
            raise KeyChanged(old.id)
        self._records[old.id] = new
        self._key_changed(old.id)

    async def records(self) -> list[KeyRecord]:
        """All of them, oldest first."""
        return sorted(self._records.values(), key=lambda record: (record.created_us, record.id))

    async def account(self, name: str) -> Account | None:
        """The account of a name."""
        return self.account_now(name)

    def account_now(self, name: str) -> Account | None:
        """The same without waiting."""
        return self._accounts.get(name)

    async def put_account(self, account: Account) -> None:
        """Keep an account in place of what was kept under its name."""
        self._accounts[account.name] = account
        if self.on_account is not None:
            self.on_account(account.name)

    async def accounts(self) -> list[Account]:
        """All of them, by name."""
        return sorted(self._accounts.values(), key=lambda account: account.name)

    async def touch(self, key_ids: Iterable[str], now_us: int) -> None:
        """Note that these keys were used now."""
        self.touch_now(key_ids, now_us)

    def touch_now(self, key_ids: Iterable[str], now_us: int) -> None:
        """The same without waiting."""
        self._used.update(dict.fromkeys(key_ids, now_us))

    async def last_used(self, key_ids: Iterable[str]) -> Mapping[str, int]:
        """When each of these keys was last used, Unix microseconds; one never used is left out."""
        return {key_id: self._used[key_id] for key_id in key_ids if key_id in self._used}

    def _key_changed(self, key_id: str) -> None:
        if self.on_key is not None:
            self.on_key(key_id)


class MemoryDirectory:
    """domain.ports.KeyDirectory over a key store of the same process: changes show at once."""

    is_up: Final = True

    def __init__(self, store: MemoryKeyStore, identities: Identities | None = None) -> None:
        self._store = store
        self._identities = identities or Identities(time.monotonic)
        store.on_key = self._identities.forget_key
        store.on_account = self._identities.forget_account

    def known(self, key_id: str) -> Identity | Absent | None:
        """What is remembered: an identity, or None: look it up."""
        return self._identities.find(key_id)

    def look_up(self, key_id: str, done: Callable[[Identity | Absent], None]) -> None:
        """`done` is called before this returns."""
        record = self._store.record_now(key_id)
        if record is None:
            done(Absent.UNKNOWN)
            return
        account = self._store.account_now(record.account)
        identity = Identity(record, account or Account(record.account))
        self._identities.keep(identity)
        done(identity)

    def touch(self, key_id: str) -> None:
        """The key was used just now."""
        self._store.touch_now((key_id,), time.time_ns() // 1000)
