"""Tests of every store of the history of policies; run with memory and with a real Redis."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.policy_files import Texts, hash_of
from gateway.domain.policy_history import MOST_KEPT, SAME_CHANGE_US, PolicyLoad
from tests.suites import every_rig

NOW_US = 1_800_000_000_123_456
HERE, THERE = "web-1 (127.0.0.1:8080)", "web-2 (127.0.0.1:8080)"


def texts(number: int = 0) -> Texts:
    """The files of one of many policies."""
    return {"plans.yaml": f"# {number}\r\n# \u00e9 \U0001f600 \ufeff\tx\n", "a b.yaml": "{}"}


def load(number: int = 0, **fields: Any) -> PolicyLoad:
    """An entry for one of many policies."""
    first = PolicyLoad(NOW_US, hash_of(texts(number)), "", "file change", HERE, "a \u2192 b")
    return replace(first, **fields)


async def add(store: Any, *loads: PolicyLoad) -> list[bool]:
    return [await store.add(each, None) is not None for each in loads]


class PolicyStoreSuite:
    """Subclasses give a fixture `store`, empty at the start."""

    async def test_nothing(self, store):
        """An empty history has no entries and no texts."""
        assert await store.loads() == []
        assert await store.texts(hash_of(texts())) is None

    @every_rig
    async def test_what_is_added_is_there(self, store):
        """An entry is read as written, and texts exactly: each character and line break."""
        first = load(0)
        second = load(1, previous=first.hash, cause="SIGHUP", at_us=NOW_US + 1)
        assert await store.add(first, texts(0)) == first
        assert await store.add(second, texts(1)) == second
        assert await store.loads() == [second, first]
        assert await store.texts(first.hash) == texts(0)
        assert await store.texts(second.hash) == texts(1)

    async def test_texts_that_are_not_kept(self, store):
        """A policy that is too large has an entry without texts."""
        assert await store.add(load(), None) == load()
        assert await store.loads() == [load()]
        assert await store.texts(load().hash) is None

    @every_rig
    async def test_one_entry_for_each_change(self, store):
        """Many gateways that load one change at the same time have one entry together."""
        loads = [load(cause="start", gateway=f"web-{at}") for at in range(20)]
        found = await asyncio.gather(*(store.add(each, texts()) for each in loads))
        assert len([each for each in found if each is not None]) == 1
        assert len(await store.loads()) == 1

    async def test_a_policy_that_comes_back(self, store):
        """Each change has its entry, and the texts of a policy are stored once."""
        one, two = load(1), load(2)
        again = replace(one, at_us=NOW_US + 1)
        assert await add(store, one, two, again) == [True, True, True]
        assert await store.loads() == [again, two, one]

    @pytest.mark.parametrize(
        ("late_us", "gateway", "expected"),
        [
            (SAME_CHANGE_US, THERE, False),
            (-SAME_CHANGE_US, THERE, False),
            (SAME_CHANGE_US + 1, THERE, True),
            (1, HERE, True),
        ],
    )
    async def test_a_gateway_that_is_late(self, store, late_us, gateway, expected):
        """Another gateway may load a change after the first one has loaded the next."""
        later = load(1, at_us=NOW_US + late_us, gateway=gateway)
        assert await add(store, load(1), load(2), later) == [True, True, expected]

    @every_rig
    async def test_starts(self, store):
        """A gateway that starts again with its policy adds nothing, whatever others have loaded."""
        mine, others = load(1, cause="start"), load(2, gateway=THERE, cause="start")
        later = NOW_US + 10 * SAME_CHANGE_US
        assert await add(store, mine, others, replace(mine, at_us=later)) == [True, True, False]
        reloaded = replace(mine, at_us=later, cause="file change")
        assert await add(store, reloaded) == [True]
        assert await add(store, replace(others, at_us=later, hash=load(3).hash)) == [True]

    @every_rig
    async def test_a_rollback_is_the_cause_of_the_next_load(self, store):
        """The first load of the restored policy has it as its cause, and who did it; once."""
        await add(store, load(1), load(2))
        await store.note_rollback(load(1).hash, "anna (cli)")
        assert await add(store, load(3)) == [True]
        back = load(1, at_us=NOW_US + 1)
        expected = replace(back, cause="rollback", actor="anna (cli)")
        assert await store.add(back, texts(1)) == expected
        assert (await store.loads())[0] == expected
        await add(store, load(4))
        assert await store.add(load(1, at_us=NOW_US + 2), None) == load(1, at_us=NOW_US + 2)

    async def test_the_newest_are_kept(self, store):
        """Beyond a number the oldest are dropped, with texts that no entry has."""
        for number in range(MOST_KEPT):
            await store.add(load(number), texts(number))
        await store.add(load(0, at_us=NOW_US + 1), texts(0))
        assert await store.texts(load(0).hash) == texts(0)
        await store.add(load(MOST_KEPT), None)
        kept = [each.hash for each in await store.loads()]
        expected = [MOST_KEPT, 0, *range(MOST_KEPT - 1, 1, -1)]
        assert kept == [load(number).hash for number in expected]
        assert await store.texts(load(0).hash) == texts(0)
        assert await store.texts(load(1).hash) is None
        assert await store.texts(load(2).hash) == texts(2)
