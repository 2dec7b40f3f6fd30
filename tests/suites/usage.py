"""Tests of every usage store; run with memory and with a real Redis."""

from __future__ import annotations

import asyncio

import pytest

from gateway.domain.ports import UsageBatch
from gateway.domain.usage import GRAIN_S, MOST_BUSY, MOST_NOTED, Bucket, Measures
from tests.suites import every_rig

#: 2027-01-15T08:00:00Z, a Friday.
NOW_S = 1_800_000_000
#: A time at which the counts of NOW_S are merged, of any writer.
LATER_S = NOW_S + 3_600
#: The range that has all buckets of a grain.
SPAN_S = {"minute": 2 * 86_400, "hour": 50 * 86_400, "day": 400 * 86_400}


class Writer:
    """One worker's batches, numbered in order."""

    def __init__(self, store, name="worker") -> None:
        self.store, self.name, self.number = store, name, 0

    async def add(self, counts, minute_s=NOW_S, measures=None) -> UsageBatch:
        self.number += 1
        batch = UsageBatch(self.name, self.number, minute_s, counts, measures or {})
        await self.store.add(batch)
        return batch


def of_key(key_id="a", route="api", outcome="admitted"):
    return f"key:{key_id}", route, outcome


async def read(store, subject, grain):
    """All buckets of a subject."""
    return await store.read(subject, grain, NOW_S - SPAN_S[grain], NOW_S + SPAN_S[grain])


async def total(store, subject, grain="day"):
    """All that was counted of a subject."""
    buckets = await read(store, subject, grain)
    return sum(sum(bucket.counts.values()) for bucket in buckets)


