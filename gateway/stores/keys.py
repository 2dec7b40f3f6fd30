"""The key store in Redis: what commands and the directory's owner use to read and change keys.

Off the hot path, so plain redis-py. Every method may be sent twice, because the client repeats a
command whose connection broke: each is written so that a second time changes nothing and gives
the answer of the first. What goes wrong in the store is StoreDown here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from gateway.domain.keylife import is_wanted
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.ports import (
    ONCE_S,
    CorruptRecord,
    KeyChanged,
    KeyFilter,
    KeyTaken,
    MadeBefore,
)
from gateway.stores.records import (
    ACCOUNT_INDEX,
    KEY_INDEX,
    KEYS_TAG,
    USED,
    account_name,
    key_name,
    once_name,
    read_account,
    read_record,
    write_account,
    write_record,
)
from gateway.stores.sieve import Sieve
from gateway.stores.translated import translated

log = logging.getLogger("gateway")

#: Values asked for in one MGET, so that none of them holds up the store.
_BATCH: Final = 500

#: Nothing is ever kept under this name. A script that deletes it may write where the store is full:
#: Redis refuses what takes memory as the first write of a script, and no later one.
NO_NAME: Final = KEYS_TAG + "none"

# Records and accounts that exist can be changed in a store that is full, so that a revocation works
# there; each takes the place of one of about its size. New ones are refused.
#
# The scripts give 1 where what is kept now is what was to be kept, also when an earlier try,
# whose answer was lost, has put it there. A cluster's client has no transactions in its older
# releases, so that even what decides nothing is a script.
_ADD: Final = """
if KEYS[3] then
  local made = redis.call('GET', KEYS[3])
  if made and made ~= ARGV[3] then
    return made
  end
end
if redis.call('SET', KEYS[1], ARGV[1], 'NX') then
  redis.call('ZADD', KEYS[2], ARGV[2], ARGV[3])
  if KEYS[3] then
    redis.call('SET', KEYS[3], ARGV[3], 'EX', ARGV[4])
  end
  return 1
end
return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0
"""
_REPLACE: Final = """
local now = redis.call('GET', KEYS[1])
if now == ARGV[1] then
  redis.call('DEL', KEYS[2])
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
  return 1
end
return now == ARGV[2] and 1 or 0
"""
_REPLACE_ACCOUNT: Final = """
local now = redis.call('GET', KEYS[1]) or ''
if now == ARGV[1] then
  if now ~= '' then redis.call('DEL', KEYS[3]) end
  redis.call('SADD', KEYS[2], ARGV[3])
  redis.call('SET', KEYS[1], ARGV[2])
  return 1
end
return now == ARGV[2] and 1 or 0
"""
_PUT_ACCOUNT: Final = """
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""


