"""Reads usage from Redis, with redis-py; `texts`, `journal` and `scripts` describe the values.

A key's recent requests are in journals, which are merged into its buckets. A reader reads the
journals before and after the buckets: if nothing has left them, nothing is counted twice.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from gateway.domain.patterns import is_word
from gateway.domain.ports import UsageBatch
from gateway.domain.usage import (
    GRAIN_S,
    MOST_BUSY,
    Bucket,
    Counted,
    Grain,
    Measures,
    bucket_start,
    measured_in,
)
from gateway.stores.names import (
    USAGE_PLANS,
    USAGE_ROUTES,
    busiest_name,
    journal_name,
    open_journals_name,
)
from gateway.stores.redis.errors import translated
from gateway.stores.redis.members import read_members
from gateway.stores.usage import journal
from gateway.stores.usage.measures import split_counts, split_line
from gateway.stores.usage.scripts import UsageScripts
from gateway.stores.usage.texts import MOST_TEXT, read_text, text_names

#: By start.
_Buckets = dict[int, "_Bucket"]
#: By minute and writer.
_Journals = dict[tuple[int, str], "_Bucket"]

#: The most plans, or routes, that are read (there are as many as policies have had), and the
#: longest name.
_MOST_NAMES: Final = 1_000
_LONGEST_NAME: Final = 64
#: A key's id has 12 characters; its requests are a sum that a double holds exactly.
_LONGEST_ID: Final = 12
_REQUESTS: Final = re.compile(rb"[0-9]{1,15}")


@dataclass(slots=True)
class _Bucket:
    """Requests by route and outcome, and measures by route."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    measures: dict[str, Measures] = field(default_factory=dict)

    def add(self, counts: Mapping[tuple[str, str], int], measures: Mapping[str, Measures]) -> None:
        self.counts.update(counts)
        for route, some in measures.items():
            self.measures.setdefault(route, Measures()).add(some)

    def has_all_of(self, before: _Bucket) -> bool:
        """Is nothing less than before?"""
        return all(now >= then for now, then in zip(self._sizes(), before._sizes(), strict=True))

    def _sizes(self) -> tuple[int, int]:
        measured = [
            some.bytes_in + some.bytes_out + sum(some.latencies.values())
            for some in self.measures.values()
        ]
        return self.counts.total(), sum(measured)


#: Sorted sets read in one step, so that a reader does not block the store for long.
_SETS: Final = 20
#: How often buckets are read again at most because a journal was merged meanwhile.
_MOST_READS: Final = 20

# KEYS: sorted sets; a value of another type has no members. ARGV: the last rank to read.
_MEMBERS: Final = """
local found = {}
for at, name in ipairs(KEYS) do
  local members = redis.pcall('ZREVRANGE', name, 0, ARGV[1], 'WITHSCORES')
  if members.err then
    if not string.find(members.err, 'WRONGTYPE') then return members end
    members = {}
  end
  found[at] = members
end
return found
"""
# KEYS: journals; ARGV: the lines' prefix, the most bytes of a journal, and of all that are read in
# one step, and the most lines of one journal and step. Returns for each journal its lines with the
# prefix ('': none); for the first at least. After the most lines, all lines of the journal follow:
# finding one takes as long as returning a kilobyte.
_LINES: Final = """
local found, size, count, most = {}, 0, 0, tonumber(ARGV[2])
for at, name in ipairs(KEYS) do
  local lines, text = {}, redis.pcall('STRLEN', name)
  if type(text) == 'number' then
    size = size + math.min(text, most)
    if at > 1 and (size > tonumber(ARGV[3]) or count >= tonumber(ARGV[4])) then break end
    text = text > 0 and text <= most and redis.pcall('GET', name)
  end
  if type(text) == 'table' and not string.find(text.err, 'WRONGTYPE') then return text end
  local from, to = nil, 0
  while type(text) == 'string' do
    from = string.find(text, ARGV[1], to, true)
    if not from then break end
    if #lines == tonumber(ARGV[4]) then
      lines[#lines + 1] = string.sub(text, from)
      break
    end
    to = string.find(text, '\\n', from + 1, true) or #text + 1
    lines[#lines + 1] = string.sub(text, from, to - 1)
  end
  found[at], count = table.concat(lines), count + #lines
end
return found
"""
# KEYS: texts of buckets; ARGV: the most bytes of one. Returns them; a value of another type, or a
# longer one, is ''. In one step, so that an hour that is being closed counts exactly once.
_TEXTS: Final = """
local found, most = {}, tonumber(ARGV[1])
for at, name in ipairs(KEYS) do
  local text = redis.pcall('GETRANGE', name, 0, most)
  if type(text) == 'table' then
    if not string.find(text.err, 'WRONGTYPE') then return text end
    text = ''
  end
  found[at] = #text <= most and text or ''
end
return found
"""
#: Texts of more bytes are parsed in a thread: a megabyte takes a second.
_MOST_BYTES_AT_ONCE: Final = 64 * 1024
#: Journals read in one step, and bytes of them.
_JOURNALS_STEP: Final = 500
_BYTES_STEP: Final = 4 * 1024 * 1024
_LINES_STEP: Final = 1_000


