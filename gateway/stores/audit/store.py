"""The audit log in Redis.

gw:{keys}:audit       a stream; the id of an entry is NUMBER-0, its fields the event as JSON, the
                      hash before it, its own hash, and the token of the append that wrote it
gw:{keys}:audit:head  "NUMBER HASH" of the last entry, to detect that the end was cut off

An append names the entry that it follows. If another entry came first, it fails, and is chained and
tried again; so all concurrent appends succeed, and no number is skipped. A command whose reply was
lost may be sent again: the token shows that the entry is in the log already.

gw:{keys}:audit:customers and its head are the same for changes by customers, who could otherwise
displace the entries of operators.

Entries are written even when the store is full, like the changes that they describe: see `keys`.

Others may write to the stream. A stream accepts only ids above the highest that it ever had, so one
entry with a very high id would block the log; so would a value of another type under its name. In
such a case the log is renamed to gw:{keys}:audit:foreign:TIME:TOKEN, unchanged, and a new log
starts with an entry that records this. Both happen in one step, so that only one of several
gateways does it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from math import isfinite
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ResponseError

from gateway.domain.audit import (
    MOST_NUMBER,
    NOTHING_BEFORE,
    Entry,
    Event,
    as_fields,
    chained,
    unreadable,
    write_move,
)
from gateway.domain.json_text import read_json
from gateway.domain.ports import StoreDown
from gateway.stores.names import AUDIT, NO_NAME, audit_head_name, foreign_audit_name
from gateway.stores.redis.errors import translated, typed

log = logging.getLogger("gateway")

#: A try fails only because of a concurrent append, so this many failures mean an error.
_TRIES: Final = 200
#: The most bytes of the head: 15 digits, a space and a hash.
_HEAD_BYTES: Final = 80
#: Above both parts of any stream id.
_ID_END: Final = 2**64
#: The prefix of the script's reply if no entry can follow the existing ones.
_UNFIT: Final = b"unfit "
#: The largest number in an event.
_LARGEST: Final = 2**63
_HEAD: Final = re.compile(rb"([0-9]{1,15}) ([0-9A-Fa-f]*)")
_HASHES: Final = (b"previous", b"hash")
_HASH_BYTES: Final = 64
#: Dates from here on cannot be formatted; the gateway does not write them.
_YEAR_10000_US: Final = 253_402_300_800_000_000
#: The most levels of lists and objects in an event. A key's limits, the deepest that the gateway
#: writes, are on the fourth level.
_MOST_LEVELS: Final = 8

# Returns 1 if the entry is in the log now, else the head that it has to follow, with the prefix
# "unfit " if no entry can follow. Even if the head was changed by hand, the log continues after its
# last entry with a valid number.
#
# KEYS: the log, its head, NO_NAME, the name to move the log to; ARGV[7]: the number of the first
# entry to keep; 8: the largest number; 9: 1 to move the log aside first.
_APPEND: Final = """
local most, number, hash, spent = tonumber(ARGV[8]), 0, '', false
local text = redis.pcall('GETRANGE', KEYS[2], 0, 80)
if type(text) == 'table' then
  if not string.find(text.err, 'WRONGTYPE') then return text end
else
  local digits, hex = string.match(text, '^(%d+) (%x+)$')
  if digits and #digits <= 15 and tonumber(digits) < most then
    number, hash = tonumber(digits), hex
  end
end
local found = redis.pcall('XREVRANGE', KEYS[1], ARGV[8], '-', 'COUNT', 1)
if found.err then
  if not string.find(found.err, 'WRONGTYPE') then return found end
  spent = true
elseif found[1] then
  local last = tonumber(string.match(found[1][1], '^%d+'))
  if last >= most then
    number, hash, spent = 0, '', true
  elseif last > number then
    number, hash = last, string.sub(string.match(found[1][2][6] or '', '^%x+') or '', 1, 64)
  end
end
local head = number > 0 and string.format('%.0f %s', number, hash) or ''
if head == ARGV[1] then
  redis.call('DEL', KEYS[3])
  if ARGV[9] == '1' then
    local moved = redis.pcall('RENAME', KEYS[1], KEYS[4])
    if moved.err and not string.find(moved.err, 'no such key') then return moved end
  elseif spent then
    return 'unfit ' .. head
  elseif ARGV[7] ~= '1' then
    redis.call('XTRIM', KEYS[1], 'MINID', ARGV[7])
  end
  local added = redis.pcall('XADD', KEYS[1], ARGV[2] .. '-0',
    'event', ARGV[3], 'previous', ARGV[4], 'hash', ARGV[5], 'token', ARGV[6])
  if type(added) == 'table' and added.err then
    local is_unfit = string.find(added.err, 'equal or smaller')
      or string.find(added.err, 'exhausted')
    return is_unfit and 'unfit ' .. head or added
  end
  redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. ARGV[5])
  return 1
end
if not spent then
  local there = redis.call('XRANGE', KEYS[1], ARGV[2] .. '-0', ARGV[2] .. '-0')[1]
  if there and there[2][8] == ARGV[6] then return 1 end
