"""The pipelined connection: replies in order, losses reported once, and reconnection."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hiredis
import pytest
import uvloop

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.connection import Pipeline, StoreConnection, command, grace_s, pause_s
from gateway.stores.redis.reply_bounds import MOST_REPLY_BYTES
from tests.kit.eventually import eventually
from tests.kit.listening import Served
from tests.kit.redis_server import RedisServer
from tests.kit.store_proxy import StoreProxy
from tests.kit.transport import MemoryTransport


def pipeline(
    timeout_s: float = 60.0,
) -> tuple[Pipeline, MemoryTransport, list[Any], list[StoreDown]]:
    """A connected pipeline, its transport, the pushes it received, and its losses."""
    pushes: list[Any] = []
    losses: list[StoreDown] = []
    made, transport = Pipeline(lambda: timeout_s, pushes.append, losses.append), MemoryTransport()
    made.connection_made(transport)
    return made, transport, pushes, losses


REPLIES = b"+OK\r\n$3\r\nabc\r\n:7\r\n$-1\r\n-ERR no\r\n*2\r\n:1\r\n$1\r\nx\r\n"


@pytest.mark.parametrize("size", [1, 3, len(REPLIES)])
async def test_replies_in_order(size: int) -> None:
    """Replies reach their callbacks in the order of the commands, for any split."""
    made, transport, _, losses = pipeline()
    replies: list[Any] = []
    for n in range(6):
        made.send(command("ECHO", n), replies.append)
    for start in range(0, len(REPLIES), size):
        made.data_received(REPLIES[start : start + size])
    *values, error, row = replies
    assert values == [b"OK", b"abc", 7, None]
    assert isinstance(error, hiredis.ReplyError)
    assert row == [1, b"x"]
    assert transport.written.startswith(b"*2\r\n$4\r\nECHO\r\n$1\r\n0\r\n*2\r\n")
    assert losses == []
    made.close("done")


async def test_pushes_are_no_replies() -> None:
    """A push goes to its listener and shifts no reply; without a listener it is dropped."""
    made, _, pushes, _ = pipeline()
    replies: list[Any] = []
    made.send(b"x", replies.append)
    made.data_received(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n+OK\r\n")
    assert pushes == [[b"invalidate", [b"k"]]]
    assert replies == [b"OK"]
    deaf = Pipeline(lambda: 60.0, None, lambda _: None)
    deaf.connection_made(MemoryTransport())
    deaf.send(b"x", replies.append)
    deaf.data_received(b">1\r\n:1\r\n+OK\r\n")
    assert replies == [b"OK", b"OK"]
    made.close("done")
    deaf.close("done")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda made: made.data_received(b"?what\r\n"), "cannot be read"),
        (lambda made: made.data_received(b"%1\r\n*1\r\n:1\r\n:2\r\n"), "cannot be read"),
        (lambda made: made.connection_lost(None), "closed"),
        (lambda made: made.connection_lost(OSError("reset by peer")), "reset by peer"),
        (lambda made: made.close("on purpose"), "on purpose"),
    ],
    ids=["garbage", "map by lists", "end", "error", "closed"],
)
async def test_loss_is_reported_once(harm: Callable[[Pipeline], None], words: str) -> None:
    """All waiting commands of a lost connection get StoreDown once; later ones at once."""
    made, _, _, losses = pipeline()
    replies: list[Any] = []
    made.send(b"a", replies.append)
    made.send(b"b", replies.append)
    harm(made)
    made.connection_lost(None)
    made.close("again")
    made.send(b"c", replies.append)
    assert [type(reply) for reply in replies] == [StoreDown] * 3
    assert words in str(replies[0])
    assert len(losses) == 1


@pytest.mark.parametrize("head", [b"$536870912\r\n", b">2\r\n+invalidate\r\n*1\r\n$536870912\r\n"])
async def test_a_reply_without_end(head: bytes) -> None:
    """A reply or push above the bound closes the connection when its length is announced."""
    made, transport, _, losses = pipeline()
    replies: list[Any] = []
    made.send(b"a", replies.append)
    made.data_received(head)
    megabytes = 0
    while not losses and megabytes < 100:
        made.data_received(b"x" * 1_000_000)
        megabytes += 1
    assert megabytes == 0
    assert transport.is_closed
    assert [type(reply) for reply in replies] == [StoreDown]
    assert "more than 16777216 bytes" in str(replies[0])


@pytest.mark.parametrize(
    "flood",
    [b"*2147483647\r\n", b"*1000000\r\n" * 5, b"*1\r\n*999999999\r\n"],
    ids=["at once", "one in the other", "behind one"],
)
async def test_an_array_without_end(flood: bytes) -> None:
    """An array above the bound closes the connection, before anything is allocated for it."""
    tracemalloc.start()
    try:
        made, transport, _, losses = pipeline()
        made.send(b"a", lambda _: None)
        made.data_received(flood)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert transport.is_closed
    assert len(losses) == 1
    assert peak_bytes < 2_000_000


async def test_many_long_replies() -> None:
    """The bound is per reply, for any split."""
    made, _, _, losses = pipeline()
    replies: list[Any] = []
    reply = b"$%d\r\n%b\r\n" % (MOST_REPLY_BYTES // 2, bytes(MOST_REPLY_BYTES // 2))
    for _ in range(4):
        made.send(b"a", replies.append)
        for start in range(0, len(reply), 100_000):
            made.data_received(reply[start : start + 100_000])
    assert [len(found) for found in replies] == [MOST_REPLY_BYTES // 2] * 4
    assert losses == []
    made.close("done")


def test_a_flood_of_pushes() -> None:
    """In a flood of pushes the event loop runs other callbacks after each 256 KiB."""
    push = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nabcde\r\n"
    count = 8_000_000 // len(push)
    pushes, turns = 0, list[int]()

    async def run() -> None:
        nonlocal pushes
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_000_000)
        sending = asyncio.ensure_future(asyncio.to_thread(there.sendall, push * count))

        def pushed(_: object) -> None:
            nonlocal pushes
            pushes += 1

        lost = loop.create_future()
        made = Pipeline(lambda: 60.0, pushed, lost.set_result)
        await loop.connect_accepted_socket(lambda: made, here)
        while pushes < count and not lost.done():
            before = pushes
            await asyncio.sleep(0)
            turns.append(pushes - before)
        await sending
        made.close("done")
        there.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    assert pushes == count
    assert max(turns, default=count) <= 2 * 256_000 // len(push)


async def test_reply_to_nothing() -> None:
    """A reply without a command ends the connection: the order is lost."""
    made, transport, _, losses = pipeline()
    made.data_received(b"+OK\r\n+OK\r\n")
    assert len(losses) == 1
    assert transport.is_closed


async def test_late_reply_costs_the_connection() -> None:
    """A late reply closes the connection, so that it cannot be taken for another one."""
    made, transport, _, losses = pipeline(timeout_s=0.02)
    replies: list[Any] = []
    made.send(b"a", replies.append)
    made.data_received(b"+OK\r\n")
    made.send(b"b", replies.append)
    await eventually(lambda: bool(losses), "given up")
    assert transport.is_closed
    assert replies[0] == b"OK"
    assert "did not answer within 0.02 s" in str(replies[1])


async def test_a_reply_that_was_not_read_in_time() -> None:
    """A reply that arrived in time is used, even if this process was too busy to read it."""
    loop = asyncio.get_running_loop()
    made, transport, _, losses = pipeline(timeout_s=0.02)
    replies: list[Any] = []
    made.send(b"a", replies.append)
    overdue = loop.time() + 0.05
    while loop.time() < overdue:
        pass  # busy with other things
    made._check_oldest()  # as a loop that runs timers before it reads
    assert not losses
    made.data_received(b"+OK\r\n")
    made.send(b"b", replies.append)
    assert replies == [b"OK"]
    # The second check is of another command, whose timeout starts then.
    await eventually(lambda: bool(losses), "the next one is watched as ever")
    assert transport.is_closed


@pytest.mark.parametrize(
    ("late_s", "timeout_s", "more_s"),
    [
        (0.0, 0.05, 0.001),  # a turn of the loop, always
        (0.01, 0.05, 0.01),  # as long as this process was suspended
        (3.0, 0.05, 0.05),  # a suspended machine is no reason to wait for seconds
    ],
)
def test_grace(late_s: float, timeout_s: float, more_s: float) -> None:
    """An overdue reply gets extra time for a suspension of this process, within bounds."""
    assert grace_s(late_s, timeout_s) == more_s


def test_pauses() -> None:
    """Pauses grow to a quarter of a second; only a connection that lasted resets them."""
    pauses = [0.0]
    for _ in range(5):
        pauses.append(pause_s(pauses[-1], 0.0))
    assert pauses == [0.0, 0.05, 0.1, 0.2, 0.25, 0.25]
    assert pause_s(0.25, 1.0) == 0.25  # it came up, and failed soon after
    assert pause_s(0.25, 60.0) == 0.05


async def test_timer_rests() -> None:
    """Without waiting commands the timer is idle, and restarts with the next command."""
    made, _, _, losses = pipeline(timeout_s=0.01)
    made.send(b"a", lambda _: None)
    made.data_received(b"+OK\r\n")
    await eventually(lambda: made._timer is None, "the timer has passed")
    assert losses == []
    made.send(b"b", lambda _: None)
    await eventually(lambda: bool(losses), "the next one is watched again")


async def test_an_unused_connection_is_used() -> None:
    """A PING is sent where nothing waits. It shifts no reply, and is no command that is late."""
    made, transport, _, losses = pipeline(timeout_s=0.01)
    made.send(command("GET", "a"), lambda _: None)
    made.keep_alive()
    assert transport.written == command("GET", "a")
    made.data_received(b"+OK\r\n")
    await eventually(lambda: made._timer is None, "the timer has passed")
    made.keep_alive()
    assert transport.written == command("GET", "a") + command("PING")
    assert made._timer is None
    replies: list[Any] = []
    made.send(b"b", replies.append)
    made.data_received(b"-MISCONF no\r\n+OK\r\n")
    assert replies == [b"OK"]
    made.keep_alive()
    made.send(b"c", replies.append)
    await eventually(lambda: bool(losses), "a command behind it is watched")
    assert "did not answer within 0.01 s" in str(replies[1])


async def test_a_server_that_is_silent_when_it_is_not_asked() -> None:
    """The connection is closed when several PINGs were due, and the first was not answered."""
    made, transport, _, losses = pipeline(timeout_s=60.0)
    for _ in range(3):
        for _ in range(4):
            made.keep_alive()
        assert not losses
        made.data_received(b"+PONG\r\n")
    for _ in range(5):
        made.keep_alive()
    assert len(losses) == 1
    assert "did not answer within 2 s" in str(losses[0])
    made.keep_alive()
    assert transport.written == 4 * command("PING")


async def test_a_failing_listener() -> None:
    """A listener that raises is reported, and the next one still gets its reply."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    made, _, _, _ = pipeline()
    replies: list[Any] = []
    made.send(b"a", lambda _: 1 / 0)
    made.send(b"b", replies.append)
    made.data_received(b"+OK\r\n+OK\r\n")
    assert replies == [b"OK"]
    assert len(reports) == 1
    made.close("done")


