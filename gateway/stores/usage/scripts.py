"""Usage as it is written to Redis: what a worker's batch and its settlement make of the store.

gw:{keys}:usage:busiest:m:N   sorted set: the busiest keys of a minute; h and d as well
gw:{keys}:usage:plans         set of the plans that anything was counted for
gw:{keys}:usage:writer:ID     number of the last batch of a worker

Beside them are the texts of `usage_texts` and the journals of `usage_journal`. All in the slot of
the keys, each but `plans` with an expiry. The scripts do each in one step, and know a batch, or a
journal, that they have seen.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
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
    Grain,
    busiest_of,
)
from gateway.stores import usage_journal as journal
from gateway.stores.members import read_members
from gateway.stores.usage_texts import PERIOD_S, USAGE, open_name, spell

PLANS: Final = USAGE + "plans"
#: What is kept is kept a little longer, for gateways whose clocks differ.
_LONGER_S: Final = 3_600
#: For how long a batch may be sent again: longer than its minute is kept.
_REPEAT_S: Final = 2 * 86_400
#: A minute's end to the moment from which its last batches are thought to be there.
_LATE_S: Final = 3
#: The same to the moment from which the writer of a journal is thought to have gone.
_ABANDONED_S: Final = 180
#: Counts that are settled in one step, and keys that they may be of; a pause between two steps. So
#: nobody waits behind it: a step takes 0.2 ms. Where hours have to be closed for it the script says
#: of how many keys at once, which keeps it at some 2 ms.
_STEP: Final = 100
_STEP_KEYS: Final = 40
_PAUSE_S: Final = 0.01

Word = bytes | str | int


@dataclass(frozen=True, slots=True)
class _Script:
    """A script, and the digest by which a server knows it."""

    source: bytes
    digest: str


def _read_script(*names: str) -> _Script:
    folder = files("gateway.stores") / "lua"
    source = b"".join((folder / name).read_bytes() for name in names)
    return _Script(source, sha1(source, usedforsecurity=False).hexdigest())


_ADD: Final = _read_script("usage.lua", "usage_add.lua")
_SETTLE: Final = _read_script("usage.lua", "usage_settle.lua")
# What is no text is empty. ARGV: the most bytes of it; a longer one is none of ours, and goes.
_TEXT: Final = """
local length = redis.pcall('STRLEN', KEYS[1])
if type(length) == 'table' then return string.find(length.err, 'WRONGTYPE') and '' or length end
if length <= tonumber(ARGV[1]) then return redis.call('GET', KEYS[1]) or '' end
redis.call('UNLINK', KEYS[1])
return ''
"""

#: Sends a command of these words and gives its reply; what it raises goes to whoever writes.
Ask = Callable[..., Awaitable[Any]]


class UsageScripts:
    """What writes, over whatever sends commands: a link's `ask`, a client's own.

    pause_s: between two steps of a settlement; may be set
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.pause_s = _PAUSE_S

    async def add(self, batch: UsageBatch) -> None:
        """Take a batch in."""
        await self._run(_ADD, *_add_words(batch))

    async def settle(self, writer: str, now_s: int) -> None:
        """Count in their buckets what lies in journals whose minute is over.

        Those of this writer, and those of others that have been left for long.
        """
        # Whoever finds something left by others is not to be in step with all who find it.
        for shard in random.sample(range(journal.SHARDS), journal.SHARDS):
            for label, (minute_s, owner) in (await self._open_journals(shard)).items():
                late_s = _LATE_S if owner == writer else _ABANDONED_S
                if minute_s + GRAIN_S["minute"] + late_s <= now_s:
                    await self._settle(shard, minute_s, label)

    async def _open_journals(self, shard: int) -> dict[str, tuple[int, str]]:
        """The journals of a shard by their labels; labels that are none of ours go."""
        name = journal.open_name(shard)
        most, longest = journal.MOST_LABELS, journal.MOST_LABEL
        members = await read_members(self._ask, name, most=most, longest=longest)
        labels, foreign = journal.sort_labels(members.found)
        for start in range(0, len(foreign), _STEP):
            await self._ask("SREM", name, *foreign[start : start + _STEP])
        return labels

    async def _settle(self, shard: int, minute_s: int, label: str) -> None:
        """Empty a journal, a step at a time; others may do the same."""
        while not await self._settle_as_read(shard, minute_s, label):
            pass

    async def _settle_as_read(self, shard: int, minute_s: int, label: str) -> bool:
        """The same; False: it is not as it was read any more."""
        name = journal.names_begin(shard) + label
        text = await self._ask("EVAL", _TEXT, 1, name, journal.MOST_BYTES)
        length = len(text)
        # In order, so that a key's text is written once, however many outcomes there are.
        counts = sorted(journal.read_lines(text).items())
        lines = [journal.line(*count) for count in counts]
        start, most_keys = 0, _STEP_KEYS
        while True:
            end = _step_end(counts, start, most_keys)
            some, rest = counts[start:end], "".join(lines[end:]).encode()
            words = _settle_words(shard, minute_s, label, length, some, rest)
            done = await self._run(_SETTLE, *words)
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

    async def _run(self, script: _Script, names: Sequence[str], words: Iterable[Word]) -> Any:
        """By its digest, as the scripts are long; by their text where the server has forgotten."""
        called = len(names), *names, *words
        try:
            return await self._ask("EVALSHA", script.digest, *called)
        except (StoreDown, ResponseError) as error:
            if "No matching script" not in str(error):
                raise
        return await self._ask("EVAL", script.source, *called)