end
return head
"""

#: Sends a command and returns its reply; it may raise.
Ask = Callable[..., Awaitable[Any]]


class AuditAppender:
    """Appends events, over any function that sends commands."""

    def __init__(self, ask: Ask, name: str = AUDIT) -> None:
        self._ask = ask
        self._name = name
        self._lock = asyncio.Lock()
        self._head = 0, NOTHING_BEFORE

    async def append(self, event: Event, *, drop_to: int = 0) -> Entry:
        """Append an event, and drop all entries up to this number.

        Raises StoreDown; the event may then be in the log, or not.
        """
        # One at a time: concurrent appends would only take more tries.
        async with self._lock:
            token = secrets.token_hex(8)
            for _ in range(_TRIES):
                entry, reply = await self._try(event, token, drop_to=drop_to)
                if reply == 1:
                    return entry
                if bytes(reply).startswith(_UNFIT):
                    await self._move(event.at_us)
        raise StoreDown("the audit log cannot be appended to: too many concurrent appends")

    async def _move(self, at_us: int) -> None:
        """Move the log aside, unless another gateway has done so."""
        token = secrets.token_hex(8)
        name = foreign_audit_name(at_us, token, self._name)
        entry, reply = await self._try(write_move(name, at_us), token, move_to=name)
        if reply == 1:
            log.error(
                "audit log: something else wrote to %s, so that no entry can follow; "
                "it was moved to %s, and a new log starts with entry %d",
                *(self._name, name, entry.number),
            )

    async def _try(
        self, event: Event, token: str, *, drop_to: int = 0, move_to: str = ""
    ) -> tuple[Entry, Any]:
        """Append an event after the known head; the entry, and the reply, which is 1 on success."""
        entry = chained(event, self._head[0] + 1, self._head[1])
        names = self._name, audit_head_name(self._name), NO_NAME, move_to or NO_NAME
        more = token, drop_to + 1, MOST_NUMBER, int(bool(move_to))
        arguments = *self._arguments(entry), *more
        reply = await self._ask("EVAL", _APPEND, len(names), *names, *arguments)
        if reply == 1:
            self._head = entry.number, entry.hash
        else:
            self._head = _read_head(bytes(reply).removeprefix(_UNFIT))
        return entry, reply

    def _arguments(self, entry: Entry) -> tuple[str | int, ...]:
        number, last_hash = self._head
        after = f"{number} {last_hash}" if number else ""
        return after, entry.number, _write_event(entry.event), entry.previous, entry.hash


class RedisAuditStore:
    """domain.ports.AuditStore over a redis-py client, which its owner closes. name: of the log"""

    def __init__(self, client: Redis | RedisCluster, name: str = AUDIT) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client
        self._appender = AuditAppender(client.execute_command, name)
        self._name = name

    async def append(self, event: Event, *, drop_to: int = 0) -> Entry:
        """Append an event, and drop all entries up to this number."""
        async with translated():
            return await self._appender.append(event, drop_to=drop_to)

    async def entries(self, *, before: int | None = None, count: int = 100) -> list[Entry]:
        """The newest first, up to `count`, of numbers below `before`."""
        if before is not None and before <= 1:
            return []
        newest = "+" if before is None or before >= _ID_END else str(before - 1)
        async with typed(self._redis, self._name, "stream"):
            found = await self._redis.xrevrange(self._name, newest, "-", count)
            # Of entries with the same number, the gateway's own one comes last.
            if len(found) == count and not (last := found[-1][0]).endswith(b"-0"):
                own = last.partition(b"-")[0] + b"-0"
                found += await self._redis.xrange(self._name, own, own)
        return [_read_entry(entry_id, fields) for entry_id, fields in found]

    async def oldest(self, *, after: int = 0, count: int = 100) -> list[Entry]:
        """The oldest first, up to `count`, of numbers above `after` up to MOST_NUMBER."""
        if after >= MOST_NUMBER:
            return []
        async with typed(self._redis, self._name, "stream"):
            found = await self._redis.xrange(self._name, str(after + 1), str(MOST_NUMBER), count)
        return [_read_entry(entry_id, fields) for entry_id, fields in found]

    async def head(self) -> tuple[int, str]:
        """Number and hash of the last entry, as written when it was appended."""
        async with translated():
            try:
                return _read_head(
                    await self._redis.getrange(audit_head_name(self._name), 0, _HEAD_BYTES)
                )
            except ResponseError as error:
                if not str(error).startswith("WRONGTYPE"):
                    raise
                return 0, NOTHING_BEFORE


def _read_head(text: bytes) -> tuple[int, str]:
    """Number and hash; those of an empty log if the text is invalid."""
    found = _HEAD.fullmatch(text)
    return (int(found[1]), found[2].decode()) if found else (0, NOTHING_BEFORE)


def _write_event(event: Event) -> str:
    return json.dumps(as_fields(event), separators=(",", ":"))


def _read_entry(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    """An entry as it is in the stream, with any changes: `verify` has to find them."""
    digits, _, sequence = entry_id.partition(b"-")
    number = int(digits)
    event = unreadable(number)
    if sequence == b"0" and 0 < number <= MOST_NUMBER:
        event = _read_event(number, fields.get(b"event", b""))
    previous, own_hash = (
        fields.get(name, b"")[:_HASH_BYTES].decode("ascii", "replace") for name in _HASHES
    )
    return Entry(number, event, previous, own_hash)


def _read_event(number: int, content: bytes) -> Event:
    """The event; if it cannot be read, `unreadable(number)`."""
    try:
        found = read_json(content)
        event = Event(**found)
        texts = (event.actor, event.action, event.subject)
        values = (event.before, event.after)
        if (
            isinstance(event.at_us, int)
            and 0 <= event.at_us < _YEAR_10000_US
            and all(isinstance(text, str) for text in texts)
            and all(value is None or isinstance(value, dict) for value in values)
            and _is_plain(found, _MOST_LEVELS)
        ):
            return event
    except (ValueError, TypeError):
        pass
    return unreadable(number)


def _is_plain(value: object, levels: int) -> bool:
    """Are lists and objects nested no deeper than this, and are all numbers in range?"""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return levels > 0 and all(_is_plain(part, levels - 1) for part in value)
    if isinstance(value, float):
        return isfinite(value)
    return not isinstance(value, int) or abs(value) <= _LARGEST
