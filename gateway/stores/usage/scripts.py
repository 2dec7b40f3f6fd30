"""Writes usage to Redis: counts a worker's batches, and merges journals into buckets.

gw:{keys}:usage:busiest:m:N   sorted set: the busiest keys of a minute; h and d as well
gw:{keys}:usage:plans         set of the plans with any usage
gw:{keys}:usage:mcp           set of the routes with calls of tools
gw:{keys}:usage:writer:ID     number of the last batch of a worker

`texts` describes the buckets, `journal` the journals. All are in the slot of the keys, and all but
`plans` and `mcp` expire. Each script is one atomic step, and detects a batch or a journal that was
handled before.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final

from redis.exceptions import ResponseError

from gateway.domain.ports import StoreDown, UsageBatch
from gateway.domain.usage import (
    BUSY_KEPT_S,
    GRAIN_S,
    KEPT_S,
    MOST_BUSY,
    Counted,
    Measures,
    busiest_of,
)
from gateway.stores.names import (
    USAGE_PLANS,
    USAGE_ROUTES,
    busiest_name,
    journal_name,
    open_journals_name,
    usage_name,
    usage_writer_name,
)
from gateway.stores.redis.members import read_members
from gateway.stores.usage import journal
from gateway.stores.usage.measures import write_entries
from gateway.stores.usage.texts import PERIOD_S, write_name

#: Added to every expiry, for gateways whose clocks differ.
_LONGER_S: Final = 3_600
#: How long a batch may be sent again: longer than its minute is kept.
_REPEAT_S: Final = 2 * 86_400
#: From a minute's end until its last batches have surely arrived.
_LATE_S: Final = 3
#: From a minute's end until the writer of its journal counts as dead.
_ABANDONED_S: Final = 180
#: The most counts and the most keys of one step of a merge, and the pause between two steps. A step
#: blocks the store for 0.2 ms. Where it has to close hours, the script may ask for fewer keys, so
#: that a step takes 2 ms at most.
_STEP: Final = 100
_STEP_KEYS: Final = 40
_PAUSE_S: Final = 0.01

#: The place in KEYS of the set with the names of a kind of subjects, see `lua/usage_add.lua`.
_SET_OF: Final = {"plan": 5, "mcp": 6}

Arg = bytes | str | int


@dataclass(frozen=True, slots=True)
class _Script:
    """A script and its SHA-1, by which a server finds it."""

    source: bytes
    digest: str


def _read_script(*names: str) -> _Script:
    folder = files("gateway.stores.usage") / "lua"
    source = b"".join((folder / name).read_bytes() for name in names)
    return _Script(source, sha1(source, usedforsecurity=False).hexdigest())


_ADD: Final = _read_script("usage.lua", "usage_add.lua")
_MERGE: Final = _read_script("usage.lua", "usage_merge.lua")
# A value of another type counts as empty. ARGV: the most bytes of a journal; a longer one is
# deleted.
_TEXT: Final = """
local length = redis.pcall('STRLEN', KEYS[1])
if type(length) == 'table' then return string.find(length.err, 'WRONGTYPE') and '' or length end
if length <= tonumber(ARGV[1]) then return redis.call('GET', KEYS[1]) or '' end
redis.call('UNLINK', KEYS[1])
return ''
"""

#: Sends a command and returns its reply; it may raise.
Ask = Callable[..., Awaitable[Any]]


class UsageScripts:
    """Writes usage, over any function that sends commands.

    pause_s: between two steps of a merge; tests change it
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.pause_s = _PAUSE_S

    async def add(self, batch: UsageBatch) -> None:
        """Count a batch."""
        await self._run(_ADD, *_add_arguments(batch))

    async def merge(self, writer: str, now_s: int) -> None:
        """Merge the journals whose minute is over into the buckets of their keys.

        Those of this writer, and those of writers that count as dead.
        """
        # In random order, so that workers do not merge the same dead worker's journal at one time.
        for shard in random.sample(range(journal.SHARDS), journal.SHARDS):
            for label, (minute_s, owner) in (await self._open_journals(shard)).items():
                late_s = _LATE_S if owner == writer else _ABANDONED_S
                if minute_s + GRAIN_S["minute"] + late_s <= now_s:
                    await self._merge(shard, minute_s, label)

    async def _open_journals(self, shard: int) -> dict[str, tuple[int, str]]:
        """The journals of a shard by label; labels that the gateway has not written are removed."""
        name = open_journals_name(shard)
        most, longest = journal.MOST_LABELS, journal.MOST_LABEL
        members = await read_members(self._ask, name, most=most, longest=longest)
        labels, foreign = journal.sort_labels(members.found)
        for start in range(0, len(foreign), _STEP):
            await self._ask("SREM", name, *foreign[start : start + _STEP])
        return labels

    async def _merge(self, shard: int, minute_s: int, label: str) -> None:
        """Merge a journal step by step; other workers may do so at the same time."""
        while not await self._merge_as_read(shard, minute_s, label):
            pass

    async def _merge_as_read(self, shard: int, minute_s: int, label: str) -> bool:
        """The same. False: the journal has changed since it was read."""
        name = journal_name(shard, label)
        text = await self._ask("EVAL", _TEXT, 1, name, journal.MOST_BYTES)
        length = len(text)
        # Sorted, so that a key's text is written once, however many outcomes it has.
        counts = sorted(journal.read_lines(text).items(), key=lambda count: count[0])
        lines = [journal.write_line(*count) for count in counts]
        start, most_keys = 0, _STEP_KEYS
        while True:
            end = _step_end(counts, start, most_keys)
            some, rest = counts[start:end], "".join(lines[end:]).encode()
            arguments = _merge_arguments(shard, minute_s, label, length, some, rest)
            done = await self._run(_MERGE, *arguments)
            if done < 0:
                most_keys = -done
                continue
            if text:
                await asyncio.sleep(self.pause_s)
            if not done:
                return False
            if end == len(counts):
                return True
            start, most_keys, length = end, _STEP_KEYS, len(rest)

    async def _run(self, script: _Script, names: Sequence[str], arguments: Iterable[Arg]) -> Any:
        """Run a script by its SHA-1, which is shorter; by its source where the server lacks it."""
        called = len(names), *names, *arguments
        try:
            return await self._ask("EVALSHA", script.digest, *called)
        except (StoreDown, ResponseError) as error:
            if "No matching script" not in str(error):
                raise
        return await self._ask("EVAL", script.source, *called)


