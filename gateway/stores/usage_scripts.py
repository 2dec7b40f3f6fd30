"""Usage as it is written to Redis: what a worker's batch and its settlement make of the store.

gw:{keys}:usage:SUBJECT:m:N   hash: the minutes of an hour, the Nth since 1970. A field is
                              "INDEX|ROUTE|OUTCOME", INDEX the minute's place in the hour
gw:{keys}:usage:SUBJECT:h:N   the hours of a day; SUBJECT:d:N: the days of 31
gw:{keys}:usage:busiest:m:N   sorted set: the busiest keys of a minute; h and d as well
gw:{keys}:usage:plans         set of the plans that anything was counted for
gw:{keys}:usage:writer:ID     number of the last batch of a worker
gw:{keys}:usage:warned:…      a limit's count was warned of; …:warnings: how many, this minute

Beside them are the journals of `usage_journal`. All in the slot of the keys, each but `plans` with
an expiry. The scripts do each in one step, and know a batch, or a journal, that they have seen.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

from gateway.domain.ports import UsageBatch
from gateway.domain.usage import (
    BUSY_KEPT_S,
    GRAIN_S,
    KEPT_S,
    MOST_BUSY,
    MOST_WARNINGS,
    Counted,
    Grain,
    Turn,
    busiest_of,
)
from gateway.stores import usage_journal as journal
from gateway.stores.records import KEYS_TAG

USAGE: Final = KEYS_TAG + "usage:"
PLANS: Final = USAGE + "plans"
_WARNINGS: Final = USAGE + "warnings"
#: What lies in one hash, in seconds.
PERIOD_S: Final[dict[Grain, int]] = {"minute": 3_600, "hour": 86_400, "day": 31 * 86_400}
#: What is kept is kept a little longer, for gateways whose clocks differ.
_LONGER_S: Final = 3_600
#: For how long a batch may be sent again: longer than its minute is kept.
_REPEAT_S: Final = 2 * 86_400
#: A minute's end to the moment from which its last batches are thought to be there.
_LATE_S: Final = 3
#: The same to the moment from which the writer of a journal is thought to have gone.
_ABANDONED_S: Final = 180
#: Keys that are settled in one step, and a pause between two: nobody waits for it, and requests do
#: not wait behind it.
_STEP: Final = 100
_PAUSE_S: Final = 0.02

_LUA: Final = files("gateway.stores") / "lua"
_ADD: Final = b"".join((_LUA / name).read_bytes() for name in ("usage.lua", "usage_add.lua"))
_SETTLE: Final = b"".join((_LUA / name).read_bytes() for name in ("usage.lua", "usage_settle.lua"))
# What is no set has no members, and what is no text is empty.
_LABELS: Final = """
local found = redis.pcall('SMEMBERS', KEYS[1])
if found.err and string.find(found.err, 'WRONGTYPE') then return {} end
return found
"""
_TEXT: Final = """
local found = redis.pcall('GET', KEYS[1])
if type(found) == 'table' and not string.find(found.err, 'WRONGTYPE') then return found end
return type(found) == 'string' and found or ''
"""
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
_TURNS: Final[tuple[Turn, ...]] = ("leave", "count", "log")

#: Sends a command of these words and gives its reply; what it raises goes to whoever writes.
Ask = Callable[..., Awaitable[Any]]


class UsageScripts:
    """What writes, over whatever sends commands: a link's `ask`, a client's own."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def add(self, batch: UsageBatch) -> None:
        """Take a batch in."""
        await self._ask(*add_words(batch))

    async def settle(self, writer: str, now_s: int) -> None:
        """Count in their buckets what lies in journals whose minute is over.

        Those of this writer, and those of others that have been left for long.
        """
        # Whoever finds something left by others is not to be in step with all who find it.
        for shard in random.sample(range(journal.SHARDS), journal.SHARDS):
            for label in await self._ask("EVAL", _LABELS, 1, journal.open_name(shard)):
                read = journal.read_label(label)
                if read is None:
                    continue
                minute_s, owner = read
                late_s = _LATE_S if owner == writer else _ABANDONED_S
                if minute_s + GRAIN_S["minute"] + late_s <= now_s:
                    await self._settle(shard, minute_s, label.decode())

    async def _settle(self, shard: int, minute_s: int, label: str) -> None:
        """Empty a journal, a step at a time; others may do the same."""
        while not await self._settle_as_read(shard, minute_s, label):
            pass

    async def _settle_as_read(self, shard: int, minute_s: int, label: str) -> bool:
        """The same; False: it is not as it was read any more."""
        text = await self._ask("EVAL", _TEXT, 1, journal.names_begin(shard) + label)
        length = len(text)
        counts = list(journal.read_lines(text).items())
        lines = [journal.line(*count) for count in counts]
        for done in range(0, max(1, len(counts)), _STEP):
            some, rest = counts[done : done + _STEP], "".join(lines[done + _STEP :]).encode()
            words = _settle_words(shard, minute_s, label, length, some, rest)
            is_done = await self._ask(*words)
            await asyncio.sleep(_PAUSE_S)
            if not is_done:
                return False
            length = len(rest)
        return True

    async def first_to_warn(self, count: str, level: int, for_us: int) -> Turn:
        """What to do about a warning of this limit's count at this level."""
        digest = blake2b(count.encode(), digest_size=16).hexdigest()
        names = f"{USAGE}warned:{level}:{digest}", _WARNINGS
        # By the token the script knows a command that comes again because its answer was lost.
        words = secrets.token_hex(8), max(1, for_us // 1000), MOST_WARNINGS
        return _TURNS[await self._ask("EVAL", _WARN, len(names), *names, *words)]


def add_words(batch: UsageBatch) -> Iterable[bytes | str | int]:
    """The command that takes a batch in; `lua/usage_add.lua` describes it."""
    at_s = batch.minute_s
    of_keys, of_plans = dict[Counted, int](), dict[Counted, int]()
    for counted, requests in batch.counts.items():
        (of_keys if counted[0].startswith("key:") else of_plans)[counted] = requests
    label = journal.label_of(at_s, batch.writer)
    journals = journal.write_lines(of_keys.items())
    plans = _fields(of_plans.items())
    names = [f"{USAGE}writer:{batch.writer}"]
    names += [busiest_name(grain, at_s // width_s) for grain, width_s in GRAIN_S.items()]
    names.append(PLANS)
    for shard in journals:
        names += (journal.open_name(shard), journal.names_begin(shard) + label)
    names += _hash_names(plans, at_s)
    words: list[bytes | str | int] = ["EVAL", _ADD, len(names), *names, batch.number, _REPEAT_S]
    words += _heads_and_ends(at_s)
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
    for plan, fields in plans.items():
        words += (plan.partition(":")[2], len(fields) // 2, *fields)
    return words


def _settle_words(
    shard: int,
    minute_s: int,
    label: str,
    length: int,
    counts: Iterable[tuple[Counted, int]],
    rest: bytes,
) -> Iterable[bytes | str | int]:
    """The command that moves counts out of a journal; `lua/usage_settle.lua` describes it."""
    subjects = _fields(counts)
    names = [journal.names_begin(shard) + label, journal.open_name(shard)]
    names += _hash_names(subjects, minute_s)
    words: list[bytes | str | int] = ["EVAL", _SETTLE, len(names), *names, length, rest]
    words += _heads_and_ends(minute_s)
    words.append(label)
    for fields in subjects.values():
        words += (len(fields) // 2, *fields)
    return words


def _fields(counts: Iterable[tuple[Counted, int]]) -> dict[str, list[str | int]]:
    """By subject, fields without their beginning, each followed by its requests."""
    subjects: dict[str, list[str | int]] = {}
    for (subject, route, outcome), requests in counts:
        subjects.setdefault(subject, []).extend((f"{route}|{outcome}", requests))
    return subjects


def _heads_and_ends(at_s: int) -> list[str | int]:
    """What a moment's fields begin with in each grain's hash, and when these hashes end."""
    periods = [(grain, at_s // PERIOD_S[grain]) for grain in GRAIN_S]
    heads = [f"{(at_s - n * PERIOD_S[grain]) // GRAIN_S[grain]}|" for grain, n in periods]
    ends = [(n + 1) * PERIOD_S[grain] + KEPT_S[grain] + _LONGER_S for grain, n in periods]
    return [*heads, *ends]


def _hash_names(subjects: Iterable[str], at_s: int) -> list[str]:
    """The three hashes of each subject."""
    periods = [(grain, at_s // PERIOD_S[grain]) for grain in GRAIN_S]
    return [hash_name(subject, grain, n) for subject in subjects for grain, n in periods]


@lru_cache(maxsize=8_192)
def _spelled(subject: str) -> str:
    """A subject as part of a name; percent-encoding keeps any text in its place."""
    kind, _, name = subject.partition(":")
    return f"{kind}:{quote(name, safe='')}"


def hash_name(subject: str, grain: Grain, period: int) -> str:
    """The hash of a subject's buckets in the Nth period of a grain."""
    return f"{USAGE}{_spelled(subject)}:{grain[0]}:{period}"


def busiest_name(grain: Grain, number: int) -> str:
    """The sorted set of the Nth bucket's busiest keys."""
    return f"{USAGE}busiest:{grain[0]}:{number}"
