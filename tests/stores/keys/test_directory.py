"""A worker's directory of keys, over a scripted connection and over real servers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace

import hiredis
import pytest

from gateway.domain.identity import Absent, Identity
from gateway.domain.keys import Account
from gateway.domain.policy import StoreSettings
from gateway.domain.ports import StoreDown
from gateway.stores.keys.cache import IdentityCache
from gateway.stores.keys.data_watch import READ_INDEX, READ_MARK
from gateway.stores.keys.directory import HEARTBEAT, Directory
from gateway.stores.keys.records import value_range, write_account, write_record
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.names import account_name, key_name, reset_name
from gateway.stores.redis.address import StoreAddress, parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.redis.clock import TIME, StoreClock
from gateway.stores.redis.connection import command
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.suites import every_rig
from tests.suites.keys import FULL, NOW, nth_id, plain_key

ID = FULL.id
KEY_CHANGED = [b"invalidate", [b"gw:{keys}:key:" + ID.encode()]]
ACCOUNT_CHANGED = [b"invalidate", [b"gw:{keys}:account:acme"]]
ALL_CHANGED = [b"invalidate", None]
GET_KEY = command(*value_range(key_name(ID)))
GET_ACCOUNT = command(*value_range(account_name("acme")))


class ScriptedLink:
    """Replaces a StoreConnection; the test reads what was sent, replies and pushes."""

    def __init__(self, address, *, timeout_s, on_push, setup, accepted) -> None:
        self.push = on_push
        self.setup = setup
        self.on_up, self.on_down, self.on_failed = [], [], []
        self.is_up = False
        self.sent = []
        self.beats = []
        self.times = []
        self.reads = []
        self.gave_up = []

    def reconnect(self, reason) -> None:
        self.gave_up.append(reason)

    def send(self, encoded, done) -> None:
        if not self.is_up:
            done(StoreDown("not connected"))
        elif encoded == HEARTBEAT:
            self.beats.append(done)
        elif encoded == TIME:
            self.times.append(done)
        elif encoded in (READ_MARK, READ_INDEX):
            self.reads.append((encoded, done))
        else:
            self.sent.append((encoded, done))

    async def ask(self, *words) -> bytes:
        return b"PONG"

    async def stop(self) -> None:
        if self.is_up:
            self.lose()

    def connect(self) -> None:
        self.is_up = True
        for listener in self.on_up:
            listener()

    def lose(self) -> None:
        lost = StoreDown("lost")
        self.is_up = False
        waiting, self.sent = self.sent, []
        for _, done in waiting:
            done(lost)
        for listener in self.on_down:
            listener(lost)

    def reply(self, expected, value) -> None:
        """Answer the oldest command, which is the expected one."""
        encoded, done = self.sent.pop(0)
        assert encoded == expected
        done(value)


@asynccontextmanager
async def scripted_with(identities=None, **settings):
    """A directory under these settings, and the link that it is on."""
    links = []

    def make_link(address, **options):
        links.append(ScriptedLink(address, **options))
        return links[0]

    directory = Directory(
        StoreAddress("tcp", "nowhere", 1),
        link=make_link,
        settings=lambda: StoreSettings(**settings),
        clock=StoreClock(lambda: NOW),
        identities=identities,
    )
    links[0].connect()
    yield directory, links[0]
    await directory.stop()


@pytest.fixture
async def scripted():
    async with scripted_with(timeout_s=20.0, keep_keys_s=0.02) as pair:
        yield pair


def identity(key_id) -> Identity:
    """An identity that nothing else refers to."""
    return Identity(plain_key(key_id), Account("acme"))


def know(directory, link, record=FULL, account=None) -> Identity:
    """Have the directory look up a key."""
    answers = []
    directory.look_up(record.id, answers.append)
    link.reply(command(*value_range(key_name(record.id))), write_record(record))
    found = write_account(account) if account else b""
    link.reply(command(*value_range(account_name(record.account))), found)
    return answers[0]


async def test_a_look_up(scripted):
    """A key and its account are read once, cached, and returned to all waiting look-ups."""
    directory, link = scripted
    answers = []
    assert directory.known(ID) is None
    for _ in range(3):
        directory.look_up(ID, answers.append)
    link.reply(GET_KEY, write_record(FULL))
    directory.look_up(ID, answers.append)
    link.reply(GET_ACCOUNT, write_account(Account("acme", ("edr",))))
    directory.look_up(ID, answers.append)
    assert len(answers) == 5
    assert set(map(id, answers)) == {id(directory.known(ID))}
    assert answers[0].record == FULL
    assert answers[0].account == Account("acme", ("edr",))
    assert answers[0].current
    assert not link.sent


async def test_an_account_without_a_record(scripted):
    """An account without a record has no services."""
    directory, link = scripted
    assert know(directory, link).account == Account("acme")


async def test_an_id_that_does_not_exist(scripted):
    """An unknown id is cached until the store reports a change."""
    directory, link = scripted
    answers = []
    directory.look_up(ID, answers.append)
    link.reply(GET_KEY, b"")
    directory.look_up(ID, answers.append)
    assert answers == [Absent.UNKNOWN] * 2
    assert directory.known(ID) is Absent.UNKNOWN
    link.push(KEY_CHANGED)
    assert directory.known(ID) is None


@pytest.mark.parametrize("change", [KEY_CHANGED, ACCOUNT_CHANGED, ALL_CHANGED])
async def test_a_change_invalidates_the_identity(scripted, change):
    """A change of the key, its account or everything makes the identity stale."""
    directory, link = scripted
    identity = know(directory, link)
    link.push(change)
    assert not identity.current
    assert directory.known(ID) is None


@pytest.mark.parametrize(
    "push",
    [
        [b"invalidate", [b"gw:{keys}:key:other"]],
        [b"invalidate", [b"gw:{keys}:account:other", b"gw:{keys}:key", b"gw:{keys}:used", b"\xff"]],
        [b"message", b"channel", b"text"],
        [],
        [5],
        [None, None],
        [[b"invalidate"], None],
    ],
)
async def test_other_changes_change_nothing(scripted, push):
    """Changes of other keys have no effect on a cached key."""
    directory, link = scripted
    identity = know(directory, link)
    link.push(push)
    assert identity.current
    assert directory.known(ID) is identity


@pytest.mark.parametrize("change", [KEY_CHANGED, ALL_CHANGED])
async def test_a_change_while_the_key_is_read(scripted, change):
    """If a change is reported before the reply, the reply is dropped and the key read again."""
    directory, link = scripted
    answers = []
    directory.look_up(ID, answers.append)
    link.push(change)
    link.reply(GET_KEY, write_record(FULL))
    assert not answers
    revoked = replace(FULL, status="revoked")
    link.reply(GET_KEY, write_record(revoked))
    link.reply(GET_ACCOUNT, b"")
    assert [identity.record for identity in answers] == [revoked]
    assert directory.known(ID) is answers[0]


async def test_a_change_while_a_missing_key_is_read(scripted):
    """A key that is created while it is looked up is not cached as unknown."""
    directory, link = scripted
    answers = []
    directory.look_up(ID, answers.append)
    link.push(KEY_CHANGED)
    link.reply(GET_KEY, b"")
    assert directory.known(ID) is None
    link.reply(GET_KEY, write_record(FULL))
    link.reply(GET_ACCOUNT, b"")
    assert answers[0].record == FULL


@pytest.mark.parametrize("change", [KEY_CHANGED, ACCOUNT_CHANGED, ALL_CHANGED])
async def test_a_change_while_the_account_is_read(scripted, change):
    """A change between the two steps restarts both, as often as needed."""
    directory, link = scripted
    answers = []
    directory.look_up(ID, answers.append)
    for _ in range(3):
        link.reply(GET_KEY, write_record(FULL))
        link.push(change)
        link.reply(GET_ACCOUNT, write_account(Account("acme", ("edr",))))
        assert directory.known(ID) is None
    link.reply(GET_KEY, write_record(FULL))
    link.reply(GET_ACCOUNT, b"")
    assert [identity.account for identity in answers] == [Account("acme")]


async def test_another_accounts_change_while_reading(scripted):
    """A change of an account that is not the key's does not delay it."""
    directory, link = scripted
    answers = []
    directory.look_up(ID, answers.append)
    link.push(ACCOUNT_CHANGED)  # the account is not known yet, and read later
    link.reply(GET_KEY, write_record(FULL))
    link.push([b"invalidate", [b"gw:{keys}:account:other"]])
    link.reply(GET_ACCOUNT, b"")
    assert answers[0].current


