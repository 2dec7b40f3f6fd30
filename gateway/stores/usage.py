"""Usage in Redis, read with redis-py; `usage_texts` and `usage_scripts` say what lies there.

What a key has used of late is in journals, and moves from there into its buckets. Whoever reads
both looks into the journals before and after: where nothing left them, nothing is counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from gateway.domain.ports import UsageBatch
from gateway.domain.usage import GRAIN_S, Bucket, Grain, bucket_start
from gateway.stores import usage_journal as journal
from gateway.stores.translated import translated
from gateway.stores.usage_scripts import PLANS, UsageScripts, busiest_name
from gateway.stores.usage_texts import read_text, text_names

#: By beginning, what was counted by route and outcome.
_Buckets = dict[int, dict[tuple[str, str], int]]
#: By minute and writer, the same.
_Journals = dict[tuple[int, str], Counter[tuple[str, str]]]

_NONE: Final = Counter[tuple[str, str]]()

#: Sorted sets read in one step, so that no reader holds up the store.
_SETS: Final = 20
#: How often buckets are read again because a journal was settled meanwhile.
_MOST_READS: Final = 5

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

    async def read(self, subject: str, grain: Grain, start_s: int, end_s: int) -> list[Bucket]:
        """The buckets of a subject that begin from `start_s` on and before `end_s`, by time."""
        found = await self._read(subject, grain, start_s, end_s)
        return [
            Bucket(at_s, counts)
            for at_s, counts in sorted(found.items())
            if counts and start_s <= at_s < end_s
        ]

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
        """What is in the texts of these buckets, and perhaps some more."""
        names = text_names(subject, grain, start_s, end_s)
        async with translated():
            # All at once: an hour that is closed meanwhile counts neither twice nor not at all.
            texts = await self._redis.mget(names)
        found: _Buckets = {}
        for place, text in enumerate(texts):
            # The first is that of the open hour, which has minutes.
            for at_s, counts in read_text(text or b"", grain if place else "minute"):
                bucket = found.setdefault(bucket_start(grain, at_s), {})
                for name, requests in counts.items():
                    bucket[name] = bucket.get(name, 0) + requests
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
            return sorted(_text(plan) for plan in await self._redis.smembers(PLANS))

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
                    if requests.isdigit():  # else it was not the gateway that noted it
                        name = _text(key_id)
                        sums[name] = sums.get(name, 0) + int(requests)
        return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))[:count]

    async def _eval(self, script: str, names: list[str], *words: str | int) -> Any:
        async with translated():
            return await self._redis.execute_command("EVAL", script, len(names), *names, *words)


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
