"""Usage in Redis: written by workers over their own link, read with redis-py.

gw:{keys}:usage:SUBJECT:m:N   hash: the minutes of an hour, the Nth since 1970. A field is
                              "INDEX|ROUTE|OUTCOME", INDEX the minute's place in the hour
gw:{keys}:usage:SUBJECT:h:N   the hours of a day; SUBJECT:d:N: the days of 31
gw:{keys}:usage:busiest:m:N   sorted set: the busiest keys of a minute; h and d as well
gw:{keys}:usage:plans         set of the plans that anything was counted for
gw:{keys}:usage:writer:ID     number of the last batch of a worker
gw:{keys}:usage:warned:…      a limit's count was warned of; …:warnings: how many, this minute

All in the slot of the keys, each but `plans` with an expiry. `lua/usage.lua` counts a batch in all
grains in one step, and knows a batch that it has seen.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

from redis.asyncio import Redis, RedisCluster

from gateway.domain.ports import UsageBatch
from gateway.domain.usage import (
    BUSY_KEPT_S,
    GRAIN_S,
    KEPT_S,
    MOST_BUSY,
    MOST_WARNINGS,
    Bucket,
    Grain,
    Turn,
    busiest_of,
)
from gateway.stores.records import KEYS_TAG
from gateway.stores.translated import translated

USAGE: Final = KEYS_TAG + "usage:"
PLANS: Final = USAGE + "plans"
_WARNINGS: Final = USAGE + "warnings"
#: What lies in one hash, in seconds.
PERIOD_S: Final[dict[Grain, int]] = {"minute": 3_600, "hour": 86_400, "day": 31 * 86_400}
#: What is kept is kept a little longer, for gateways whose clocks differ.
_LONGER_S: Final = 3_600
#: For how long a batch may be sent again: longer than its minute is kept.
_REPEAT_S: Final = 2 * 86_400
#: Fields read in one step, hashes and sorted sets, so that no reader holds up the store.
_FIELDS: Final = 5_000
_HASHES: Final = 200
_SETS: Final = 20

_ADD: Final = (files("gateway.stores") / "lua" / "usage.lua").read_bytes()
# KEYS: the warning, and how many there were; ARGV: a token of this one, its time in milliseconds,
# the most a minute. 2: log it; 1: there were too many; 0: somebody else has.
_WARN: Final = """
local token = redis.call('GET', KEYS[1])
if token and token ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local count = redis.call('INCR', KEYS[2])
if count == 1 then redis.call('PEXPIRE', KEYS[2], 60000) end
return count <= tonumber(ARGV[3]) and 2 or 1
"""
# KEYS: hashes, of which as many are read as have together no more fields than ARGV[1]; one that has
# more by itself is given as nil, to be read in steps. What is no hash has no fields.
_READ: Final = """
local found, room = {}, tonumber(ARGV[1])
for at, name in ipairs(KEYS) do
  local size = redis.pcall('HLEN', name)
  if type(size) == 'table' then
    if not string.find(size.err, 'WRONGTYPE') then return size end
    found[at] = {}
  elseif size > tonumber(ARGV[1]) then
    found[at] = false
  elseif size > room then
    break
  else
    room = room - size
    found[at] = redis.call('HGETALL', name)
  end
end
return found
"""
# KEYS: sorted sets; what is none has no members.
_MEMBERS: Final = """
local found = {}
for at, name in ipairs(KEYS) do
  local members = redis.pcall('ZRANGE', name, 0, -1, 'WITHSCORES')
  if members.err then
    if not string.find(members.err, 'WRONGTYPE') then return members end
    members = {}
  end
  found[at] = members