async def test_errors_are_not_cached(scripted, caplog):
    """If the store answers with an error, nothing is cached."""
    directory, link = scripted
    answers = []
    error = hiredis.ReplyError("LOADING")
    for key_reply, account_reply in ((error, ...), (write_record(FULL), error)):
        directory.look_up(ID, answers.append)
        link.reply(GET_KEY, key_reply)
        if account_reply is not ...:
            link.reply(GET_ACCOUNT, account_reply)
        assert directory.known(ID) is None
    assert answers == [Absent.UNAVAILABLE] * 2
    assert link.gave_up == ["the store cannot be read: LOADING"] * 2


@pytest.mark.parametrize("reply", [5, None, True, 1.5, [b"x"], {b"a": b"b"}, "text"], ids=repr)
async def test_answers_of_another_kind(scripted, reply):
    """If answers are not texts, the connection is closed, and all look-ups end at once."""
    directory, link = scripted
    answers = []
    for _ in range(2):
        directory.look_up(ID, answers.append)
    link.reply(GET_KEY, reply)
    directory.look_up(ID, answers.append)
    link.reply(GET_KEY, write_record(FULL))
    link.reply(GET_ACCOUNT, reply)
    assert answers == [Absent.UNAVAILABLE] * 3
    assert link.gave_up == [f"the store cannot be read: it sent {type(reply).__name__}"] * 2
    assert directory.known(ID) is None


