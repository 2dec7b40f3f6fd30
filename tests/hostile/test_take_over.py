"""A gateway takes over from a running one: no client is refused, whichever of the two fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.runtime.predecessor import running_pid
from gateway.runtime.take_over import take_over_path
from gateway.stores.redis.embedded import EmbeddedRedis
from tests.end_to_end.test_workers import readiness, worker_of
from tests.hostile.backend import Backend
from tests.hostile.conftest import LONG, PAUSE_S, PLANS, Serve
from tests.hostile.test_drain import Held, drains, stream
from tests.hostile.test_workers import lives
from tests.kit.command import run_aside
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process, ServedGateway, run_command
from tests.kit.policies import write_policies
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.wire import Wire, WireError

pytestmark = pytest.mark.asyncio(loop_scope="session")

TWO = ("--workers", "2")
#: A drain waits for all requests in progress.
LONG_DRAIN = LONG.replace("drain: 1s", "drain: 10m")
Succeed = Callable[..., ServedGateway]


@pytest_asyncio.fixture(loop_scope="session")
async def succeed(tmp_path: Path, redis_server: RedisServer) -> AsyncIterator[Succeed]:
    """Start a gateway that takes over from this one: `succeed(gateway, "--workers", "2")`."""
    async with AsyncExitStack() as stack:
        count = 0

        def start(before: ServedGateway, *arguments: str) -> ServedGateway:
            nonlocal count
            started = ServedGateway(
                tmp_path / f"successor-{(count := count + 1)}",
                before.policies,
                redis_server.url,
                *("--take-over", *arguments),
                ports=(before.port, before.admin_port),
                data=before.data,
            )
            stack.push_async_callback(started.stop)
            return started

        yield start


async def says(gateway: ServedGateway, words: str) -> None:
    """Wait until it has logged these words."""
    await eventually(lambda: words in gateway.output(), f"it says: {words}", READY_S)


async def took_over(successor: ServedGateway, before: ServedGateway) -> None:
    """Wait until it serves, and the one before has exited with 0."""
    await says(successor, "took over from")
    assert await before.ended() == 0


class Clients:
    """Clients that send requests all the time, and reconnect when an answer says so.

    answered: answers so far; wrong: anything else
    """

    def __init__(self, port: int, target: str) -> None:
        self._port = port
        self._target = target
        self._done = asyncio.Event()
        self.answered = 0
        self.wrong: list[str] = []

    async def more(self, count: int = 200) -> None:
        """Wait for this many further answers."""
        enough = self.answered + count
        await eventually(lambda: self.answered >= enough, "requests are answered")

    async def ask(self, kept: bool) -> None:
        """One client, until `stop`. kept: it reuses a connection as long as it may."""
        while not self._done.is_set():
            step = "connecting"
            try:
                async with await Wire.connect(self._port) as wire:
                    closes, asked = False, 0
                    while not closes:
                        step = f"request {(asked := asked + 1)}"
                        answer = await wire.request("GET", self._target)
                        closes = answer.closes or not kept or self._done.is_set()
                        self.answered += 1
                        if answer.status != 200:
                            self.wrong.append(f"{step}: {answer.status}")
                        await asyncio.sleep(PAUSE_S)
            except (OSError, WireError) as error:
                self.wrong.append(f"{step}: {error!r}")

    @property
    def refused(self) -> list[str]:
        """Failed connection attempts; one that a process had accepted is lost with it."""
        return [words for words in self.wrong if words.startswith("connecting")]

    def stop(self) -> None:
        self._done.set()


@asynccontextmanager
async def clients(gateway: ServedGateway, each: int = 4) -> AsyncIterator[tuple[Clients, Clients]]:
    """This many of each kind, at the gateway's port and at its admin listener."""
    data, admin = Clients(gateway.port, "/short"), Clients(gateway.admin_port, "/readyz")
    async with asyncio.TaskGroup() as tasks:
        for asking, count in ((data, each), (admin, 2)):
            for number in range(2 * count):
                tasks.create_task(asking.ask(kept=bool(number % 2)))
        try:
            await data.more()
            yield data, admin
            await data.more()
        finally:
            data.stop()
            admin.stop()


async def test_three_in_a_row(
    backend: Backend, serve: Serve, succeed: Succeed, redis_server: RedisServer
) -> None:
    """Under load no connection is refused or reset, on either listener; no answer is an error."""
    gateway = await serve(backend.url, *TWO, store=redis_server.url)
    async with clients(gateway) as (data, admin):
        for _ in range(3):
            successor = succeed(gateway, *TWO)
            await took_over(successor, gateway)
            gateway = successor
            await data.more()
    assert data.wrong == []
    assert admin.wrong == []