end
return found
"""
_TURNS: Final[tuple[Turn, ...]] = ("leave", "count", "log")

#: Sends a command of these words and gives its reply; what it raises goes to whoever writes.
Ask = Callable[..., Awaitable[Any]]


class UsageScripts:
    """What writes, over whatever sends commands: a link's `ask`, a client's own."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def add(self, batch: UsageBatch) -> None:
        """Count a batch in all of its buckets."""
        await self._ask(*_add_words(batch))

    async def first_to_warn(self, count: str, level: int, for_us: int) -> Turn:
        """What to do about a warning of this limit's count at this level."""
        digest = blake2b(count.encode(), digest_size=16).hexdigest()
        names = f"{USAGE}warned:{level}:{digest}", _WARNINGS
        # By the token the script knows a command that comes again because its answer was lost.
        words = secrets.token_hex(8), max(1, for_us // 1000), MOST_WARNINGS
        return _TURNS[await self._ask("EVAL", _WARN, len(names), *names, *words)]


class RedisUsageStore:
    """domain.ports.UsageStore over a redis-py client, which stays its owner's to close."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client
        self._scripts = UsageScripts(client.execute_command)

    async def add(self, batch: UsageBatch) -> None:
        """Count a batch in all of its buckets."""
        async with translated():
            await self._scripts.add(batch)

    async def first_to_warn(self, count: str, level: int, for_us: int) -> Turn:
        """What to do about a warning of this limit's count at this level."""
        async with translated():
            return await self._scripts.first_to_warn(count, level, for_us)

    async def read(self, subject: str, grain: Grain, start_s: int, end_s: int) -> list[Bucket]:
        """The buckets of a subject that begin from `start_s` on and before `end_s`, by time."""
        found: dict[int, dict[tuple[str, str], int]] = {}
        width_s = PERIOD_S[grain]
        periods = range(start_s // width_s, -(-end_s // width_s))
        names = [_hash_name(subject, grain, period) for period in periods]
        for period, fields in zip(periods, await self._hashes(names), strict=True):
            for field, requests in fields.items():
                read = _read_field(field, requests)
                if read is None:
                    continue
                index, counted, count = read
                at_s = period * width_s + index * GRAIN_S[grain]
                if start_s <= at_s < end_s:
                    found.setdefault(at_s, {})[counted] = count
        return [Bucket(at_s, found[at_s]) for at_s in sorted(found)]

    async def plans(self) -> list[str]:
        """The plans that anything was counted for, by name."""
        async with translated():
            return sorted(plan.decode() for plan in await self._redis.smembers(PLANS))

    async def busiest(
        self, grain: Grain, start_s: int, end_s: int, count: int
    ) -> list[tuple[str, int]]:
        """The ids of the keys with most requests in these buckets, and how many; most first."""
        sums: dict[str, int] = {}
        step_s = GRAIN_S[grain]
        numbers = range(-(-start_s // step_s), -(-end_s // step_s))
        names = [_busiest_name(grain, number) for number in numbers]
        for start in range(0, len(names), _SETS):
            some = names[start : start + _SETS]
            for members in await self._eval(_MEMBERS, some):
                for key_id, requests in _pairs(members):
                    name = key_id.decode()
                    sums[name] = sums.get(name, 0) + int(requests)
        return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))[:count]

    async def _hashes(self, names: list[str]) -> list[dict[bytes, bytes]]:
        """All of some hashes, as many at once as are not too large."""
        found: list[dict[bytes, bytes]] = []
        while len(found) < len(names):
            for fields in await self._eval(_READ, _next(names, found), _FIELDS):
                if fields is None:
                    found.append(await self._large_hash(names[len(found)]))
                else:
                    found.append(dict(_pairs(fields)))
        return found

    async def _large_hash(self, name: str) -> dict[bytes, bytes]:
        fields: dict[bytes, bytes] = {}
        cursor = 0
        async with translated():
            while True:
                cursor, some = await self._redis.hscan(name, cursor, count=_FIELDS)
                fields.update(some)
                if not cursor:
                    return fields

    async def _eval(self, script: str, names: list[str], *words: str | int) -> Any:
        async with translated():
            return await self._redis.execute_command("EVAL", script, len(names), *names, *words)


def _add_words(batch: UsageBatch) -> Iterable[bytes | str | int]:
    """The command that counts a batch; `lua/usage.lua` describes it."""
    at_s = batch.minute_s
    periods = [(grain, at_s // PERIOD_S[grain]) for grain in GRAIN_S]
    subjects: dict[str, list[str | int]] = {}
    for (subject, route, outcome), requests in batch.counts.items():
        subjects.setdefault(subject, []).extend((f"{route}|{outcome}", requests))
    names = [
        f"{USAGE}writer:{batch.writer}",
        *(_busiest_name(grain, at_s // width_s) for grain, width_s in GRAIN_S.items()),
        PLANS,
        *(_hash_name(subject, grain, period) for subject in subjects for grain, period in periods),
    ]
    words: list[bytes | str | int] = ["EVAL", _ADD, len(names), *names, batch.number, _REPEAT_S]
    words += [
        f"{(at_s - period * PERIOD_S[grain]) // GRAIN_S[grain]}|" for grain, period in periods
    ]
    words += [
        (period + 1) * PERIOD_S[grain] + KEPT_S[grain] + _LONGER_S for grain, period in periods
    ]
    words += [
        (at_s // width_s + 1) * width_s + BUSY_KEPT_S[grain] + _LONGER_S
        for grain, width_s in GRAIN_S.items()
    ]
    words.append(MOST_BUSY)
    noted = busiest_of(batch.counts)
    for subject, fields in subjects.items():
        kind, _, name = subject.partition(":")
        words += (kind, name, noted.get(name, 0) if kind == "key" else 0, len(fields) // 2, *fields)
    return words


@lru_cache(maxsize=8_192)
def _spelled(subject: str) -> str:
    """A subject as part of a name; percent-encoding keeps any text in its place."""
    kind, _, name = subject.partition(":")
    return f"{kind}:{quote(name, safe='')}"


def _hash_name(subject: str, grain: Grain, period: int) -> str:
    return f"{USAGE}{_spelled(subject)}:{grain[0]}:{period}"


def _busiest_name(grain: Grain, number: int) -> str:
    return f"{USAGE}busiest:{grain[0]}:{number}"


def _next(names: list[str], found: list[dict[bytes, bytes]]) -> list[str]:
    return names[len(found) : len(found) + _HASHES]


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _read_field(field: bytes, requests: bytes) -> tuple[int, tuple[str, str], int] | None:
    """Index, route and outcome, requests; None: this is not of ours."""
    index, _, counted = field.decode("utf-8", "replace").partition("|")
    route, bar, outcome = counted.partition("|")
    if not (index.isdecimal() and bar and requests.isdigit()):
        return None
    return int(index), (route, outcome), int(requests)
