"""Usage in Redis, read with redis-py; `usage_scripts` says what lies there.

What a key has used of late is in journals, and moves from there into its buckets. Whoever reads
both looks into the journals before and after: where nothing left them, nothing is counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from gateway.domain.ports import UsageBatch
from gateway.domain.usage import GRAIN_S, Bucket, Grain, Turn, bucket_start
from gateway.stores import usage_journal as journal
from gateway.stores.translated import translated
from gateway.stores.usage_scripts import PERIOD_S, PLANS, UsageScripts, busiest_name, hash_name

#: By beginning, what was counted by route and outcome.
_Buckets = dict[int, dict[tuple[str, str], int]]
#: By minute and writer, the same.
_Journals = dict[tuple[int, str], Counter[tuple[str, str]]]

_NONE: Final = Counter[tuple[str, str]]()

#: Fields read in one step, hashes and sorted sets, so that no reader holds up the store.
_FIELDS: Final = 5_000
_HASHES: Final = 200
_SETS: Final = 20
#: How often buckets are read again because a journal was settled meanwhile.
_MOST_READS: Final = 5

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
# KEYS: the set of a shard's journals; ARGV: what their names begin with, what lines begin with.
# By its label, what each journal has of such lines, where it has any.
_LINES: Final = """
local labels = redis.pcall('SMEMBERS', KEYS[1])
if labels.err then
  if not string.find(labels.err, 'WRONGTYPE') then return labels end
  labels = {}
end
local found = {}
for _, label in ipairs(labels) do
  local text = redis.pcall('GET', ARGV[1] .. label)
  if type(text) == 'table' and not string.find(text.err, 'WRONGTYPE') then return text end
  local lines, from, to = {}, nil, 0
  while type(text) == 'string' do
    from = string.find(text, ARGV[2], to, true)
    if not from then break end
    to = string.find(text, '\\n', from + 1, true) or #text + 1
    lines[#lines + 1] = string.sub(text, from, to - 1)
  end
  if #lines > 0 then
    found[#found + 1] = label
    found[#found + 1] = table.concat(lines)
  end
end
return found
"""


class RedisUsageStore:
    """domain.ports.UsageStore over a redis-py client, which stays its owner's to close."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client
        self._scripts = UsageScripts(client.execute_command)

    async def add(self, batch: UsageBatch) -> None:
        """Take a batch in; what it counts is read from now on."""
        async with translated():
            await self._scripts.add(batch)

    async def settle(self, writer: str, now_s: int) -> None:
        """Count in their buckets what lies in journals whose minute is over."""
        async with translated():
            await self._scripts.settle(writer, now_s)

    async def first_to_warn(self, count: str, level: int, for_us: int) -> Turn:
        """What to do about a warning of this limit's count at this level."""
        async with translated():
            return await self._scripts.first_to_warn(count, level, for_us)

    async def read(self, subject: str, grain: Grain, start_s: int, end_s: int) -> list[Bucket]:
        """The buckets of a subject that begin from `start_s` on and before `end_s`, by time."""
        found = await self._read(subject, grain, start_s, end_s)
        return [Bucket(at_s, found[at_s]) for at_s in sorted(found) if start_s <= at_s < end_s]

    async def _read(self, subject: str, grain: Grain, start_s: int, end_s: int) -> _Buckets:
        """The same, and perhaps some more."""
        if not subject.startswith("key:"):
            return await self._settled(subject, grain, start_s, end_s)
        unsettled = await self._unsettled(subject)
        for _ in range(_MOST_READS):
            before = unsettled
            found = await self._settled(subject, grain, start_s, end_s)
            unsettled = await self._unsettled(subject)
            if all(unsettled.get(at, _NONE).total() >= was.total() for at, was in before.items()):
                break
        for (minute_s, _), counts in unsettled.items():
            bucket = found.setdefault(bucket_start(grain, minute_s), {})
            for counted, requests in counts.items():
                bucket[counted] = bucket.get(counted, 0) + requests
        return found

    async def _settled(self, subject: str, grain: Grain, start_s: int, end_s: int) -> _Buckets:
        """What is in the hashes of these buckets."""
        found: _Buckets = {}
        width_s = PERIOD_S[grain]
        periods = range(start_s // width_s, -(-end_s // width_s))
        names = [hash_name(subject, grain, period) for period in periods]
        for period, fields in zip(periods, await self._hashes(names), strict=True):
            for field, requests in fields.items():
                read = _read_field(field, requests)
                if read is not None:
                    index, counted, count = read
                    at_s = period * width_s + index * GRAIN_S[grain]
                    found.setdefault(at_s, {})[counted] = count
        return found

    async def _unsettled(self, subject: str) -> _Journals:
        """What is in journals."""
        names = [journal.open_name(journal.shard_of(subject))]
        words = journal.names_begin(journal.shard_of(subject)), journal.beginning(subject)
        found: _Journals = {}
        for label, lines in _pairs(await self._eval(_LINES, names, *words)):
            if (read := journal.read_label(label)) is not None:
                found[read] = Counter(
                    {
                        (route, outcome): requests
                        for (_, route, outcome), requests in journal.read_lines(lines).items()
                    }
                )
        return found

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
        names = [busiest_name(grain, number) for number in numbers]
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