@pytest.mark.parametrize(("workers", "then"), [(2, 1), (1, 3)])
async def test_another_number_of_workers(
    backend: Backend,
    serve: Serve,
    succeed: Succeed,
    redis_server: RedisServer,
    workers: int,
    then: int,
) -> None:
    """With fewer workers, waiting connections of each socket are accepted; with more, all serve."""
    gateway = await serve(backend.url, "--workers", str(workers), store=redis_server.url)
    async with clients(gateway) as (data, admin):
        successor = succeed(gateway, "--workers", str(then))
        await took_over(successor, gateway)
        await data.more()
        answers = await asyncio.gather(*(successor.fetch("/short") for _ in range(60)))
        assert len({worker_of(answer) for answer in answers}) == then
    assert (data.wrong, admin.wrong) == ([], [])


@pytest.mark.parametrize("fault", ["policies", "port", "access log"])
async def test_a_successor_that_cannot_start(
    backend: Backend, serve: Serve, succeed: Succeed, redis_server: RedisServer, fault: str
) -> None:
    """It says why and ends; the running one does not notice, or goes on."""
    gateway = await serve(backend.url, *TWO, store=redis_server.url)
    words: dict[str, tuple[tuple[str, ...], str]] = {
        "policies": (("--policies", str(faulty(gateway))), "expected a rate"),
        "port": (("--listen", f"127.0.0.1:{free_port()}"), "--admin 127.0.0.1:"),
        "access log": (("--access-log", "/nowhere/log"), "--access-log /nowhere/log"),
    }
    arguments, message = words[fault]
    async with clients(gateway, 2) as (data, admin):
        successor = succeed(gateway, *arguments)
        assert await successor.ended() != 0
        assert message in successor.output()
        await data.more()
    assert (data.wrong, admin.wrong) == ([], [])
    await took_over(succeed(gateway), gateway)


def faulty(gateway: ServedGateway) -> Path:
    folder = gateway.policies.parent / "faulty"
    folder.mkdir()
    for file in gateway.policies.iterdir():
        (folder / file.name).write_text(file.read_text().replace("1000000/hour", "often"))
    return folder


@pytest.mark.parametrize("moment", ["at its start", "with the sockets", "about to serve"])
async def test_a_successor_is_killed(
    backend: Backend, serve: Serve, succeed: Succeed, redis_server: RedisServer, moment: str
) -> None:
    """Kill -9 of the new one before it has taken over: the old one goes on."""
    gateway = await serve(backend.url, *TWO, store=redis_server.url)
    async with clients(gateway) as (data, admin):
        successor = succeed(gateway, *TWO)
        if moment == "with the sockets":
            await says(gateway, "has received the listening sockets")
        elif moment == "about to serve":
            await eventually(
                lambda: successor.worker_pids() != [], "it starts its workers", READY_S
            )
            gateway.signal(signal.SIGSTOP)  # so that it does not learn of the take-over
            await eventually(
                lambda: successor.output().count("policy loaded") == 2, "they serve", READY_S
            )
        orphans = successor.worker_pids()
        successor.signal(signal.SIGKILL)
        await successor.ended()
        gateway.signal(signal.SIGCONT)
        await eventually(lambda: not any(map(lives, orphans)), "its workers end")
        await data.more()
        await admin.more(20)
        assert (await readiness(gateway))[1]["checks"]["workers"] == "2 of 2"
    assert (data.wrong, admin.refused) == ([], [])
    await took_over(succeed(gateway), gateway)


async def test_the_one_before_is_killed(
    backend: Backend, serve: Serve, succeed: Succeed, redis_server: RedisServer
) -> None:
    """Kill -9 of the old one, as soon as the new one has its sockets: the new one serves."""
    gateway = await serve(backend.url, *TWO, store=redis_server.url)
    async with clients(gateway) as (data, admin):
        successor = succeed(gateway, *TWO)
        await says(gateway, "has received the listening sockets")
        gateway.signal(signal.SIGKILL)
        await gateway.ended()
        await says(successor, "took over from")
        await data.more()
        await admin.more(20)
    assert (data.wrong, admin.refused) == ([], [])


async def test_one_that_was_killed(
    backend: Backend, serve: Serve, succeed: Succeed, redis_server: RedisServer
) -> None:
    """The files and last workers of a killed gateway do not block its successor."""
    gateway = await serve(backend.url, *TWO, store=redis_server.url)
    gateway.signal(signal.SIGKILL)
    successor = succeed(gateway)
    await says(successor, "listening on")
    assert (await successor.fetch("/short")).status == 200