async def test_given_up_while_connecting() -> None:
    """A connection that is made after `close` is closed at once."""
    made, transport = Pipeline(lambda: 60.0, None, lambda _: None), MemoryTransport()
    replies: list[Any] = []
    made.send(b"a", replies.append)
    made.close("too late")
    made.connection_made(transport)
    assert transport.is_closed
    assert isinstance(replies[0], StoreDown)


# -- links ----------------------------------------------------------------------------------------


def address_of(server: RedisServer, **more: Any) -> StoreAddress:
    return StoreAddress("tcp", host="127.0.0.1", port=server.port, **more)


def address_at(port: int) -> StoreAddress:
    return StoreAddress("tcp", host="127.0.0.1", port=port)


@asynccontextmanager
async def up(address: StoreAddress, **options: Any) -> AsyncIterator[StoreConnection]:
    link = StoreConnection(address, **{"timeout_s": 20.0, **options})
    link.start()
    try:
        await asyncio.wait_for(link.wait_up(), 20)
        yield link
    finally:
        await link.stop()


async def test_asks(redis_server: RedisServer) -> None:
    """The words are one command; an error reply is raised; a null is None."""
    async with up(address_of(redis_server, db=3)) as link:
        assert await link.ask("SET", "a", b"\x00\xff") == b"OK"
        assert await link.ask("GET", "a") == b"\x00\xff"
        assert await link.ask("GET", "none") is None
        with pytest.raises(StoreDown, match=r"refuses NONSENSE: .*unknown command"):
            await link.ask("NONSENSE")
    with redis_server.client() as client:
        assert client.info("keyspace")["db3"]["keys"] == 1


