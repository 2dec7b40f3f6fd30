"""The audit log in Redis.

gw:{keys}:audit       a stream; the id of an entry is NUMBER-0, its fields the event as JSON, the
                      hash before it, its own hash, and the token of the one append that put it in
gw:{keys}:audit:head  "NUMBER HASH" of the last entry: what shows that the end was cut off

An append says which entry it comes after. Where another came first it is told so, is chained anew
and tried again; so of many who append at once each gets in, and no number is left out. A command
whose answer was lost may be sent again: the token tells that the entry is in already.

What people do is noted also where the store is full, like the changes themselves: see `keys`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from gateway.domain.audit import NOTHING_BEFORE, Entry, Event, as_fields, chained
from gateway.domain.ports import StoreDown
from gateway.stores.keys import NO_NAME
from gateway.stores.records import KEYS_TAG
from gateway.stores.translated import translated

AUDIT: Final = KEYS_TAG + "audit"
AUDIT_HEAD: Final = AUDIT + ":head"
#: Each try is lost to somebody else's append only, so that this many mean that something is wrong.
_TRIES: Final = 200
#: No entry's number is as large, and no larger one may be part of a stream's id.
_MOST: Final = 2**53
_HASHES: Final = (b"previous", b"hash")
#: From here on no calendar goes: nobody wrote such a moment.
_YEAR_10000_US: Final = 253_402_300_800_000_000
#: How deep lists and objects lie in each other in an event. A key's limits, the deepest that the
#: gateway notes, are on the fourth level; to read or write thousands of levels is a RecursionError.
_MOST_LEVELS: Final = 8
#: The action of an entry that is not what was written.
UNREADABLE: Final = "unreadable"

# Gives 1 where the entry is in the log now, else the head that it has to come after. Whatever was
# done to the head by hand, the log goes on after the last entry that there is. ARGV[7]: the number
# of the first entry that stays.
_APPEND: Final = """
local head = redis.call('GET', KEYS[2]) or ''
if not string.match(head, '^%d+ %x+$') then head = '' end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if last then
  local number = tonumber(string.match(last[1], '^%d+'))
  if number > (tonumber(string.match(head, '^%d+')) or 0) then
    head = string.format('%.0f ', number) .. (string.match(last[2][6] or '', '^%x+$') or '')
  end
end
if head == ARGV[1] then
  redis.call('DEL', KEYS[3])
  if ARGV[7] ~= '1' then redis.call('XTRIM', KEYS[1], 'MINID', ARGV[7]) end
  redis.call('XADD', KEYS[1], ARGV[2] .. '-0',
    'event', ARGV[3], 'previous', ARGV[4], 'hash', ARGV[5], 'token', ARGV[6])
  redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. ARGV[5])
  return 1
end
local there = redis.call('XRANGE', KEYS[1], ARGV[2] .. '-0', ARGV[2] .. '-0')[1]
if there and there[2][8] == ARGV[6] then return 1 end
return head
"""

#: Sends a command of these words and gives its reply; what it raises goes to whoever appends.
Ask = Callable[..., Awaitable[Any]]


class AuditAppender:
    """Puts events at the end, over whatever sends commands: `StoreLink.ask`, a client's own."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._turn = asyncio.Lock()
        self._head = 0, NOTHING_BEFORE

    async def append(self, event: Event, *, drop_to: int = 0) -> Entry:
        """Put an event at the end, and drop all entries up to this number.

        Raises StoreDown; the event may then be in the log, or not.
        """
        # One after the other: against each other they would only take more tries.
        async with self._turn:
            token = secrets.token_hex(8)
            for _ in range(_TRIES):
                entry = chained(event, self._head[0] + 1, self._head[1])
                names = AUDIT, AUDIT_HEAD, NO_NAME
                words = *self._words(entry), token, drop_to + 1
                reply = await self._ask("EVAL", _APPEND, len(names), *names, *words)
                if reply == 1:
                    self._head = entry.number, entry.hash
                    return entry
                self._head = _read_head(reply)
        raise StoreDown("the audit log cannot be appended to: others always come first")

    def _words(self, entry: Entry) -> tuple[str | int, ...]:
        number, last_hash = self._head
        after = f"{number} {last_hash}" if number else ""
        return after, entry.number, _write_event(entry.event), entry.previous, entry.hash


class RedisAuditStore:
    """domain.ports.AuditStore over a redis-py client, which stays its owner's to close."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client
        self._appender = AuditAppender(client.execute_command)

    async def append(self, event: Event, *, drop_to: int = 0) -> Entry:
        """Put an event at the end, and drop all entries up to this number."""
        async with translated():
            return await self._appender.append(event, drop_to=drop_to)

    async def entries(self, *, before: int | None = None, count: int = 100) -> list[Entry]:
        """The newest first, up to `count`, of numbers below `before`."""
        if before is not None and before <= 1:
            return []
        newest = "+" if before is None or before > _MOST else str(before - 1)
        async with translated():
            found = await self._redis.xrevrange(AUDIT, newest, "-", count)
        return [_read_entry(entry_id, fields) for entry_id, fields in found]

    async def oldest(self, *, after: int = 0, count: int = 100) -> list[Entry]:
        """The oldest first, up to `count`, of numbers above `after`."""
        async with translated():
            found = await self._redis.xrange(AUDIT, str(after + 1), "+", count)
        return [_read_entry(entry_id, fields) for entry_id, fields in found]

    async def head(self) -> tuple[int, str]:
        """Number and hash of the last entry, as was noted when it was put in."""
        async with translated():
            return _read_head(await self._redis.get(AUDIT_HEAD) or b"")


def _read_head(text: bytes) -> tuple[int, str]:
    """Number and hash; what is neither is as if nothing were there."""
    number, _, last_hash = text.decode("ascii", "replace").partition(" ")
    return (int(number), last_hash) if number.isdecimal() else (0, NOTHING_BEFORE)


def _write_event(event: Event) -> str:
    return json.dumps(as_fields(event), separators=(",", ":"))


def _read_entry(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    """An entry as it is in the stream, whatever has been done to it: `verify` is to see it."""
    number = int(entry_id.partition(b"-")[0])
    previous, own_hash = (fields.get(name, b"").decode("ascii", "replace") for name in _HASHES)
    return Entry(number, _read_event(number, fields.get(b"event", b"")), previous, own_hash)


def _read_event(number: int, content: bytes) -> Event:
    """What happened; where that cannot be read, an event that says so."""
    try:
        found = json.loads(content)
        event = Event(**found)
        texts = (event.actor, event.action, event.subject)
        values = (event.before, event.after)
        if (
            isinstance(event.at_us, int)
            and 0 <= event.at_us < _YEAR_10000_US
            and all(isinstance(text, str) for text in texts)
            and all(value is None or isinstance(value, dict) for value in values)
            and _is_shallow(found, _MOST_LEVELS)
        ):
            return event
    except (ValueError, TypeError, RecursionError):
        pass
    return Event(0, "", UNREADABLE, f"entry:{number}")


def _is_shallow(value: object, levels: int) -> bool:
    """Do lists and objects lie in each other no deeper than this?"""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return levels > 0 and all(_is_shallow(part, levels - 1) for part in value)
    return True