async def test_a_beat_of_another_kind(scripted):
    """A connection that answers a heartbeat with anything but a number is closed, too."""
    _, link = scripted
    link.beats[0](b"OK")
    assert link.gave_up == ["the store cannot be read: it sent bytes"]


async def test_the_time_is_known_before_any_key(scripted):
    """A new connection first requests the store's time, and its clock uses the answer."""
    directory, link = scripted
    assert directory.clock.now_us() == NOW
    (listener,) = link.times
    listener([b"1700000000", b"5"])
    assert 0 <= directory.clock.now_us() - 1_700_000_000_000_005 < 60_000_000
    link.lose()
    link.connect()
    assert len(link.times) == 2
    assert link.gave_up == []


@pytest.mark.parametrize("reply", [None, 5, b"x", [], [b"1"], [b"x", b"1"], [b"9" * 16, b"0"]])
async def test_a_time_of_another_kind(scripted, reply):
    """The connection is closed if the server sends no time, and the clock is unchanged."""
    directory, link = scripted
    link.times[0](reply)
    assert link.gave_up == [f"the store cannot be read: it sent {type(reply).__name__}"]
    assert directory.clock.now_us() == NOW


@pytest.mark.parametrize(
    ("key_reply", "account_reply"),
    [
        (b"hunter2", ...),
        (hiredis.ReplyError("WRONGTYPE Operation against a key"), ...),
        (write_record(FULL), b"hunter2"),
        (write_record(FULL), hiredis.ReplyError("WRONGTYPE Operation against a key")),
    ],
)
async def test_an_unreadable_record_is_read_once_a_second(caplog, key_reply, account_reply):
    """An unreadable record is not read again for a second, unless it is changed."""
    now_s = 100.0
    identities = IdentityCache(lambda: now_s)
    async with scripted_with(identities, timeout_s=20.0, keep_keys_s=0.02) as (directory, link):
        answers = []

        def ask() -> None:
            directory.look_up(ID, answers.append)
            link.reply(GET_KEY, key_reply)
            if account_reply is not ...:
                link.reply(GET_ACCOUNT, account_reply)

        with caplog.at_level(logging.ERROR):
            ask()
        assert directory.known(ID) is Absent.UNAVAILABLE
        directory.look_up(ID, answers.append)
        assert not link.sent
        now_s += 1.0
        ask()
        link.push(KEY_CHANGED)
        assert know(directory, link).record == FULL
    assert answers == [Absent.UNAVAILABLE] * 3
    assert link.gave_up == []
    assert "cannot be read: something else wrote to it" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    "push",
    [
        [b"invalidate"],
        [b"invalidate", 5],
        [b"invalidate", b"gw:{keys}:key:a"],
        [b"invalidate", [b"gw:{keys}:key:a", 5]],
        [b"invalidate", [None]],
        [b"invalidate", [], []],
    ],
)
async def test_a_change_that_cannot_be_read(scripted, push):
    """After an unreadable change nothing cached is reliable: it reconnects."""
    _, link = scripted
    link.push(push)
    assert link.gave_up == ["the store sent an invalidation that cannot be read"]