class RedisUsageStore:
    """domain.ports.UsageStore over a redis-py client, which its owner closes."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client
        self._scripts = UsageScripts(client.execute_command)

    async def add(self, batch: UsageBatch) -> None:
        """Count a batch; `read` includes it from now on."""
        async with translated():
            await self._scripts.add(batch)

    async def merge(self, writer: str, now_s: int) -> None:
        """Merge the journals whose minute is over into the buckets of their keys."""
        async with translated():
            await self._scripts.merge(writer, now_s)

    async def read(self, subject: str, grain: Grain, start_s: int, end_s: int) -> list[Bucket]:
        """The buckets of a subject that begin from `start_s` on and before `end_s`, by time."""
        found = await self._read(subject, grain, start_s, end_s)
        is_measured = measured_in(subject, grain)
        return [
            Bucket(at_s, dict(bucket.counts), bucket.measures if is_measured else {})
            for at_s, bucket in sorted(found.items())
            if bucket.counts and start_s <= at_s < end_s
        ]

    async def _read(self, subject: str, grain: Grain, start_s: int, end_s: int) -> _Buckets:
        """The same, perhaps with buckets outside these times."""
        if not subject.startswith("key:"):
            return await self._merged(subject, grain, start_s, end_s)
        journals = await self._journals(subject)
        unmerged = await self._unmerged(subject, journals)
        for _ in range(_MOST_READS):
            before = unmerged
            found = await self._merged(subject, grain, start_s, end_s)
            unmerged = await self._unmerged(subject, journals)
            if all(unmerged.get(at, _Bucket()).has_all_of(was) for at, was in before.items()):
                break
        for (minute_s, _), some in unmerged.items():
            bucket = found.setdefault(bucket_start(grain, minute_s), _Bucket())
            bucket.add(some.counts, some.measures)
        return found

    async def _merged(self, subject: str, grain: Grain, start_s: int, end_s: int) -> _Buckets:
        """The counts in the texts of these buckets, perhaps with buckets outside these times."""
        names = text_names(subject, grain, start_s, end_s)
        texts: list[bytes] = await self._eval(_TEXTS, names, MOST_TEXT)
        if sum(map(len, texts)) > _MOST_BYTES_AT_ONCE:
            return await asyncio.to_thread(_read_buckets, texts, grain)
        return _read_buckets(texts, grain)

    async def _journals(self, subject: str) -> dict[tuple[int, str], str]:
        """The names of the journals that may contain a key, by minute and writer."""
        shard = journal.shard_of(subject)
        name = open_journals_name(shard)
        most, longest = journal.MOST_LABELS_READ, journal.MOST_LABEL
        async with translated():
            ask = self._redis.execute_command
            members = await read_members(ask, name, most=most, longest=longest)
        labels = journal.sort_labels(members.found)[0]
        return {read: journal_name(shard, label) for label, read in labels.items()}

    async def _unmerged(self, subject: str, journals: Mapping[tuple[int, str], str]) -> _Journals:
        """A key's counts in these journals."""
        texts = await self._lines(list(journals.values()), journal.line_prefix(subject))
        found: _Journals = {}
        for read, lines in zip(journals, texts, strict=True):
            if not lines:
                continue
            bucket = found[read] = _Bucket()
            values = await self._values(lines)
            for (its_subject, route, outcome), value in values.items():
                if its_subject != subject:
                    continue
                if isinstance(value, Measures):
                    bucket.measures[route] = value
                else:
                    bucket.counts[route, outcome] = value
        return found

    async def _values(self, lines: bytes) -> Mapping[Counted, journal.Value]:
        """The values of these lines."""
        if len(lines) > _MOST_BYTES_AT_ONCE:
            return await asyncio.to_thread(journal.read_lines, lines)
        return journal.read_lines(lines)

    async def _lines(self, names: Sequence[str], line_prefix: str) -> list[bytes]:
        """The lines with this prefix of each journal; where there are many, other lines as well."""
        found: list[bytes] = []
        while len(found) < len(names):
            some = names[len(found) : len(found) + _JOURNALS_STEP]
            bounds = journal.MOST_BYTES, _BYTES_STEP, _LINES_STEP
            found += await self._eval(_LINES, some, line_prefix, *bounds)
        return found

    async def plans(self) -> list[str]:
        """The plans with any usage, by name; if there are very many, only some."""
        return await self._names(USAGE_PLANS)

    async def mcp_routes(self) -> list[str]:
        """The routes with calls of tools, by name; if there are very many, only some."""
        return await self._names(USAGE_ROUTES)

    async def _names(self, name: str) -> list[str]:
        async with translated():
            ask = self._redis.execute_command
            members = await read_members(ask, name, most=_MOST_NAMES, longest=_LONGEST_NAME)
        return sorted(map(_text, members.found))

    async def busiest(
        self, grain: Grain, start_s: int, end_s: int, count: int
    ) -> list[tuple[str, int]]:
        """The ids of the busiest keys of these buckets, and their requests; most first."""
        sums: dict[str, int] = {}
        step_s = GRAIN_S[grain]
        numbers = range(-(-start_s // step_s), -(-end_s // step_s))
        names = [busiest_name(grain, number) for number in numbers]
        for start in range(0, len(names), _SETS):
            some = names[start : start + _SETS]
            for members in await self._eval(_MEMBERS, some, 2 * MOST_BUSY - 1):
                for key_id, requests in _pairs(members):
                    name = _text(key_id[: _LONGEST_ID + 1])
                    # Ignore what the gateway has not written.
                    if len(name) > _LONGEST_ID or not is_word(name):
                        continue
                    if _REQUESTS.fullmatch(requests):
                        sums[name] = sums.get(name, 0) + int(requests)
        return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))[:count]

    async def _eval(self, script: str, names: Sequence[str], *arguments: str | int) -> Any:
        async with translated():
            return await self._redis.execute_command("EVAL", script, len(names), *names, *arguments)


def _read_buckets(texts: Sequence[bytes], grain: Grain) -> _Buckets:
    """The buckets of texts, the first of which is that of the open hour, which has minutes."""
    found: _Buckets = {}
    for place, text in enumerate(texts):
        measures: Mapping[str, Measures] = {}
        if not place:
            measures, text = split_line(text)  # noqa: PLW2901
        for at_s, counts in read_text(text, grain if place else "minute"):
            bucket = found.setdefault(bucket_start(grain, at_s), _Bucket())
            requests, summed = split_counts(counts)
            bucket.add(requests, summed)
            # All minutes of the open hour are in one bucket of an hour or a day.
            bucket.add({}, measures)
            measures = {}
    return found


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
