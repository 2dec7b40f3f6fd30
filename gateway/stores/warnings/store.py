"""Warnings of limits in Redis: the newest of them, each once in its window.

Where the account has an integration of the kind `gateway`, each is also a notice for couriers.

gw:{keys}:warnings             a stream of the newest
gw:{keys}:warned:LEVEL:DIGEST  a counter, by its digest, was warned of; expires with its window
gw:{keys}:warned:minute        the number of warnings in this minute
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from gateway.domain.warnings import (
    MOST_A_MINUTE,
    MOST_KEPT,
    KeptWarning,
    LimitWarning,
    values_of,
)
from gateway.domain.webhooks.notices import MOST_WAITING
from gateway.stores.names import (
    NOTICED,
    NOTICES,
    NOTICES_DROPPED,
    WARNED_MINUTE,
    WARNINGS,
    warned_name,
)
from gateway.stores.redis.errors import translated, typed

# KEYS: the name for the counter and level, the number of this minute, the stream, the accounts that
# get notices, the notices, and how many were dropped; ARGV: a token of this warning, its window in
# milliseconds, the most a minute, the most that are kept, the most notices, its account, when, its
# 10 fields, and what a notice says. Returns 1, or 0 where another worker has warned. The token
# identifies a command that is retried because its reply was lost. Values of another type under our
# names are deleted.
_WARN: Final = """
local token = redis.call('MGET', KEYS[1])[1]
if token then return token == ARGV[1] and 1 or 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local function write(command, name, ...)
  local answer = redis.pcall(command, name, ...)
  if type(answer) == 'table' and answer.err then
    redis.call('DEL', name)
    answer = redis.call(command, name, ...)
  end
  return answer
end
local number = write('INCR', KEYS[2])
if number == 1 then redis.call('PEXPIRE', KEYS[2], 60000) end
if number <= tonumber(ARGV[3]) then
  write('XADD', KEYS[3], 'MAXLEN', ARGV[4], '*', unpack(ARGV, 8, 17))
end
local noticed = redis.pcall('HMGET', KEYS[4], ARGV[6])
if noticed[1] then
  write('ZADD', KEYS[5], ARGV[7], cjson.encode({unpack(ARGV, 18)}))
  for _ = 1, redis.call('ZREMRANGEBYRANK', KEYS[5], 0, -1 - ARGV[5]) do write('INCR', KEYS[6]) end
end
return 1
"""

#: Sends a command and returns its reply; it may raise.
Ask = Callable[..., Awaitable[Any]]


class WarningScript:
    """Writes warnings, over any function that sends commands."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def warn(self, warning: LimitWarning) -> bool:
        """Keep a warning, the first of its window. False: there is one already."""
        digest = blake2b(warning.counter.encode(), digest_size=16).hexdigest()
        marks = warned_name(warning.level, digest), WARNED_MINUTE
        names = (*marks, WARNINGS, NOTICED, NOTICES, NOTICES_DROPPED)
        words = secrets.token_hex(8), max(1, warning.for_us // 1000), MOST_A_MINUTE, MOST_KEPT
        where = MOST_WAITING, warning.account, warning.at_us
        kept = *_fields(warning), *values_of(warning)
        return bool(await self._ask("EVAL", _WARN, len(names), *names, *words, *where, *kept))


class RedisWarningStore:
    """domain.ports.WarningStore over a redis-py client, which its owner closes."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client
        self._writer = WarningScript(client.execute_command)

    async def warn(self, warning: LimitWarning) -> bool:
        """Keep a warning, the first of its window. False: there is one already."""
        async with translated():
            return await self._writer.warn(warning)

    async def newest(self, *, before: str | None = None, count: int = 100) -> list[KeptWarning]:
        """The newest first, up to `count`, of those before an id."""
        found: list[KeptWarning] = []
        while len(found) < count:
            newest = "+" if before is None else f"({before}"
            async with typed(self._redis, WARNINGS, "stream"):
                entries = await self._redis.xrevrange(WARNINGS, newest, "-", count)
            if not entries:
                break
            read = (_read(entry_id.decode(), fields) for entry_id, fields in entries)
            found += [warning for warning in read if warning is not None]
            before = entries[-1][0].decode()
        return found[:count]


def _fields(warning: LimitWarning) -> tuple[str | int, ...]:
    return (
        *("at", warning.at_us, "key", warning.key_id, "plan", warning.plan),
        *("limit", warning.limit, "level", warning.level),
    )


def _read(entry_id: str, fields: Mapping[bytes, bytes]) -> KeptWarning | None:
    """A warning; None: the entry is not one of ours."""
    texts = {name: value.decode("utf-8", "replace") for name, value in fields.items()}
    at_us, level = texts.get(b"at", ""), texts.get(b"level", "")
    if level not in ("80", "100") or not at_us.isascii() or not at_us.isdigit() or len(at_us) > 17:
        return None
    key_id, plan, limit = (texts.get(name, "") for name in (b"key", b"plan", b"limit"))
    return KeptWarning(entry_id, int(at_us), key_id, plan, limit, int(level))