async def test_a_link_that_nobody_uses(redis_server: RedisServer) -> None:
    """A server never finds it idle for a second, as it may close it then."""
    async with up(address_of(redis_server)) as link:
        own = str(await link.ask("CLIENT", "ID"))
        with redis_server.client() as client:

            def is_pinged() -> bool:
                found = client.client_list(client_id=[own])
                return bool(found) and found[0]["cmd"] == "ping"

            await eventually(is_pinged, "it is used")


def test_on_uvloop(redis_server: RedisServer) -> None:
    """The link works on uvloop's transports as well."""

    async def run() -> Any:
        async with up(address_of(redis_server)) as link:
            return await link.ask("PING")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) == b"PONG"


@pytest.mark.parametrize("pushes", [False, True])
async def test_password(pushes: bool) -> None:
    """A password is sent, with or without a user's name, in either protocol."""
    server = RedisServer().start()
    options = {"on_push": lambda _: None} if pushes else {}
    try:
        with server.client() as client:
            client.acl_setuser("app", enabled=True, passwords=["+s3cret"], commands=["+@all"])
            client.config_set("requirepass", "hunter2")
        addresses = [
            address_of(server, username="app", password="s3cret"),
            address_of(server, password="hunter2"),
        ]
        for address in addresses:
            async with up(address, **options) as link:
                assert await link.ask("PING") == b"PONG"
        link = StoreConnection(address_of(server, password="wrong"), **options)
        link.start()
        await eventually(lambda: link.last_error is not None, "the server refuses")
        assert "WRONGPASS" in str(link.last_error)
        assert "wrong" not in str(link.last_error).replace("WRONGPASS", "")
        assert not link.is_up
        await link.stop()
    finally:
        server.stop()


