"""The key store in Redis: reads and changes keys and accounts.

Off the hot path, so plain redis-py. Every command may be sent twice, because the client retries a
command whose connection broke: the second time changes nothing and returns the first answer. Errors
of the store are raised as StoreDown.

Others may write to the store. So the length of a value and the values read at one time are bounded,
and a list omits and logs records that cannot be read: they must not hide the others.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ResponseError

from gateway.domain.key_format import is_key_id
from gateway.domain.keylife import is_wanted
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.patterns import LATEST_US, is_word
from gateway.domain.ports import (
    ONCE_S,
    CorruptRecord,
    KeyChanged,
    KeyCount,
    KeyFilter,
    KeyTaken,
    MadeBefore,
    StoreDown,
)
from gateway.stores.keys import scripts
from gateway.stores.keys.prefilter import Owner, Prefilter, owner_of
from gateway.stores.keys.records import (
    MOST_BYTES,
    UnreadableLog,
    read_account,
    read_record,
    write_account,
    write_record,
)
from gateway.stores.names import (
    ACCOUNT_INDEX,
    DELETED,
    KEY_INDEX,
    NO_NAME,
    USED,
    account_name,
    key_name,
    once_name,
)
from gateway.stores.redis.errors import check_type, translated, typed
from gateway.stores.redis.members import read_members

log = logging.getLogger("gateway")

T = TypeVar("T", KeyRecord, Account)

#: The most names of accounts that are read (which takes some 0.2 s), and the longest name.
_MOST_ACCOUNTS: Final = 200_000
_LONGEST_NAME: Final = 64

#: Values and bytes read by one command, so that it does not block the store for long. A usual
#: record has 500 bytes.
_BATCH: Final = 500
_BATCH_BYTES: Final = 4 * 1024 * 1024


class RedisKeyStore:
    """domain.ports.KeyStore over a redis-py client, which its owner closes."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client
        self._unreadable = UnreadableLog(time.monotonic)

    async def add(self, record: KeyRecord, once: str | None = None) -> None:
        """Store a new record. Raises KeyTaken, and MadeBefore."""
        names = [key_name(record.id), KEY_INDEX, *([once_name(once)] if once is not None else [])]
        created = str(record.created_us)
        arguments = (write_record(record), created, record.id, str(ONCE_S))
        async with typed(self._redis, KEY_INDEX, "zset"):
            kept = await self._eval(scripts.ADD, names, arguments)
        if isinstance(kept, bytes):
            made = kept.decode("ascii", "replace")
            if not is_key_id(made):
                raise CorruptRecord("idempotency key", str(once))
            raise MadeBefore(made)
        if not kept:
            raise KeyTaken(record.id)

    async def get(self, key_id: str) -> KeyRecord | None:
        """The record of an id. Raises CorruptRecord."""
        content = await self._value(key_name(key_id))
        return read_record(key_id, content) if content else None

    async def replace(self, old: KeyRecord, new: KeyRecord) -> None:
        """Store `new` if `old` is stored now. Raises KeyChanged."""
        names, written = [key_name(old.id), NO_NAME], write_record(new)
        async with translated():
            kept = await self._eval(scripts.REPLACE, names, (write_record(old), written))
        if not kept and (other := await self._other_form(names[0], old, read_record)):
            async with translated():
                kept = await self._eval(scripts.REPLACE, names, (other, written))
        if not kept:
            raise KeyChanged(old.id)

    async def records(self) -> list[KeyRecord]:
        """All of them, oldest first."""
        found: list[KeyRecord] = []
        async with typed(self._redis, KEY_INDEX, "zset"):
            members = await self._redis.zrange(KEY_INDEX, 0, -1)
            async for key_id, content in self._contents(_key_ids(members)):
                if (record := self._record(key_id, content)) is not None:
                    found.append(record)
        return found

    async def page(
        self, wanted: KeyFilter, *, after: str | None = None, count: int = 50
    ) -> list[KeyRecord]:
        """Keys that match, newest first, up to `count`; from the one after this id.

        The index is read some hundred keys at a time, so that neither the store nor this process
        is blocked for long. If few keys match, so that all of 10,000 large ones are read, a page
        takes 40 to 65 ms on the 2-core machine.
        """
        prefilter = Prefilter(wanted)
        batch = _BATCH if prefilter.is_selective else count
        last = None if after is None else after.encode()
        found: list[KeyRecord] = []
        async with typed(self._redis, KEY_INDEX, "zset"):
            while len(found) < count and (members := await self._members_after(last, batch)):
                found += await self._filtered(_key_ids(members), prefilter)
                # As these did not fill the page, few of the next will match.
                last, batch = members[-1], _BATCH
        return found[:count]

    async def _members_after(self, last: bytes | None, count: int) -> list[bytes]:
        """The next ids of the index, newest first. By id: a new key changes all ranks."""
        rank = -1 if last is None else await self._redis.zrevrank(KEY_INDEX, last)
        if rank is None:
            return []
        members: list[bytes] = await self._redis.zrevrange(KEY_INDEX, rank + 1, rank + count)
        return members

    async def _filtered(self, ids: list[str], prefilter: Prefilter) -> list[KeyRecord]:
        """The keys among these that match."""
        records = [
            record
            async for key_id, content in self._contents(ids)
            if prefilter.may_pass(content) and (record := self._record(key_id, content)) is not None
        ]
        plans = await self._account_plans({one.account for one in records if not one.plan})
        return [
            one
            for one in records
            if is_wanted(one, one.plan or plans[one.account], prefilter.wanted)
        ]

    async def _account_plans(self, accounts: Iterable[str]) -> Mapping[str, str]:
        """The plans of these accounts; "": none."""
        found = [account async for account in self._accounts(accounts)]
        return defaultdict(str, {account.name: account.plan for account in found})

    async def account(self, name: str) -> Account | None:
        """The account of a name. Raises CorruptRecord."""
        content = await self._value(account_name(name))
        return read_account(name, content) if content else None

    async def put_account(self, account: Account) -> None:
        """Store an account, replacing the one of this name."""
        names = [account_name(account.name), ACCOUNT_INDEX]
        async with typed(self._redis, ACCOUNT_INDEX, "set"):
            await self._eval(scripts.PUT_ACCOUNT, names, (write_account(account), account.name))

    async def replace_account(self, old: Account | None, new: Account) -> None:
        """Store `new` if `old` is stored now. Raises KeyChanged."""
        names = [account_name(new.name), ACCOUNT_INDEX, NO_NAME]
        arguments = write_account(new), new.name
        before = b"" if old is None else write_account(old)
        async with typed(self._redis, ACCOUNT_INDEX, "set"):
            kept = await self._eval(scripts.REPLACE_ACCOUNT, names, (before, *arguments))
        if not kept and old and (other := await self._other_form(names[0], old, read_account)):
            async with translated():
                kept = await self._eval(scripts.REPLACE_ACCOUNT, names, (other, *arguments))
        if not kept:
            raise KeyChanged(new.name)

    async def accounts(self) -> list[Account]:
        """All of them, by name; those that cannot be read are omitted."""
        return await self.accounts_named(await self.account_names())

    async def accounts_named(self, names: Sequence[str]) -> list[Account]:
        """The accounts of these names that exist and can be read, in the order of the names."""
        async with translated():
            return [account async for account in self._accounts(names)]

    async def account_names(self) -> list[str]:
        """The names of all of them, in order. An account may have been deleted since.

        If the index has more than 200,000 members, some are omitted, and the log says so.
        """
        most, longest = _MOST_ACCOUNTS, _LONGEST_NAME
        async with translated():
            ask = self._redis.execute_command
            members = await read_members(ask, ACCOUNT_INDEX, most=most, longest=longest)
        if not members.is_set:
            await check_type(self._redis, ACCOUNT_INDEX, "set")
        if members.more:
            log.warning("the store has more than %d names of accounts, others are not shown", most)
        return sorted(name for member in members.found if is_word(name := _text(member)))

    async def remove_account(self, account: Account) -> None:
        """Delete an account, if it is stored so now, or not at all. Raises KeyChanged."""
        names = [account_name(account.name), ACCOUNT_INDEX, DELETED]
        written = write_account(account)
        async with typed(self._redis, ACCOUNT_INDEX, "set"):
            gone = await self._eval(scripts.REMOVE_ACCOUNT, names, (written, account.name))
        if not gone and (other := await self._other_form(names[0], account, read_account)):
            async with translated():
                gone = await self._eval(scripts.REMOVE_ACCOUNT, names, (other, account.name))
        if not gone:
            raise KeyChanged(account.name)

    async def key_counts(self) -> Mapping[str, KeyCount]:
        """How many keys each account has, by its name; also accounts that have no record."""
        found: dict[str, KeyCount] = {}
        async with typed(self._redis, KEY_INDEX, "zset"):
            members = await self._redis.zrange(KEY_INDEX, 0, -1)
            async for key_id, content in self._contents(_key_ids(members)):
                if owner := owner_of(content) or self._owner(key_id, content):
                    account, *more = owner
                    found[account] = found.get(account, KeyCount()).with_key(*more)
        return found

    async def touch(self, key_ids: Iterable[str], now_us: int) -> None:
        """Note that these keys were used now."""
        if moments := dict.fromkeys(key_ids, str(now_us)):
            async with translated():
                await self._redis.hset(USED, mapping=moments)

    async def last_used(self, key_ids: Iterable[str]) -> Mapping[str, int]:
        """When each of these keys was last used, Unix microseconds; unused keys are omitted."""
        ids = list(key_ids)
        if not ids:
            return {}
        async with translated():
            try:
                moments = await self._redis.hmget(USED, ids)
            except ResponseError as error:
                if not str(error).startswith("WRONGTYPE"):
                    raise
                return {}
        pairs = zip(ids, moments, strict=True)
        return {key_id: int(at) for key_id, at in pairs if at is not None and _is_moment(at)}

    async def time(self) -> object:
        """The reply to TIME of the server with the keys."""
        async with translated():
            return await self._eval("return redis.call('TIME')", [KEY_INDEX], ())

    async def _value(self, name: str) -> bytes:
        """The value under a name; b"": none."""
        async with translated():
            values = await self._read([name])
        return values[0]

    async def _other_form(self, name: str, old: T, read: Callable[[str, bytes], T]) -> bytes:
        """The stored value, if it is `old` in another JSON format, by hand or by another tool.

        Else b"". A key in such a format is valid, so it must be possible to revoke it.
        """
        content = await self._value(name)
        try:
            return content if content and read(_subject(old), content) == old else b""
        except CorruptRecord:
            return b""

    async def _contents(self, ids: Sequence[str]) -> AsyncIterator[tuple[str, bytes]]:
        """The records of these keys as JSON; keys without one are omitted."""
        names = [key_name(key_id) for key_id in ids]
        async for at, content in self._values(names):
            yield ids[at], content

    async def _accounts(self, names: Iterable[str]) -> AsyncIterator[Account]:
        """The accounts of these names that exist and can be read."""
        wanted = list(names)
        async for at, content in self._values([account_name(name) for name in wanted]):
            try:
                yield read_account(wanted[at], content)
            except CorruptRecord as error:
                self._unreadable.note(error)

    def _owner(self, key_id: str, content: bytes) -> Owner | None:
        record = self._record(key_id, content)
        return None if record is None else Owner.of(record)

    def _record(self, key_id: str, content: bytes) -> KeyRecord | None:
        try:
            return read_record(key_id, content)
        except CorruptRecord as error:
            self._unreadable.note(error)
            return None

    async def _values(self, names: Sequence[str]) -> AsyncIterator[tuple[int, bytes]]:
        """The values under these names, each with its index; missing ones are omitted."""
        start = 0
        while start < len(names):
            values = await self._read(names[start : start + _BATCH])
            if not values:
                raise StoreDown("the store sent an unexpected reply")
            for at, content in enumerate(values, start):
                if content:
                    yield at, content
            start += len(values)

    async def _read(self, names: Sequence[str]) -> list[bytes]:
        """The values of the first of these names, as many as are read at one time."""
        values: Any = await self._eval(scripts.READ, names, (str(MOST_BYTES), str(_BATCH_BYTES)))
        return list(values)

    async def _eval(
        self, script: str, names: Sequence[str], arguments: Sequence[bytes | str]
    ) -> object:
        return await self._redis.eval(script, len(names), *names, *arguments)


def _key_ids(members: Iterable[bytes]) -> list[str]:
    """The members of the index that are key ids."""
    return [key_id for member in members if is_key_id(key_id := _text(member))]


def _subject(kept: KeyRecord | Account) -> str:
    return kept.id if isinstance(kept, KeyRecord) else kept.name


def _text(member: bytes) -> str:
    return member.decode("ascii", "replace")


def _is_moment(at: bytes) -> bool:
    return at.isdigit() and len(at) < 20 and int(at) <= LATEST_US