class RedisKeyStore:
    """domain.ports.KeyStore over a redis-py client, which stays its owner's to close."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client

    async def add(self, record: KeyRecord, once: str | None = None) -> None:
        """Keep a new record. Raises KeyTaken, and MadeBefore."""
        names = [key_name(record.id), KEY_INDEX, *([once_name(once)] if once is not None else [])]
        created = str(record.created_us)
        arguments = (write_record(record), created, record.id, str(ONCE_S))
        async with translated():
            kept = await self._eval(_ADD, names, arguments)
        if isinstance(kept, bytes):
            raise MadeBefore(kept.decode())
        if not kept:
            raise KeyTaken(record.id)

    async def get(self, key_id: str) -> KeyRecord | None:
        """The record of an id. Raises CorruptRecord."""
        async with translated():
            content = await self._redis.get(key_name(key_id))
        return None if content is None else read_record(key_id, content)

    async def replace(self, old: KeyRecord, new: KeyRecord) -> None:
        """Keep `new` where `old` is what is kept now. Raises KeyChanged."""
        arguments = (write_record(old), write_record(new))
        async with translated():
            kept = await self._eval(_REPLACE, [key_name(old.id), NO_NAME], arguments)
        if not kept:
            raise KeyChanged(old.id)

    async def records(self) -> list[KeyRecord]:
        """All of them, oldest first. Raises CorruptRecord."""
        async with translated():
            ids = [found.decode() for found in await self._redis.zrange(KEY_INDEX, 0, -1)]
            contents = await self._values([key_name(key_id) for key_id in ids])
        pairs = zip(ids, contents, strict=True)
        return [read_record(key_id, content) for key_id, content in pairs if content is not None]

    async def page(
        self, wanted: KeyFilter, *, after: str | None = None, count: int = 50
    ) -> list[KeyRecord]:
        """Those that are wanted, newest first, up to `count`; from the one after this id.

        A record that cannot be read is left out, and the log says so: one must not hide all others.
        The index is walked, some hundred keys at a time, so that neither the
        store nor this process is held up for long. Where the page's keys are rare, and all of
        10,000 with much in them are looked at, it takes 40 to 65 ms on the 2-core machine.
        """
        sieve = Sieve(wanted)
        batch = _BATCH if sieve.sifts else count
        found: list[KeyRecord] = []
        async with translated():
            while len(found) < count and (ids := await self._ids_after(after, batch)):
                found += await self._sifted(ids, sieve)
                after = ids[-1]
        return found[:count]

    async def _ids_after(self, after: str | None, count: int) -> list[str]:
        """The next ids of the index, newest first: a rank is good only until a key is made."""
        rank = -1 if after is None else await self._redis.zrevrank(KEY_INDEX, after)
        if rank is None:
            return []
        ids = await self._redis.zrevrange(KEY_INDEX, rank + 1, rank + count)
        return [found.decode() for found in ids]

    async def _sifted(self, ids: list[str], sieve: Sieve) -> list[KeyRecord]:
        """Those of these keys that are wanted."""
        contents = await self._values([key_name(key_id) for key_id in ids])
        records = [
            record
            for key_id, content in zip(ids, contents, strict=True)
            if content is not None
            and sieve.may_pass(content)
            and (record := _legible(key_id, content)) is not None
        ]
        plans = await self._account_plans({one.account for one in records if not one.plan})
        return [
            one for one in records if is_wanted(one, one.plan or plans[one.account], sieve.wanted)
        ]

    async def _account_plans(self, accounts: Iterable[str]) -> Mapping[str, str]:
        """The plans of these accounts; "": none."""
        names = list(accounts)
        contents = await self._values([account_name(name) for name in names])
        return {
            name: "" if content is None else read_account(name, content).plan
            for name, content in zip(names, contents, strict=True)
        }

    async def account(self, name: str) -> Account | None:
        """The account of a name. Raises CorruptRecord."""
        async with translated():
            content = await self._redis.get(account_name(name))
        return None if content is None else read_account(name, content)

    async def put_account(self, account: Account) -> None:
        """Keep an account in place of what was kept under its name."""
        names = [account_name(account.name), ACCOUNT_INDEX]
        async with translated():
            await self._eval(_PUT_ACCOUNT, names, (write_account(account), account.name))

    async def replace_account(self, old: Account | None, new: Account) -> None:
        """Keep `new` where `old` is what is kept now. Raises KeyChanged."""
        names = [account_name(new.name), ACCOUNT_INDEX, NO_NAME]
        arguments = (b"" if old is None else write_account(old), write_account(new), new.name)
        async with translated():
            kept = await self._eval(_REPLACE_ACCOUNT, names, arguments)
        if not kept:
            raise KeyChanged(new.name)

    async def accounts(self) -> list[Account]:
        """All of them, by name. Raises CorruptRecord."""
        names = await self.account_names()
        async with translated():
            contents = await self._values([account_name(name) for name in names])
        pairs = zip(names, contents, strict=True)
        return [read_account(name, content) for name, content in pairs if content is not None]

    async def account_names(self) -> list[str]:
        """The names of all of them, in order. One of them may have gone since."""
        async with translated():
            return sorted(found.decode() for found in await self._redis.smembers(ACCOUNT_INDEX))

    async def touch(self, key_ids: Iterable[str], now_us: int) -> None:
        """Note that these keys were used now."""
        if moments := dict.fromkeys(key_ids, str(now_us)):
            async with translated():
                await self._redis.hset(USED, mapping=moments)

    async def last_used(self, key_ids: Iterable[str]) -> Mapping[str, int]:
        """When each of these keys was last used, Unix microseconds; one never used is left out."""
        ids = list(key_ids)
        if not ids:
            return {}
        async with translated():
            moments = await self._redis.hmget(USED, ids)
        pairs = zip(ids, moments, strict=True)
        return {key_id: int(at) for key_id, at in pairs if at is not None and at.isdigit()}

    async def _values(self, names: list[str]) -> list[bytes | None]:
        """The values under these names. A cluster's pipelines know no MGET: one after the other."""
        values: list[bytes | None] = []
        for start in range(0, len(names), _BATCH):
            values += await self._redis.mget(names[start : start + _BATCH])
        return values

    async def _eval(
        self, script: str, names: Sequence[str], arguments: Sequence[bytes | str]
    ) -> object:
        return await self._redis.eval(script, len(names), *names, *arguments)


def _legible(key_id: str, content: bytes) -> KeyRecord | None:
    try:
        return read_record(key_id, content)
    except CorruptRecord as error:
        log.error("a key is left out of the list: %s", error)
        return None