async def test_a_stream_of_the_one_before(
    serve: Serve, succeed: Succeed, redis_server: RedisServer
) -> None:
    """It goes on until its end or the drain's, and the new one serves all other requests."""
    async with Held() as upstream:
        gateway = await serve(upstream.url, *TWO, store=redis_server.url, gateway=LONG_DRAIN)
        wire, head = await stream(gateway)
        successor = succeed(gateway, *TWO)
        await says(successor, "took over from")

        async def is_alone() -> bool:
            """The one before may accept a little longer: its workers stop at about this time."""
            answers = await asyncio.gather(*(successor.fetch("/health") for _ in range(20)))
            assert {answer.status for answer in answers} == {200}
            return worker_of(head) not in {worker_of(answer) for answer in answers}

        await eventually(is_alone, "the new one alone accepts")
        assert gateway.process.poll() is None
        status, answer = await readiness(successor)
        assert (status, answer["checks"]["workers"]) == (200, "2 of 2")
        upstream.release.set()
        assert await wire.read_body(head) == b"second"
        await wire.close()
        assert await gateway.ended() == 0


async def test_sigterm_to_the_one_before(
    serve: Serve, succeed: Succeed, redis_server: RedisServer
) -> None:
    """SIGTERM during a take-over: it still waits for its streams, and the other serves."""
    async with Held() as upstream:
        gateway = await serve(upstream.url, *TWO, store=redis_server.url, gateway=LONG_DRAIN)
        wire, head = await stream(gateway)
        successor = succeed(gateway, *TWO)
        await says(gateway, "has received the listening sockets")
        gateway.signal(signal.SIGTERM)
        await says(successor, "took over from")
        assert (await successor.fetch("/health")).status == 200
        upstream.release.set()
        assert await wire.read_body(head) == b"second"
        await wire.close()
        assert await gateway.ended() == 0


@asynccontextmanager
async def draining(
    serve: Serve, store: str, *arguments: str
) -> AsyncIterator[tuple[ServedGateway, Callable[[], Awaitable[None]]]]:
    """A gateway that ends after SIGTERM when its stream ends; and a function that ends it."""
    async with Held() as upstream:
        gateway = await serve(upstream.url, *arguments, store=store, gateway=LONG_DRAIN)
        wire, head = await stream(gateway)

        async def release() -> None:
            upstream.release.set()
            assert await wire.read_body(head) == b"second"
            await wire.close()
            assert await gateway.ended() == 0

        await drains(gateway)
        yield gateway, release


async def test_one_that_drains(serve: Serve, succeed: Succeed, redis_server: RedisServer) -> None:
    """SIGTERM before another starts: that one serves at once, at both ports, and stays alone."""
    async with draining(serve, redis_server.url, *TWO) as (gateway, release):
        successor = succeed(gateway, *TWO)
        await says(successor, "took over from")
        assert gateway.process.poll() is None
        for _ in range(10):  # only one of the two accepts at either port
            assert (await successor.fetch("/health")).status == 200
            status, answer = await readiness(successor)
            assert (status, answer["checks"].get("workers")) == (200, "2 of 2")
        await release()
        assert (await readiness(successor))[0] == 200
        third = succeed(successor, *TWO)
        await took_over(third, successor)
        assert (await third.fetch("/health")).status == 200


async def test_one_whose_drain_ends_meanwhile(
    serve: Serve, succeed: Succeed, redis_server: RedisServer
) -> None:
    """It does not wait for a successor that starts slowly, and that one serves nevertheless."""
    async with draining(serve, redis_server.url) as (gateway, release):
        successor = succeed(gateway)
        await says(gateway, "has received the listening sockets")
        successor.signal(signal.SIGSTOP)
        await release()
        successor.signal(signal.SIGCONT)
        await says(successor, "took over from")
        assert (await readiness(successor))[0] == 200
        assert "Traceback" not in gateway.output() + successor.output()


#: Runs a gateway that waits one second for a successor to serve, instead of two minutes.
HASTY = (
    "import runpy, sys; from gateway.runtime import take_over_server\n"
    "take_over_server.SERVING_S = 1.0; sys.argv = sys.argv[3:]\n"
    "runpy.run_module('gateway', run_name='__main__', alter_sys=False)"
)


async def test_a_successor_that_hangs(
    tmp_path: Path, backend: Backend, succeed: Succeed, redis_server: RedisServer
) -> None:
    """The old one waits a limited time; if the successor wakes up later, it ends."""
    policies = write_policies(tmp_path / "policies", backend.url, plans=PLANS)
    launcher = (sys.executable, "-c", HASTY)
    async with ServedGateway(
        tmp_path / "hasty", policies, redis_server.url, launcher=launcher
    ) as gateway:
        hanging = succeed(gateway)
        await says(gateway, "has received the listening sockets")
        hanging.signal(signal.SIGSTOP)
        await eventually(lambda: "did not serve within 1 s" in gateway.output(), "the wait ends")
        assert (await gateway.fetch("/health")).status == 200
        hanging.signal(signal.SIGCONT)
        assert await hanging.ended() == 1
        assert "refuses: this process did not serve within 1 s" in hanging.output()
        assert (await readiness(gateway))[0] == 200
        assert (await gateway.fetch("/health")).status == 200