def _add_arguments(batch: UsageBatch) -> tuple[list[str], list[Arg]]:
    """The names and arguments that count a batch; `lua/usage_add.lua` describes them."""
    at_s = batch.minute_s
    of_keys, others = dict[Counted, journal.Value](), dict[Counted, journal.Value]()
    for counted, requests in batch.counts.items():
        (of_keys if counted[0].startswith("key:") else others)[counted] = requests
    for (subject, route), measures in batch.measures.items():
        if measures:
            (of_keys if subject.startswith("key:") else others)[subject, route, ""] = measures
    label = journal.label_of(at_s, batch.writer)
    journals = journal.write_lines(of_keys.items())
    subjects = _by_subject(others.items())
    names = [usage_writer_name(batch.writer)]
    names += [busiest_name(grain, at_s // width_s) for grain, width_s in GRAIN_S.items()]
    names += (USAGE_PLANS, USAGE_ROUTES)
    for shard in journals:
        names += (open_journals_name(shard), journal_name(shard, label))
    names += map(usage_name, subjects)
    arguments: list[Arg] = [batch.number, _REPEAT_S, *_where(at_s)]
    arguments += [
        (at_s // width_s + 1) * width_s + BUSY_KEPT_S[grain] + _LONGER_S
        for grain, width_s in GRAIN_S.items()
    ]
    arguments += (MOST_BUSY, at_s + journal.KEPT_S, label)
    noted = busiest_of(batch.counts)
    arguments.append(len(noted))
    for key_id, requests in noted.items():
        arguments += (key_id, requests)
    arguments += (len(journals), *journals.values())
    for subject, named in subjects.items():
        kind, _, name = subject.partition(":")
        arguments += (_SET_OF[kind], name, *named.arguments())
    return names, arguments


def _step_end(counts: Sequence[tuple[Counted, journal.Value]], start: int, most_keys: int) -> int:
    """The end of the step that begins at `start`; the counts are in order of their keys."""
    keys, last = 0, ""
    for at, ((key, _, _), _) in enumerate(counts[start : start + _STEP], start):
        if key != last:
            keys, last = keys + 1, key
        if keys > most_keys:
            return at
    return min(start + _STEP, len(counts))


def _merge_arguments(
    shard: int,
    minute_s: int,
    label: str,
    length: int,
    counts: Iterable[tuple[Counted, journal.Value]],
    rest: bytes,
) -> tuple[list[str], list[Arg]]:
    """The names and arguments that merge counts; `lua/usage_merge.lua` describes them."""
    subjects = _by_subject(counts)
    names = [journal_name(shard, label), open_journals_name(shard)]
    names += map(usage_name, subjects)
    arguments: list[Arg] = [length, rest, *_where(minute_s), label]
    for named in subjects.values():
        arguments += named.arguments()
    return names, arguments


@dataclass(slots=True)
class _Named:
    """What is counted of one subject: names, each followed by its requests; measures by route."""

    counts: list[Arg] = field(default_factory=list)
    measures: list[tuple[str, Measures]] = field(default_factory=list)

    def arguments(self) -> Iterable[Arg]:
        return len(self.counts) // 2, *self.counts, write_entries(self.measures)


def _by_subject(values: Iterable[tuple[Counted, journal.Value]]) -> dict[str, _Named]:
    subjects: dict[str, _Named] = {}
    for (subject, route, outcome), value in values:
        named = subjects.get(subject)
        if named is None:
            named = subjects[subject] = _Named()
        if isinstance(value, Measures):
            named.measures.append((route, value))
        else:
            named.counts += (write_name(route, outcome), value)
    return subjects


def _where(at_s: int) -> list[Arg]:
    """The minute to count in, the buckets of a period, and how long each period is kept."""
    buckets = [PERIOD_S[grain] // width_s for grain, width_s in GRAIN_S.items()]
    kept = [KEPT_S[grain] + _LONGER_S for grain in GRAIN_S]
    return [at_s // GRAIN_S["minute"], *buckets, *kept]
