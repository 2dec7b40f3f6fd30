"""Tests of every store of warnings; run with memory and with a real Redis."""

from __future__ import annotations

import asyncio

from gateway.domain.warnings import MOST_A_MINUTE, KeptWarning, LimitWarning
from tests.kit.eventually import eventually
from tests.suites import every_rig

NOW_US = 1_800_000_000_123_456


def warning(count="gw:limit:a", level=80, for_us=60_000_000, key_id="7h3k9m2p4q6r") -> LimitWarning:
    return LimitWarning(count, level, "search", "free", key_id, NOW_US, for_us)


class WarningStoreSuite:
    """Subclasses give a fixture `store`, empty at the start."""

    async def test_nothing(self, store):
        """An empty store has no warnings."""
        assert await store.newest() == []
        assert await store.newest(before="5-0") == []

    @every_rig
    async def test_a_warning_is_kept(self, store):
        """A warning is read as written, with its id."""
        assert await store.warn(warning())
        assert await store.warn(warning(level=100))
        reached, near = await store.newest()
        assert near == KeptWarning(near.id, NOW_US, "7h3k9m2p4q6r", "free", "search", 80)
        assert reached == KeptWarning(reached.id, NOW_US, "7h3k9m2p4q6r", "free", "search", 100)
        assert near.id != reached.id

    @every_rig
    async def test_only_one_warns(self, store):
        """Of many warnings of one counter at one level, one is reported as the first."""
        told = await asyncio.gather(*(store.warn(warning()) for _ in range(20)))
        assert sorted(told) == [False] * 19 + [True]
        assert await store.warn(warning(level=100))
        assert await store.warn(warning("gw:limit:b"))
        assert len(await store.newest()) == 3

    async def test_a_warning_comes_again(self, store):
        """After its window, the next warning of a counter is stored again."""
        assert await store.warn(warning(for_us=20_000))

        async def again() -> bool:
            return await store.warn(warning(for_us=20_000))

        await eventually(again, "it is warned of again")
        assert len(await store.newest()) == 2

    async def test_a_bound_per_minute(self, store):
        """Beyond a number per minute a warning is not stored, but still returned once."""
        told = [await store.warn(warning(str(at))) for at in range(MOST_A_MINUTE + 5)]
        assert all(told)
        assert not await store.warn(warning(str(MOST_A_MINUTE)))
        assert len(await store.newest(count=1_000)) == MOST_A_MINUTE

    @every_rig
    async def test_pages(self, store):
        """Warnings are read from the newest, in pages, before an id."""
        for at in range(7):
            await store.warn(warning(str(at), key_id=str(at)))
        newest = await store.newest()
        assert [kept.key_id for kept in newest] == list("6543210")
        assert await store.newest(count=3) == newest[:3]
        assert await store.newest(before=newest[2].id, count=3) == newest[3:6]
        assert await store.newest(before=newest[5].id, count=3) == newest[6:]
        assert await store.newest(before=newest[6].id) == []