@pytest.mark.parametrize(
    ("name", "notified"),
    [
        (reset_name("gw:limit:{acme}:key:a:plan:rate:60000000"), 1),
        (reset_name(""), 0),
        (reset_name("gw:"), 0),
        ("gw:{keys}:reset:%zz%00\r\n", 0),
        ("gw:{keys}:reset:" + "x" * 100_000, 0),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_only_counters_are_reset(scripted, name, notified):
    """Only a counter of the gateway is reset: a prefix of all names would reset all."""
    directory, link = scripted
    resets = []
    directory.on_reset.append(resets.append)
    link.push([b"invalidate", [name.encode()]])
    assert len(resets) == notified


async def test_during_an_outage(scripted):
    """In an outage cached keys stay valid for a while, and others are unavailable."""
    directory, link = scripted
    identity = know(directory, link)
    answers = []
    directory.look_up("b" * 12, answers.append)
    link.lose()
    directory.look_up("b" * 12, answers.append)
    assert answers == [Absent.UNAVAILABLE] * 2
    assert not directory.is_up
    assert directory.known(ID) is identity
    assert identity.current
    directory.look_up(ID, answers.append)
    assert answers[-1] is identity
    await eventually(lambda: directory.known(ID) is None, "keep_s ends")
    assert not identity.current


async def test_a_new_connection_begins_anew(scripted):
    """After a reconnection nothing cached is used, because changes may have been missed."""
    directory, link = scripted
    identity = know(directory, link)
    link.lose()
    link.connect()
    assert not identity.current
    assert directory.known(ID) is None
    again = know(directory, link)
    # The timer of the outage must not evict what was read since.
    await asyncio.sleep(0.05)
    assert again.current
    assert directory.known(ID) is again


async def test_a_slow_look_up_is_not_awaited():
    """A look-up is answered in time as unavailable; it continues, and caches its result."""
    async with scripted_with(timeout_s=0.02) as (directory, link):
        answers = []
        directory.look_up(ID, answers.append)
        directory.look_up(ID, answers.append)
        await eventually(lambda: len(answers) == 2, "both are answered")
        directory.look_up(ID, answers.append)
        assert answers == [Absent.UNAVAILABLE] * 3
        link.reply(GET_KEY, write_record(FULL))
        link.reply(GET_ACCOUNT, b"")
        assert directory.known(ID).record == FULL
        assert len(answers) == 3
        assert not link.sent


async def test_stale_identities_after_an_outage():
    """After an outage keys are read again; the stale identity is used if that is slow or fails."""
    revoked = replace(FULL, status="revoked")
    async with scripted_with(timeout_s=0.02, keep_keys_s=60.0) as (directory, link):
        identity = know(directory, link)
        answers = []
        link.lose()
        link.connect()
        assert not identity.current
        assert directory.known(ID) is None
        directory.look_up(ID, answers.append)
        await eventually(lambda: answers == [identity], "the last word")
        link.lose()
        directory.look_up(ID, answers.append)
        assert answers == [identity] * 2
        link.connect()
        directory.look_up(ID, answers.append)
        link.reply(GET_KEY, hiredis.ReplyError("LOADING"))
        assert answers == [identity] * 3
        directory.look_up(ID, answers.append)
        link.reply(GET_KEY, write_record(revoked))
        link.reply(GET_ACCOUNT, b"")
        assert answers[3].record == revoked
        assert directory.known(ID) is answers[3]


@pytest.mark.parametrize("change", [KEY_CHANGED, ACCOUNT_CHANGED, ALL_CHANGED])
async def test_no_stale_identity_after_a_change(change):
    """What the store reported as changed is not used, however slow the new value is."""
    async with scripted_with(timeout_s=0.02, keep_keys_s=60.0) as (directory, link):
        know(directory, link)
        link.lose()
        link.connect()
        link.push(change)
        answers = []
        directory.look_up(ID, answers.append)
        await eventually(lambda: answers == [Absent.UNAVAILABLE], "told that the store is away")


async def test_no_stale_identity_of_an_unreadable_record(caplog):
    """The stale identity of a record that is now unreadable is not used."""
    async with scripted_with(timeout_s=20.0, keep_keys_s=60.0) as (directory, link):
        know(directory, link)
        link.lose()
        link.connect()
        answers = []
        with caplog.at_level(logging.ERROR):
            directory.look_up(ID, answers.append)
            link.reply(GET_KEY, b"rubbish")
        link.lose()
        directory.look_up(ID, answers.append)
        assert answers == [Absent.UNAVAILABLE] * 2


async def test_stale_identities_expire():
    """A stale identity that was not read again in time is evicted, even after recovery."""
    async with scripted_with(timeout_s=0.01, keep_keys_s=0.03) as (directory, link):
        know(directory, link)
        link.lose()
        link.connect()

        async def unavailable() -> bool:
            return await look_up(directory, ID) is Absent.UNAVAILABLE

        await eventually(unavailable, "its time is over")
        await eventually(lambda: not directory._identities._stale, "nothing is left of it")


@pytest.mark.parametrize(
    "error", ["MOVED 1 127.0.0.1:7001", "LOADING Redis is loading the dataset in memory"]
)
async def test_a_server_that_answers_with_errors(scripted, error):
    """Its connection is closed, after a look-up or a heartbeat."""
    directory, link = scripted
    reply = hiredis.ReplyError(error)
    answers = []
    directory.look_up(ID, answers.append)
    link.reply(GET_KEY, reply)
    link.beats[0](reply)
    assert answers == [Absent.UNAVAILABLE]
    assert link.gave_up == [f"the store cannot be read: {error}"] * 2


async def test_a_server_that_refuses_writes(scripted):
    """Keys are looked up as long as a master answers reads, though it refuses the heartbeat."""
    directory, link = scripted
    for code in ("MISCONF", "NOREPLICAS"):
        link.beats[0](hiredis.ReplyError(f"{code} no writes"))
    answers = []
    directory.look_up(ID, answers.append)
    link.reply(GET_KEY, b"")
    assert answers == [Absent.UNKNOWN]
    assert link.gave_up == []


async def test_other_data(scripted):
    """Where the heartbeat finds other data than before, all keys are read again."""
    directory, link = scripted
    known = know(directory, link)
    for mark in (b"one", b"two"):
        assert known.current
        encoded, done = link.reads[0]
        assert encoded == READ_MARK
        done(mark)
    assert not known.current
    assert directory.known(ID) is None


async def test_last_use_is_noted_in_batches(scripted):
    """Uses are collected, each key once, within a bound, and sent in bounded commands."""
    directory, link = scripted
    noted = []
    link.send = lambda encoded, done: noted.append(encoded)
    for i in range(10_050):
        used = identity(nth_id(i))
        directory.touch(used)
        directory.touch(used)
    await directory.stop()
    reader = hiredis.Reader()
    reader.feed(b"".join(noted))
    uses = {}
    for _ in noted:
        name, key, *pairs = reader.gets()
        assert (name, key) == (b"HSET", b"gw:{keys}:used")
        assert len(pairs) <= 1_000
        uses.update(zip(pairs[::2], pairs[1::2], strict=True))
    assert uses == {nth_id(i).encode(): str(NOW).encode() for i in range(10_000)}


async def test_no_last_use_is_not_sent(scripted):
    """If no key was used, nothing is sent."""
    directory, link = scripted
    await directory.stop()
    assert not link.sent


async def test_use_is_noted_again_after_a_minute(scripted):
    """The last use of a busy key is written once a minute, not with each request."""
    directory, link = scripted
    link.send = lambda encoded, done: None
    busy, calm = identity("a" * 12), identity("b" * 12)
    noted = []
    for beat in range(1, 1_001):
        directory._beats = beat
        directory.touch(busy)
        if beat in (7, 900):
            directory.touch(calm)
        noted += [(key_id, beat) for key_id in directory._used]
        directory._used.clear()
    assert [beat for key_id, beat in noted if key_id == "a" * 12] == [1, 241, 481, 721, 961]
    assert [beat for key_id, beat in noted if key_id == "b" * 12] == [7, 900]


# -- over real servers -----------------------------------------------------------------------------


class Site:
    """A separate server, a store for changes and two directories, as two workers have them."""

    def __init__(self, server, dead_s=10.0) -> None:
        self.server = server
        self.client = redis_client(parse_url(server.url))
        self.store = RedisKeyStore(self.client)
        address = parse_url(server.url)
        # For a busy machine; the test of silence sets its own.
        patient = StoreSettings(timeout_s=10.0)
        self.workers = [
            Directory(address, settings=lambda: patient, heartbeat_s=0.05, dead_s=dead_s)
            for _ in range(2)
        ]

    async def __aenter__(self):
        for worker in self.workers:
            worker.start()
        await self.up()
        return self

    async def __aexit__(self, *_) -> None:
        for worker in self.workers:
            await worker.stop()
        await self.client.aclose()

    async def up(self) -> None:
        for worker in self.workers:
            await worker.wait_up()

    async def ask(self, key_id=ID):
        """Each worker's answer now."""
        return [await look_up(worker, key_id) for worker in self.workers]

    async def forgotten(self, key_id=ID) -> None:
        for worker in self.workers:
            await eventually(lambda w=worker: w.known(key_id) is None, "the change is heard of")


async def look_up(directory, key_id):
    answer = asyncio.get_running_loop().create_future()
    directory.look_up(key_id, answer.set_result)
    return await answer


class DirectorySuite:
    """Subclasses give a fixture `server`, running and empty at the start, which may be killed."""

    @pytest.fixture
    async def site(self, server):
        async with Site(server) as site:
            yield site

    @every_rig
    async def test_a_change_reaches_every_worker(self, site):
        """After a change of a key or account, each worker drops it and then uses the new one."""
        await site.store.add(FULL)
        identities = await site.ask()
        assert [identity.record for identity in identities] == [FULL] * 2
        revoked = replace(FULL, status="revoked")
        await site.store.replace(FULL, revoked)
        await site.forgotten()
        assert not any(identity.current for identity in identities)
        assert [identity.record for identity in await site.ask()] == [revoked] * 2

        await site.store.put_account(Account("acme", ("edr",)))
        await site.forgotten()
        assert [identity.account.services for identity in await site.ask()] == [("edr",)] * 2

        await site.client.delete(f"gw:{{keys}}:key:{ID}")
        await site.forgotten()
        assert await site.ask() == [Absent.UNKNOWN] * 2

        await site.store.add(FULL)
        await site.forgotten()
        assert [identity.record for identity in await site.ask()] == [FULL] * 2

        await site.client.flushall()
        await site.forgotten()
        assert await site.ask() == [Absent.UNKNOWN] * 2

    @every_rig
    async def test_use_is_no_change(self, site):
        """Recording use, and adding other keys, removes no key from the cache."""
        await site.store.add(FULL)
        identities = await site.ask()
        await site.store.touch([ID], NOW)
        await site.store.add(plain_key("b" * 12))
        # Invalidations arrive before the answer to a later look-up.
        await site.ask("c" * 12)
        assert [worker.known(ID) for worker in site.workers] == identities

    async def test_use_reaches_the_store(self, site):
        """A use is written to the store after a moment, and at the latest when the worker ends."""
        first, second = site.workers
        used = identity("a" * 12)
        first.touch(used)

        async def noted() -> bool:
            return bool(await site.store.last_used(["a" * 12]))

        await eventually(noted, "the use is noted")
        second.touch(identity("b" * 12))
        await second.stop()
        assert await site.store.last_used(["b" * 12])

    async def test_many_look_ups_share_a_request(self, site):
        """Many concurrent look-ups of a key read the key once and the account once."""
        await site.store.add(FULL)
        await site.client.config_resetstat()
        answers = await asyncio.gather(*(look_up(site.workers[0], ID) for _ in range(100)))
        assert len(set(map(id, answers))) == 1
        assert (await site.client.info("commandstats"))["cmdstat_getrange"]["calls"] == 2

    @every_rig
    async def test_a_cut_connection_hides_no_change(self, site):
        """A change at the moment the connection is cut is known after the reconnection."""
        await site.store.add(FULL)
        identities = await site.ask()
        async with site.client.pipeline(transaction=True) as pipeline:
            pipeline.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            pipeline.set(f"gw:{{keys}}:key:{ID}", write_record(replace(FULL, status="revoked")))
            await pipeline.execute()
        await site.forgotten()
        assert not any(identity.current for identity in identities)
        await site.up()
        assert [identity.record.status for identity in await site.ask()] == ["revoked"] * 2

    async def test_a_silent_connection_is_noticed(self, server):
        """A silent connection is closed; after the reconnection all keys are read anew."""
        async with Site(server, dead_s=0.5) as site:
            await site.store.add(FULL)
            server.pause()
            try:
                for worker in site.workers:
                    await eventually(lambda w=worker: not w.is_up, "the silence is noticed")
                assert await site.ask("b" * 12) == [Absent.UNAVAILABLE] * 2
            finally:
                server.resume()
            await site.up()
            revoked = replace(FULL, status="revoked")
            await site.store.replace(FULL, revoked)

            async def update() -> bool:
                answers = await site.ask()
                return all(isinstance(one, Identity) and one.record == revoked for one in answers)

            await eventually(update, "the workers answer by the store again")

    @every_rig
    async def test_a_demoted_master(self, site):
        """A replica is not used, as its lag is unknown; once it is a master, it is used again."""
        await site.store.add(FULL)
        identities = await site.ask()
        await site.client.replicaof("127.0.0.1", "1")
        for worker in site.workers:
            await eventually(lambda w=worker: not w.is_up, "it is given up")
        assert await site.ask() == identities
        assert await site.ask("b" * 12) == [Absent.UNAVAILABLE] * 2
        await site.client.replicaof("NO", "ONE")
        await site.up()
        assert await site.ask("b" * 12) == [Absent.UNKNOWN] * 2

    async def test_a_killed_server(self, site):
        """While the server is down cached keys stay; a new, empty one is used."""
        await site.store.add(FULL)
        identities = await site.ask()
        site.server.kill()
        for worker in site.workers:
            await eventually(lambda w=worker: not w.is_up, "the loss is noticed")
        assert await site.ask() == identities
        site.server.start()
        await site.up()
        assert await site.ask() == [Absent.UNKNOWN] * 2

    async def test_among_many_changes_the_last_one_counts(self, site):
        """However changes and look-ups overlap, in the end only the last value is cached."""
        record = FULL
        await site.store.add(record)
        for number in range(200):
            changed = replace(record, name=str(number))
            account = Account("acme", (str(number),))
            asked = asyncio.gather(site.ask(), site.ask())
            await asyncio.gather(
                site.store.replace(record, changed), site.store.put_account(account), asked
            )
            record = changed

        def settled() -> bool:
            known = [worker.known(ID) for worker in site.workers]
            return all(
                one is None or (one.record, one.account) == (record, account) for one in known
            )

        await eventually(settled, "stale identities are forgotten")
        for identity in await site.ask():
            assert (identity.record, identity.account) == (record, account)


@pytest.fixture(scope="module")
def _own_server():
    server = RedisServer().start()
    yield server
    server.stop()


class TestDirectory(DirectorySuite):
    @pytest.fixture
    def server(self, _own_server):
        _own_server.renew()
        return _own_server