def _add_words(batch: UsageBatch) -> tuple[list[str], list[Word]]:
    """The names and arguments that take a batch in; `lua/usage_add.lua` describes them."""
    at_s = batch.minute_s
    of_keys, of_plans = dict[Counted, int](), dict[Counted, int]()
    for counted, requests in batch.counts.items():
        (of_keys if counted[0].startswith("key:") else of_plans)[counted] = requests
    label = journal.label_of(at_s, batch.writer)
    journals = journal.write_lines(of_keys.items())
    plans = _by_subject(of_plans.items())
    names = [f"{USAGE}writer:{batch.writer}"]
    names += [busiest_name(grain, at_s // width_s) for grain, width_s in GRAIN_S.items()]
    names.append(PLANS)
    for shard in journals:
        names += (journal.open_name(shard), journal.names_begin(shard) + label)
    names += map(open_name, plans)
    words: list[Word] = [batch.number, _REPEAT_S, *_where(at_s)]
    words += [
        (at_s // width_s + 1) * width_s + BUSY_KEPT_S[grain] + _LONGER_S
        for grain, width_s in GRAIN_S.items()
    ]
    words += (MOST_BUSY, at_s + journal.KEPT_S, label)
    noted = busiest_of(of_keys)
    words.append(len(noted))
    for key_id, requests in noted.items():
        words += (key_id, requests)
    words += (len(journals), *journals.values())
    for plan, counts in plans.items():
        words += (plan.partition(":")[2], len(counts) // 2, *counts)
    return names, words


def _step_end(counts: Sequence[tuple[Counted, int]], start: int, most_keys: int) -> int:
    """Up to where these, in order of their keys, are settled at once."""
    keys, last = 0, ""
    for at, ((key, _, _), _) in enumerate(counts[start : start + _STEP], start):
        if key != last:
            keys, last = keys + 1, key
        if keys > most_keys:
            return at
    return min(start + _STEP, len(counts))


def _settle_words(
    shard: int,
    minute_s: int,
    label: str,
    length: int,
    counts: Iterable[tuple[Counted, int]],
    rest: bytes,
) -> tuple[list[str], list[Word]]:
    """What moves counts out of a journal; `lua/usage_settle.lua` describes it."""
    subjects = _by_subject(counts)
    names = [journal.names_begin(shard) + label, journal.open_name(shard)]
    names += map(open_name, subjects)
    words: list[Word] = [length, rest, *_where(minute_s), label]
    for named in subjects.values():
        words += (len(named) // 2, *named)
    return names, words


def _by_subject(counts: Iterable[tuple[Counted, int]]) -> dict[str, list[Word]]:
    """Of each subject what is counted, each name followed by its requests."""
    subjects: dict[str, list[Word]] = {}
    for (subject, route, outcome), requests in counts:
        subjects.setdefault(subject, []).extend((spell(route, outcome), requests))
    return subjects


def _where(at_s: int) -> list[Word]:
    """The minute that is counted in, buckets in a period, and how long each period is kept."""
    buckets = [PERIOD_S[grain] // width_s for grain, width_s in GRAIN_S.items()]
    kept = [KEPT_S[grain] + _LONGER_S for grain in GRAIN_S]
    return [at_s // GRAIN_S["minute"], *buckets, *kept]


def busiest_name(grain: Grain, number: int) -> str:
    """The sorted set of the Nth bucket's busiest keys."""
    return f"{USAGE}busiest:{grain[0]}:{number}"