async def test_unix_socket(short_path: Path) -> None:
    """A server is reached through its socket."""
    server = RedisServer("--unixsocket", str(short_path / "s")).start()
    try:
        async with up(StoreAddress("unix", path=str(short_path / "s"))) as link:
            assert await link.ask("PING") == b"PONG"
    finally:
        server.stop()


async def test_tracking(redis_server: RedisServer) -> None:
    """With client tracking, a link receives others' changes."""
    pushes: list[Any] = []
    setup = [command("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "gw:key:")]
    async with up(address_of(redis_server), on_push=pushes.append, setup=setup):
        with redis_server.client() as client:
            client.set("gw:key:1", "changed")
        await eventually(lambda: bool(pushes), "the change is pushed")
    assert pushes == [[b"invalidate", [b"gw:key:1"]]]


async def test_pushes_of_a_server_that_is_not_up() -> None:
    """A server that loads its data pushes each name as changed; that is no news to anyone."""
    pushes: list[Any] = []
    loading = [b"-LOADING the data", b"-LOADING the data", b"+OK"]
    answers = iter([loading, loading, [b"%0", b"+PONG", b"+OK"]])

    async def load(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = next(answers)
        await reader.readuntil(b"PREPARE\r\n")
        writer.write(b"\r\n".join([*answer[:2], *_pushed(b"loaded"), answer[2], b""]))
        if answer is not loading:
            await reader.readuntil(b"READY\r\n")
            writer.write(b"\r\n".join([*_pushed(b"changed"), b"+OK", b""]))
        await reader.read()

    async with (
        Served(load) as server,
        up(
            address_at(server.port),
            timeout_s=20.0,
            on_push=pushes.append,
            setup=(command("PREPARE"),),
        ) as link,
    ):
        assert pushes == []
        assert await link.ask("READY") == b"OK"
        assert pushes == [[b"invalidate", [b"changed"]]]


def _pushed(name: bytes) -> list[bytes]:
    """The lines of a push."""
    return [b">2", b"$10", b"invalidate", b"*1", b"$%d" % len(name), name]


async def test_setup_that_is_refused(redis_server: RedisServer) -> None:
    """A link whose setup is refused is not up."""
    link = StoreConnection(address_of(redis_server), setup=[command("CLIENT", "TRACKING", "MAYBE")])
    link.start()
    await eventually(lambda: link.last_error is not None, "the server refuses")
    assert not link.is_up
    assert "refuses the connection" in str(link.last_error)
    await link.stop()


async def test_loss_and_return() -> None:
    """When the server is killed waiting commands end; after its restart the link reconnects."""
    server = RedisServer().start()
    heard = list[str]()
    try:
        link = StoreConnection(address_of(server), timeout_s=20.0)
        link.on_up.append(lambda: heard.append("up"))
        link.on_down.append(lambda error: heard.append(type(error).__name__))
        link.start()
        link.start()
        await asyncio.wait_for(link.wait_up(), 20)
        server.kill()
        await eventually(lambda: not link.is_up, "noticed")
        with pytest.raises(StoreDown):
            await link.ask("PING")
        await eventually(lambda: "cannot connect" in str(link.last_error), "tried again")
        server.start()
        await asyncio.wait_for(link.wait_up(), 20)
        assert await link.ask("PING") == b"PONG"
        await link.stop()
        await link.stop()
        assert heard == ["up", "StoreDown", "up", "StoreDown"]
        with pytest.raises(StoreDown):
            await link.ask("PING")
    finally:
        server.stop()


async def test_server_that_does_not_answer() -> None:
    """A connection to a silent server is closed, and the next attempt follows."""
    accepted = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        await reader.read()

    async with Served(silent) as server:
        link = StoreConnection(address_at(server.port), timeout_s=0.02)
        link.start()
        await eventually(lambda: accepted >= 2, "tried twice")
        assert not link.is_up
        await link.stop()


async def test_wrong_tls() -> None:
    """A server without TLS is reported as such, and nothing is sent in plain text."""
    received = b""

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        received += await reader.read(100)
        writer.write(b"+OK\r\n")

    async with Served(plain) as server:
        address = replace(address_at(server.port), password="s3cret", tls=True)
        link = StoreConnection(address)
        link.start()
        await eventually(lambda: link.last_error is not None, "refused")
        assert b"s3cret" not in received
        await link.stop()


async def test_the_timeout_of_the_moment() -> None:
    """A timeout that was changed meanwhile applies when the first one is over."""
    loop, losses = asyncio.get_running_loop(), list[StoreDown]()
    timeout_s = 0.02
    made = Pipeline(lambda: timeout_s, None, losses.append)
    made.connection_made(MemoryTransport())
    made.send(b"a", lambda _: None)
    timeout_s = 60.0

    def waits_on() -> bool:
        return made._timer is not None and made._timer.when() > loop.time() + 30

    await eventually(waits_on, "it waits for as long as it is told now")
    assert losses == []
    made.close("done")


async def test_slow_at_its_trial() -> None:
    """A server that greets at once and is slow at the probe is not up."""
    tried = 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tried
        while data := await reader.read(1000):
            tried += b"DECIDE" in data
            writer.write(b"+PONG\r\n")  # of the two answers, one

    async with Served(slow) as server:
        link = StoreConnection(address_at(server.port), timeout_s=0.02, setup=(command("DECIDE"),))
        link.on_up.append(lambda: pytest.fail("it was taken for up"))
        link.start()
        await eventually(lambda: tried >= 2, "tried twice")
        assert "did not answer within 0.02 s" in str(link.last_error)
        await link.stop()


async def test_given_up(redis_server: RedisServer) -> None:
    """If its user closes the connection, waiting commands end, and it reconnects."""
    async with up(address_of(redis_server)) as link:
        losses: list[str] = []
        link.on_down.append(lambda error: losses.append(str(error)))
        waiting = asyncio.ensure_future(link.ask("BLPOP", "nothing", 0))
        await asyncio.sleep(0)
        link.reconnect("it is no good")
        link.reconnect("nor a second time")
        with pytest.raises(StoreDown, match="it is no good"):
            await waiting
        assert not link.is_up
        with pytest.raises(StoreDown):
            await link.ask("PING")
        await asyncio.wait_for(link.wait_up(), 20)
        assert await link.ask("PING") == b"PONG"
        assert losses == ["it is no good"]


async def test_secrets_of_a_reason(redis_server: RedisServer) -> None:
    """A reason that quotes the password is shown without it."""
    link = StoreConnection(address_of(redis_server, password="hunter2"))
    assert link._without_secret("unknown 'hunter2'") == "unknown '***'"


async def test_a_name_is_resolved_anew(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is resolved again for each reconnection."""
    other = RedisServer().start()
    loop = asyncio.get_running_loop()
    port = redis_server.port

    async def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    try:
        async with up(StoreAddress("tcp", host="cache.example", port=6379)) as link:
            port = other.port
            with other.client() as client:
                client.set("where", "other")
            link.reconnect("moved")
            await asyncio.wait_for(link.wait_up(), 20)
            assert await link.ask("GET", "where") == b"other"
    finally:
        other.stop()


@pytest.mark.parametrize(
    "harm",
    [
        lambda proxy: proxy.cut(),
        lambda proxy: proxy.reset_after(2),
        lambda proxy: proxy.pause(),
        lambda proxy: proxy.delay(1.0),
    ],
    ids=["cut", "reset in mid-reply", "held", "late"],
)
async def test_harm_on_the_way(
    redis_server: RedisServer, harm: Callable[[StoreProxy], None]
) -> None:
    """However the connection is damaged, each command gets its own reply or none."""
    with redis_server.client() as client:
        client.mset({f"k{number}": f"v{number}" for number in range(50)})
    async with (
        StoreProxy(redis_server.port) as proxy,
        up(address_at(proxy.port), timeout_s=0.2) as link,
    ):
        harm(proxy)
        asked = [link.ask("GET", f"k{number}") for number in range(50)]
        replies = await asyncio.gather(*asked, return_exceptions=True)
        for number, reply in enumerate(replies):
            assert isinstance(reply, StoreDown) or reply == b"v%d" % number
        await eventually(lambda: not link.is_up, "noticed")
        proxy.pass_on()
        await asyncio.wait_for(link.wait_up(), 20)

        async def answers() -> bool:
            try:
                return await link.ask("GET", "k7") == b"v7"
            except StoreDown:
                return False

        await eventually(answers, "all is well")
