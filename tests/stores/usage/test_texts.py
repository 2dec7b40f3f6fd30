"""The text format of usage: as the script writes it, and as it is read."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from hashlib import sha1

import pytest

from gateway.domain.usage import GRAIN_S, bucket_start
from gateway.stores.names import usage_name
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.usage import journal
from gateway.stores.usage import scripts as scripts_module
from gateway.stores.usage import store as store_module
from gateway.stores.usage.store import RedisUsageStore
from gateway.stores.usage.texts import PERIOD_S, read_text, text_names, write_name
from tests.kit.rows import each_row
from tests.kit.tiers import examples
from tests.suites.usage import NOW_S, Writer

OPEN = "gw:{keys}:usage:plan:free"
#: NOW_S begins an hour.
MINUTE = NOW_S // 60


def b36(number):
    """A number in base 36, as in texts."""
    head, digit = divmod(number, 36)
    return (b36(head) if head else "") + (string.digits + string.ascii_lowercase)[digit]


@pytest.fixture
def store(store_client):
    return RedisUsageStore(store_client)


async def count(writer, minute, **requests) -> None:
    """Count for a plan, whose texts have it at once. minute: after NOW_S"""
    counts = {("plan:free", "api", outcome): n for outcome, n in requests.items()}
    await writer.add(counts, NOW_S + 60 * minute)


def texts(client):
    """All texts of the plan."""
    return {
        name.decode().removeprefix(OPEN): client.get(name).decode()
        for name in client.keys(OPEN + "*")
    }


async def test_an_open_hour(redis_server, store):
    """The minutes of the open hour are in one short text, from the newest, with gaps and names."""
    writer = Writer(store)
    await count(writer, 3, admitted=2)
    await count(writer, 3, admitted=1)
    await count(writer, 4, limited=4)
    await count(writer, 10, limited=5, admitted=6)
    with redis_server.client() as client:
        assert texts(client) == {"": f"api|admitted,api|limited\n{b36(MINUTE + 10)}:6,5\n4@1:6\n3"}


async def test_an_hour_is_closed(redis_server, store):
    """In a later hour the minutes move to the text of minutes, their sums to hours and days."""
    writer = Writer(store)
    await count(writer, 3, admitted=2)
    await count(writer, 58, admitted=3, limited=1)
    await count(writer, 3 * 60, limited=4)
    with redis_server.client() as client:
        assert texts(client) == {
            "": f"api|admitted,api|limited\n{b36(MINUTE + 180)}:4@1",
            f":m:{MINUTE // 360}": f"api|admitted,api|limited\n{b36(MINUTE + 58)}:3,1\n2:1j",
            f":h:{MINUTE // 60 // 216}": f"api|admitted,api|limited\n{b36(MINUTE // 60)}:5,1",
            f":d:{MINUTE // 1440 // 93}": f"api|admitted,api|limited\n{b36(MINUTE // 1440)}:5,1",
        }
        await count(writer, 4 * 60, limited=1)
        found = texts(client)
        assert found[f":m:{MINUTE // 360}"].split("\n")[1:] == [
            f"{b36(MINUTE + 180)}:4@1",
            "3,1:3e",
            "2:1j",
        ]
        assert found[f":d:{MINUTE // 1440 // 93}"].split("\n")[1:] == [f"{b36(MINUTE // 1440)}:5,5"]


async def test_late_counts(redis_server, store):
    """Counts of a closed hour are added to its minutes, hour and day."""
    writer = Writer(store)
    await count(writer, 60, admitted=1)
    await count(writer, 120, admitted=1)
    for minute in (62, 58, 60, 61):
        await count(writer, minute, limited=minute)
    with redis_server.client() as client:
        found = texts(client)
        assert found[""] == f"api|admitted\n{b36(MINUTE + 120)}:1"
        assert found[f":m:{MINUTE // 360}"] == (
            f"api|admitted,api|limited\n{b36(MINUTE + 62)}:1q@1\n1p@1\n1,1o\n1m@1:2"
        )
        assert found[f":h:{MINUTE // 60 // 216}"] == (
            f"api|admitted,api|limited\n{b36(MINUTE // 60 + 1)}:1,53\n1m@1"
        )


async def test_an_open_hour_that_is_lost(redis_server, store):
    """If that text was deleted, an earlier hour may be opened, and is added correctly."""
    writer = Writer(store)
    await count(writer, 60, admitted=1)
    await count(writer, 125, admitted=2)
    await count(writer, 180, admitted=3)
    with redis_server.client() as client:
        client.delete(OPEN)
        await count(writer, 10, admitted=4)
        await count(writer, 123, admitted=5)
        await count(writer, 240, admitted=6)
        minutes = texts(client)[f":m:{MINUTE // 360}"]
        assert minutes == f"api|admitted\n{b36(MINUTE + 125)}:2\n5:2\n1:1r\n4:1e"


@pytest.mark.parametrize(
    ("mark", "harmed"), [("", ""), (":m:83333", "minute"), (":h:2314", "hour"), (":d:224", "day")]
)
async def test_a_forged_text(redis_server, store, mark, harmed):
    """Invalid values in a text harm that text at most, and do not stop counting."""
    forged = f"a,a,,|\n{b36(MINUTE)}:1,x@9,2@7:5\n:\n3:0\n4@:\n:::\n9@9@9:{'9' * 30}"
    writer = Writer(store)
    with redis_server.client() as client:
        client.set(OPEN + mark, forged)
    for minute in (0, 1, -3, -200, 60, 0, 120):
        await count(writer, minute, admitted=1, limited=1)
    for grain in GRAIN_S:
        found = await store.read("plan:free", grain, NOW_S - 86_400, NOW_S + 86_400)
        counted = [bucket.counts.get(("api", "admitted"), 0) for bucket in found]
        assert sum(counted) == 7 or grain == harmed


#: Texts that the gateway could not have written, and that would take the store long to read.
FORGED_LONG = {
    "lines": b"api|admitted\nzzzzzz:1" + b"\n1:1" * 600_000,
    "names": b"a," * 600_000 + b"\n%b:1" % b36(MINUTE).encode(),
    "counts": b"api|admitted\n%b:1" % b36(MINUTE).encode() + b",1" * 200_000,
}


@pytest.mark.parametrize("mark", ["", ":m:83333", ":h:2314", ":d:224"])
@pytest.mark.parametrize("form", FORGED_LONG)
async def test_a_forged_long_text(redis_server, store, mark, form):
    """It is replaced by a short one, and counting goes on."""
    with redis_server.client() as client:
        client.set(OPEN + mark, FORGED_LONG[form])
        for minute in (0, 60, 59, 1_500):
            await count(Writer(store, f"w{minute}"), minute, admitted=1)
        assert max(map(client.strlen, client.keys(OPEN + "*"))) < 200
    for grain in GRAIN_S:
        found = await store.read("plan:free", grain, NOW_S - 86_400, NOW_S + 2 * 86_400)
        assert sum(bucket.counts["api", "admitted"] for bucket in found) == 4


@pytest.mark.parametrize("step", ["1", "0"])
async def test_a_newest_bucket_ahead_of_its_period(redis_server, store, step):
    """Buckets that no period has, or that do not go back in time, are not searched one by one."""
    forged = f"api|admitted\n{b36(MINUTE + 360)}:1" + f"\n1:{step}" * 100_000
    with redis_server.client() as client:
        client.set(OPEN, f"api|admitted\n{b36(MINUTE + 360)}:1")
        client.set(OPEN + ":m:83333", forged)
        await count(Writer(store), 0, admitted=1)
        assert client.get(OPEN + ":m:83333") == f"api|admitted\n{b36(MINUTE)}:1".encode()


async def test_long_texts_are_read_in_a_thread(redis_server, store, monkeypatch):
    """Other tasks run meanwhile. Neither too long a text nor too many buckets are read."""
    threads = []

    async def to_thread(function, *arguments):
        threads.append(function)
        return function(*arguments)

    monkeypatch.setattr(store_module.asyncio, "to_thread", to_thread)
    head = f"api|admitted\n{b36(MINUTE + 59)}:1"
    with redis_server.client() as client:
        for buckets, read in ((10, 10), (200_000, 360), (600_000, 0)):
            client.set(OPEN, head + "\n1" * (buckets - 1) + " " * (2_000_000 if not read else 0))
            found = await store.read("plan:free", "minute", NOW_S - 10**6, NOW_S + 10**6)
            assert sum(bucket.counts["api", "admitted"] for bucket in found) == read
    # A connection reads its password in a thread as well.
    assert threads.count(store_module._read_buckets) == 1


@pytest.fixture
def soon(monkeypatch):
    """Make merging fast."""
    monkeypatch.setattr(journal, "SHARDS", 2)
    monkeypatch.setattr(scripts_module, "_PAUSE_S", 0)


def bound(monkeypatch, **bounds):
    """Set other bounds in the scripts."""
    for name in ("_ADD", "_MERGE"):
        source = getattr(scripts_module, name).source
        for constant, most in bounds.items():
            source = re.sub(
                rb"local %b = \d+" % constant.encode(),
                b"local %b = %d" % (constant.encode(), most),
                source,
            )
        script = scripts_module._Script(source, sha1(source, usedforsecurity=False).hexdigest())
        monkeypatch.setattr(scripts_module, name, script)


@pytest.mark.parametrize("most_open", [3_000, 10])
@pytest.mark.parametrize("seed", range(examples(8)))
@pytest.mark.usefixtures("soon")
async def test_any_order(store, monkeypatch, seed, most_open):
    """For any order of minutes, and differing clocks, each bucket has its own counts."""
    bound(monkeypatch, MOST_OPEN=most_open, MOST_CLOSED=2 * most_open)
    choose = random.Random(seed)
    truth = {grain: {} for grain in GRAIN_S}
    writer = Writer(store)
    at_s = NOW_S
    for _ in range(250):
        # Mostly forward, seldom far, often a little back.
        at_s += 60 * choose.choice((0, 1, 1, 1, 2, 7, 45, -1, -2, -50, 300, -400, 60 * 24 * 3))
        names = choose.sample(("admitted", "limited:plan", "failed:x", "refused:ü,|%"), 2)
        counts = {
            (f"{kind}:{choose.randrange(2)}", choose.choice(("api", "search")), name): n
            for n, name in enumerate(names, 1)
            for kind in ("plan", "key")
        }
        await writer.add(counts, at_s)
        if choose.random() < 0.3:
            await store.merge("worker", at_s + choose.choice((63, 10_000_000)))
        for (subject, route, outcome), requests in counts.items():
            for grain in GRAIN_S:
                start_s = bucket_start(grain, at_s)
                bucket = truth[grain].setdefault((subject, start_s), Counter())
                bucket[route, outcome] += requests
    for subject in ("plan:0", "plan:1", "key:0", "key:1"):
        for grain in GRAIN_S:
            found = await store.read(subject, grain, NOW_S - 200 * 86_400, NOW_S + 400 * 86_400)
            assert {(subject, bucket.start_s): bucket.counts for bucket in found} == {
                at: counts for at, counts in truth[grain].items() if at[0] == subject
            }


async def test_texts_stay_short(redis_server, store):
    """Use in each minute takes some two bytes a bucket for each of three outcomes."""
    writer = Writer(store)
    for minute in range(30 * 60):
        await count(writer, minute, admitted=1, limited=1, failed=1)
    with redis_server.client() as client:
        sizes = {name: client.strlen(name) for name in client.keys(OPEN + "*")}
    # The open hour, 29 hours of minutes, hours, days.
    assert len(sizes) == 1 + 5 + 1 + 2
    assert sum(sizes.values()) < 30 * 60 * 6 + 30 * 9 + 9 * 50


async def test_a_long_text_is_closed_within_its_hour(redis_server, store):
    """As closing a text takes time by its length, it is bounded, however many names it has."""
    writer = Writer(store)
    outcomes = {f"limited:{number}": 1 for number in range(200)}
    for minute in range(60):
        await count(writer, minute, **outcomes)
        with redis_server.client() as client:
            names, _, buckets = client.get(OPEN).partition(b"\n")
        assert len(buckets) < 3_000 + 2 * 200 + 10
    assert names.count(b",") == 199
    for grain, buckets in (("minute", 60), ("hour", 1), ("day", 1)):
        found = await store.read("plan:free", grain, NOW_S - 86_400, NOW_S + 3_600)
        assert len(found) == buckets
        assert sum(sum(bucket.counts.values()) for bucket in found) == 60 * 200


class Asked:
    """Sends commands, and records the answers of the merge script."""

    def __init__(self, client):
        self._client = client
        self.answers = []

    async def __call__(self, *words):
        answer = await self._client.execute_command(*words)
        if words[1] == scripts_module._MERGE.digest:
            self.answers.append((words[2] - 2, answer))
        return answer


async def test_few_hours_are_closed_at_once(redis_server, store, monkeypatch):
    """A step closes a bounded number of long hours; all are closed in the end."""
    monkeypatch.setattr(journal, "SHARDS", 1)
    client = redis_client(parse_url(redis_server.url))
    asked = Asked(client)
    scripts = scripts_module.UsageScripts(asked)
    scripts.pause_s = 0
    writer, keys = Writer(scripts), [f"key:k{number:02}" for number in range(12)]
    for minute in range(59, 61):
        names = [f"r{number}" for number in range(1 if minute == 60 else 600)]
        await writer.add(
            {(key, name, "admitted"): 1 for key in keys for name in names}, NOW_S + 60 * minute
        )
        asked.answers.clear()
        await scripts.merge("worker", NOW_S + 60 * minute + 63)
    # Some 1,200 bytes each: six are within the bound.
    assert asked.answers == [(12, -6), (6, 1), (6, 1)]
    for key in keys:
        (hour,) = await store.read(key, "hour", NOW_S, NOW_S + 3_600)
        assert sum(hour.counts.values()) == 600
    await client.aclose()


# -- reading ---------------------------------------------------------------------------------------

NAMES = b"api|admitted,api|limited:plan,search|admitted\n"
A, B, C = ("api", "admitted"), ("api", "limited:plan"), ("search", "admitted")


@each_row(
    ("text", "buckets"),
    [
        (b"", []),
        (b"foreign", []),
        (NAMES, []),
        (NAMES + b"X:1", []),
        (NAMES + b":1", []),
        (NAMES + b"-5:1", []),
        (NAMES + b"9" * 5_000 + b":1", []),
        (NAMES + b"5:1", [(5, {A: 1})]),
        (NAMES + b"5:1,2,3", [(5, {A: 1, B: 2, C: 3})]),
        (NAMES + b"5:1,3@2", [(5, {A: 1, C: 3})]),
        (NAMES + b"5:2@1,3", [(5, {B: 2, C: 3})]),
        (NAMES + b"5:1,1@0", [(5, {A: 2})]),
        (NAMES + b"5:1@0" + b",1@0" * 300_000, [(5, {A: 3})]),
        (NAMES + b"zz:10,zz", [(36**2 - 1, {A: 36, B: 36**2 - 1})]),
        (NAMES + b"5:1,2,3,4", [(5, {A: 1, B: 2, C: 3})]),
        (NAMES + b"5:1\n2\n3:2", [(5, {A: 1}), (4, {A: 2}), (2, {A: 3})]),
        (NAMES + b"5:X\n2", [(5, {}), (4, {A: 2})]),
        (NAMES + b"5:1@X\n2", [(5, {}), (4, {A: 2})]),
        (NAMES + b"5:1@\n2", [(5, {}), (4, {A: 2})]),
        (NAMES + b"5:1@3\n2", [(5, {}), (4, {A: 2})]),
        (NAMES + b"zz:1\n2:z", [(36**2 - 1, {A: 1}), (36**2 - 36, {A: 2})]),
        (NAMES + b"5:\n2", [(5, {}), (4, {A: 2})]),
        (NAMES + b"5:" + b"9" * 5_000 + b"\n2", [(5, {}), (4, {A: 2})]),
        (NAMES + b"5:1\n2:X\n3", [(5, {A: 1})]),
        (NAMES + b"5:1\n2:0\n3", [(5, {A: 1}), (5, {A: 2}), (4, {A: 3})]),
        (b"\xff\n5:1", [(5, {("\ufffd", ""): 1})]),
    ],
)
def test_a_text_is_read(text, buckets):
    """The gateway's own texts are read, and of others what is valid."""
    assert list(read_text(text, "minute")) == [(at * 60, counts) for at, counts in buckets]


def test_names_in_texts():
    """A route and an outcome are in a text unchanged, except for special characters."""
    assert write_name("api", "limited:plan") == "api|limited:plan"
    name = write_name("a|b,", "ü:\n%")
    text = f"{name}\n1:7".encode()
    assert list(read_text(text, "hour")) == [(3_600, {("a|b,", "ü:\n%"): 7})]


def test_which_texts_have_a_time():
    """A time is in the text of the open hour, or in those of its periods."""
    assert usage_name("key:a") == "gw:{keys}:usage:key:a"
    width_s = PERIOD_S["hour"]
    assert text_names("key:a", "hour", 0, 0) == [usage_name("key:a")]
    assert text_names("key:a", "hour", width_s - 1, width_s + 1) == [
        usage_name("key:a"),
        usage_name("key:a") + ":h:0",
        usage_name("key:a") + ":h:1",
    ]
    assert text_names("key:a", "hour", width_s, 2 * width_s)[1:] == [usage_name("key:a") + ":h:1"]