class UsageStoreSuite:
    """Subclasses give a fixture `store`, empty at the start."""

    @every_rig
    async def test_a_batch_is_counted_in_all_grains(self, store):
        """A request counts in its minute, its hour and its day, by route and outcome."""
        minute_s = NOW_S + 17 * 60
        counts = {
            of_key(): 3,
            of_key(outcome="limited:plan"): 2,
            of_key(route="search"): 1,
            ("plan:free", "api", "admitted"): 3,
        }
        await Writer(store).add(counts, minute_s)
        mine = {("api", "admitted"): 3, ("api", "limited:plan"): 2, ("search", "admitted"): 1}
        for grain, width_s in GRAIN_S.items():
            start_s = minute_s - minute_s % width_s
            assert await read(store, "key:a", grain) == [Bucket(start_s, mine)]
        assert await total(store, "plan:free") == 3
        assert await total(store, "key:b") == 0

    async def test_batches_add_up(self, store):
        """Later batches of any worker are added, in their own minute."""
        one, other = Writer(store, "one"), Writer(store, "other")
        await one.add({of_key(): 3})
        await other.add({of_key(): 4})
        await one.add({of_key(): 5}, NOW_S + 60)
        await one.add({of_key(): 6}, NOW_S + 3_600)
        minutes = await read(store, "key:a", "minute")
        assert [(bucket.start_s - NOW_S, *bucket.counts.values()) for bucket in minutes] == [
            (0, 7),
            (60, 5),
            (3_600, 6),
        ]
        hours = await read(store, "key:a", "hour")
        assert [sum(bucket.counts.values()) for bucket in hours] == [12, 6]
        assert await total(store, "key:a") == 18

    @every_rig
    async def test_a_batch_counts_once(self, store):
        """A batch that is sent again, because its answer was lost, is counted once."""
        writer = Writer(store)
        first = await writer.add({of_key(): 3})
        await store.add(first)
        second = await writer.add({of_key(): 4})
        await asyncio.gather(*(store.add(second) for _ in range(3)))
        # One on a lost connection may arrive even later.
        await store.add(first)
        assert await total(store, "key:a") == 7

    async def test_calls_of_tools_are_counted_by_route(self, store):
        """In all grains, beside plans; their routes are known by name, and are no plans."""
        hostile = "<b>|,:;%\n{x}"
        counts = {
            ("mcp:tickets", "search", "admitted:2xx"): 3,
            ("mcp:tickets", hostile, "limited:tickets/" + hostile): 2,
            ("mcp:code", "other", "refused:tool_unknown"): 1,
            ("plan:free", "tickets", "admitted:2xx"): 3,
            of_key(): 1,
        }
        one, other = Writer(store, "one"), Writer(store, "other")
        await one.add(counts)
        await other.add({("mcp:tickets", "search", "admitted:2xx"): 4})
        assert await store.mcp_routes() == ["code", "tickets"]
        assert await store.plans() == ["free"]
        for grain in GRAIN_S:
            (bucket,) = await read(store, "mcp:tickets", grain)
            assert bucket.counts == {
                ("search", "admitted:2xx"): 7,
                (hostile, "limited:tickets/" + hostile): 2,
            }
            assert bucket.measures == {}
        assert await total(store, "mcp:code") == 1
        assert await total(store, "plan:free") == 3

    async def test_measures_are_kept_by_route(self, store):
        """Of a key by the day, of a plan by the hour too; hours and writers add up."""
        names = ("api", "b;c=d+e~.%")
        wanted = {name: Measures() for name in names}
        hours = [{name: Measures() for name in names} for _ in range(3)]
        writers = [Writer(store, "one"), Writer(store, "other")]
        for at in range(3 * 60):
            for route in names if at % 7 == 0 else names[:1]:
                some = Measures(at, 1_000 * at, {20 + at % 30: 1 + at % 3, 5: 2})
                subjects = {("key:a", route): some, ("plan:free", route): some}
                counts = {(subject, route, "admitted:2xx"): 3 for subject, _ in subjects}
                await writers[at % 2].add(counts, NOW_S + 60 * at, subjects)
                wanted[route].add(some)
                hours[at // 60][route].add(some)
            if at % 20 == 0:
                await store.merge("one", NOW_S + 60 * at)
        for now_s in (0, NOW_S + 3 * 3_600 + 70, LATER_S + 3 * 3_600):
            if now_s:
                await store.merge("one", now_s)
            for subject in ("key:a", "plan:free"):
                (day,) = await read(store, subject, "day")
                assert day.measures == wanted
                assert sum(day.counts.values()) == 3 * (180 + 26)
            found = await read(store, "plan:free", "hour")
            assert [bucket.measures for bucket in found] == hours
            assert [bucket.measures for bucket in await read(store, "key:a", "hour")] == [{}] * 3
            for subject in ("key:a", "plan:free"):
                minutes = await read(store, subject, "minute")
                assert len(minutes) == 180
                assert not any(bucket.measures for bucket in minutes)

    @every_rig
    async def test_late_measures_go_where_they_belong(self, store):
        """After an outage measures are added to their own hours and days; each batch once."""
        writer = Writer(store)
        for at_s in (NOW_S + 2 * 86_400, NOW_S, NOW_S + 3_600, NOW_S):
            measures = {
                (subject, "api"): Measures(1, 2, {at_s // 3_600 % 24: 1})
                for subject in ("key:a", "plan:free")
            }
            counts = {(subject, "api", "admitted:2xx"): 1 for subject, _ in measures}
            await store.add(await writer.add(counts, at_s, measures))
            await store.merge("worker", at_s + 3_600)
        hour = NOW_S // 3_600 % 24
        for subject in ("key:a", "plan:free"):
            days = await read(store, subject, "day")
            assert [bucket.measures for bucket in days] == [
                {"api": Measures(3, 6, {hour: 2, hour + 1: 1})},
                {"api": Measures(1, 2, {hour: 1})},
            ]
        found = await read(store, "plan:free", "hour")
        assert [bucket.measures["api"].bytes_in for bucket in found] == [2, 1, 1]

    async def test_a_late_batch_goes_where_it_belongs(self, store):
        """After an outage counts are added to their own minutes."""
        writer = Writer(store)
        await writer.add({of_key(): 1}, NOW_S + 7_200)
        await writer.add({of_key(): 2}, NOW_S)
        minutes = await read(store, "key:a", "minute")
        assert [bucket.start_s - NOW_S for bucket in minutes] == [0, 7_200]

    @every_rig
    async def test_merging_changes_nothing(self, store):
        """Reads are the same before and after a merge, also of a repeated one."""
        one, other = Writer(store, "one"), Writer(store, "other")
        read_before = []
        for now_s in (0, NOW_S + 30, NOW_S + 70, NOW_S + 130, LATER_S, LATER_S):
            if not now_s:
                await one.add({of_key(): 3, of_key("b"): 1, ("plan:free", "api", "admitted"): 4})
                await one.add({of_key(): 2, of_key(route="search"): 1}, NOW_S + 60)
                await other.add({of_key(): 5})
            else:
                await store.merge("one", now_s)
            found = [await read(store, f"key:{id}", grain) for id in "abc" for grain in GRAIN_S]
            read_before = read_before or found
            assert found == read_before
        await one.add({of_key(): 1}, NOW_S + 60)
        assert await total(store, "key:a") == 12
        await store.merge("third", LATER_S)
        assert await total(store, "key:a") == 12

    @pytest.mark.parametrize("grain", GRAIN_S)
    async def test_a_range_is_read(self, store, grain):
        """Buckets are read from the first time, included, to the last, excluded."""
        width_s = GRAIN_S[grain]
        first_s = NOW_S - NOW_S % width_s
        writer = Writer(store)
        for at in range(70):
            await writer.add({of_key(): at + 1}, first_s + at * width_s)
        newest = await store.read("key:a", grain, first_s + 30 * width_s, first_s + 69 * width_s)
        assert [bucket.start_s for bucket in newest] == [
            first_s + at * width_s for at in range(30, 69)
        ]
        assert [bucket.counts["api", "admitted"] for bucket in newest] == list(range(31, 70))
        assert await store.read("key:a", grain, first_s, first_s) == []

    @pytest.mark.parametrize("name", ["a:b", "a|b", "{a}", "a b\r\n", "ü", "%41", "", "a:m:1"])
    async def test_no_name_reaches_another(self, store, name):
        """Whatever a plan's name, its usage is separate."""
        await Writer(store).add({(f"plan:{name}", "api", "admitted"): 5})
        assert await total(store, f"plan:{name}") == 5
        assert await total(store, "plan:A") == await total(store, "plan:a") == 0
        assert await store.plans() == [name]

    async def test_plans(self, store):
        """The names of all plans with counts; "" for requests without a key."""
        assert await store.plans() == []
        writer = Writer(store)
        for plan in ("pro", "", "free", "pro"):
            await writer.add({(f"plan:{plan}", "api", "admitted"): 1})
        await writer.add({of_key("enterprise"): 1})
        assert await store.plans() == ["", "free", "pro"]

    async def test_large_batches(self, store):
        """Many keys with many outcomes are each counted."""
        counts = {
            of_key(f"k{at}", f"route{at % 7}", f"limited:l{at % 5}"): at + 1 for at in range(200)
        }
        await Writer(store).add(counts)
        for at in (0, 1, 100, 199):
            assert await total(store, f"key:k{at}", "minute") == at + 1

    async def test_many_outcomes(self, store):
        """A bucket of thousands of routes is read completely."""
        writer = Writer(store)
        for part in range(40):
            await writer.add({of_key("a", f"route{part}-{at}"): 1 for at in range(200)})
        await writer.add({of_key(): 1}, NOW_S + 3_600)
        assert await total(store, "key:a", "minute") == 8_001
        assert await total(store, "key:a", "day") == 8_001

    @every_rig
    async def test_busiest(self, store):
        """The keys with most requests of any outcome, most first; ties are in order of ids."""
        writer = Writer(store)
        await writer.add({of_key("a"): 1, of_key("a", outcome="failed:x"): 4, of_key("c"): 3})
        await writer.add({of_key("b"): 3, ("plan:free", "api", "admitted"): 99}, NOW_S + 60)
        await writer.add({of_key("a"): 2}, NOW_S + 120)
        everything = [("a", 7), ("b", 3), ("c", 3)]
        for grain in GRAIN_S:
            assert await store.busiest(grain, 0, 0, 3) == []
            start_s = NOW_S - NOW_S % GRAIN_S[grain]
            assert await store.busiest(grain, start_s, NOW_S + 180, 3) == everything
            assert await store.busiest(grain, start_s, NOW_S + 180, 1) == everything[:1]
        assert await store.busiest("minute", NOW_S + 60, NOW_S + 120, 3) == [("b", 3)]
        assert await store.busiest("minute", NOW_S + 1, NOW_S + 61, 3) == [("b", 3)]

    async def test_busiest_of_many(self, store):
        """A bounded number of keys is kept; a busy one is found whatever comes after it."""
        writer = Writer(store)
        await writer.add({of_key("busy"): 500, of_key("busier"): 600})
        for part in range(2 * MOST_BUSY // MOST_NOTED + 1):
            await writer.add({of_key(f"rare{part}-{at}"): 1 for at in range(MOST_NOTED)})
            found = await store.busiest("minute", NOW_S, NOW_S + 60, 10_000)
            assert found[:2] == [("busier", 600), ("busy", 500)]
            assert len(found) <= 2 * MOST_BUSY
        await writer.add({of_key("busy"): 200})
        found = await store.busiest("minute", NOW_S, NOW_S + 60, 10_000)
        assert found[:2] == [("busy", 700), ("busier", 600)]
        assert MOST_BUSY <= len(found) < MOST_BUSY + MOST_NOTED

    async def test_the_busiest_of_a_batch(self, store):
        """Of a batch of many keys the busiest are kept as such, and all are counted."""
        uses = {f"k{at:03}": at + 1 for at in range(MOST_NOTED + 30)}
        await Writer(store).add({of_key(key): requests for key, requests in uses.items()})
        found = await store.busiest("day", 0, NOW_S + 1, 10_000)
        assert found == sorted(uses.items(), key=lambda pair: -pair[1])[:MOST_NOTED]
        assert await total(store, "key:k000") == 1