async def test_two_at_once(
    backend: Backend, serve: Serve, succeed: Succeed, redis_server: RedisServer
) -> None:
    """Of two that want to take over one does; the other logs why not, and which one did."""
    gateway = await serve(backend.url, *TWO, store=redis_server.url)
    async with clients(gateway, 2) as (data, admin):
        both = [succeed(gateway, *TWO), succeed(gateway, *TWO)]
        await eventually(lambda: any(one.process.poll() for one in both), "one ends", READY_S)
        (ended,) = (one for one in both if one.process.poll())
        (serving,) = (one for one in both if one is not ended)
        assert f"another process is taking over (pid {serving.process.pid})" in ended.output()
        await took_over(serving, gateway)
        await data.more()
    assert (data.wrong, admin.wrong) == ([], [])


async def test_a_second_one_without_take_over(
    backend: Backend, serve: Serve, succeed: Succeed, redis_server: RedisServer
) -> None:
    """A gateway on a port in use says what to do."""
    gateway = await serve(backend.url, store=redis_server.url)
    address = ("--listen", f"127.0.0.1:{gateway.port}", "--store", redis_server.url)
    words = ("serve", "--policies", str(gateway.policies), *address, "--data")
    refused = await asyncio.to_thread(run_command, *words, str(gateway.data))
    assert refused.returncode == 1
    assert f"in use by a running gateway (pid {gateway.process.pid})" in refused.stderr
    refused = await asyncio.to_thread(run_command, *words, str(gateway.data / "other"))
    assert refused.returncode == 1
    assert "use its --listen and --data" in refused.stderr


async def test_a_private_store(tmp_path: Path, backend: Backend) -> None:
    """The private Redis passes from one to the next with its data; the last one ends it."""
    policies = write_policies(tmp_path / "policies", backend.url, plans=PLANS)
    data = tmp_path / "data"
    words = ("serve", "--policies", str(policies), "--data", str(data))
    ports = ("--listen", f"127.0.0.1:{free_port()}", "--admin", f"127.0.0.1:{free_port()}")
    async with AsyncExitStack() as stack:
        before: Process | None = None
        for number in range(3):
            process = Process(tmp_path / str(number), *words, *ports, "--take-over")
            stack.push_async_callback(process.stop)
            await eventually(lambda: "listening on" in process.output(), "it serves", READY_S)  # noqa: B023
            if before is None:
                made = ("keys", "create", "--name", "kept", "--plan", "any")
                created = await run_aside(*made, *words[1:], "--json")
                assert created.returncode == 0, created.stderr
            else:
                assert await before.ended() == 0
            before = process
        listed = await run_aside("keys", "list", *words[3:], "--json")
        assert [key["name"] for key in json.loads(listed.stdout)] == ["kept"]
        assert await process.stop() == 0
    assert not EmbeddedRedis(data).is_running()


def serving(gateway: ServedGateway) -> int | None:
    """The process that can be taken over there now."""
    return running_pid(take_over_path(gateway.data, "127.0.0.1", gateway.port))


def end_successor(gateway: ServedGateway) -> None:
    """Kill the successor that this gateway has started, if it serves."""
    pid = serving(gateway)
    if pid is not None and pid != gateway.process.pid:
        os.kill(pid, signal.SIGKILL)


async def test_sigusr2(backend: Backend, serve: Serve, redis_server: RedisServer) -> None:
    """It starts a successor with the same arguments; one that cannot start changes nothing."""
    async with AsyncExitStack() as stack:
        gateway = await serve(backend.url, *TWO, store=redis_server.url)
        stack.callback(end_successor, gateway)
        await sigusr2_twice(gateway)


async def sigusr2_twice(gateway: ServedGateway) -> None:
    file = gateway.policies / "plans.yaml"
    good = file.read_text()
    async with clients(gateway, 2) as (data, admin):
        file.write_text("plans: none")
        gateway.signal(signal.SIGUSR2)
        await says(gateway, "policies have faults")
        file.write_text(good)
        await data.more()
        gateway.signal(signal.SIGUSR2)
        await says(gateway, "took over from")
        assert await gateway.ended() == 0
        await data.more()
    assert (data.wrong, admin.wrong) == ([], [])
    pid = serving(gateway)
    assert pid is not None
    assert f"taken over by pid {pid}" in gateway.output()
    os.kill(pid, signal.SIGTERM)
    await eventually(lambda: not lives(pid), "it ends like any other")
