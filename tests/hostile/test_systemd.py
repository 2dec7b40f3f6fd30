"""A gateway under systemd, which the test plays: sockets that survive it, and its notifications."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.end_to_end.test_workers import readiness, worker_of
from tests.hostile.backend import Backend
from tests.hostile.conftest import LONG, PLANS, ROUTES
from tests.hostile.test_take_over import clients, end_successor
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, ServedGateway
from tests.kit.policies import write_policies
from tests.kit.redis_server import RedisServer
from tests.kit.wire import Wire, build_request

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: Becomes the gateway, in the same process, with the descriptors at systemd's numbers.
LAUNCHER = """
import fcntl, os, sys
count = int(sys.argv[1])
given = [fcntl.fcntl(int(one), fcntl.F_DUPFD_CLOEXEC, 100) for one in sys.argv[2 : 2 + count]]
for descriptor, one in enumerate(given, 3):
    os.dup2(one, descriptor)
    os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count)}
os.execv(sys.argv[2 + count], sys.argv[2 + count :])
"""


class Systemd:
    """Two listening sockets, one for notifications, and units that it starts."""

    def __init__(self, folder: Path, upstream: str, store: str) -> None:
        texts = {"gateway": LONG, "plans": PLANS, "routes": ROUTES}
        self._folder, self._store = folder, store
        self.policies = write_policies(folder / "policies", upstream, **texts)
        self.listen, self.admin = socket.socket(), socket.socket()
        for one in (self.listen, self.admin):
            one.bind(("127.0.0.1", 0))
            one.listen(4096)
        self.ports = tuple(one.getsockname()[1] for one in (self.listen, self.admin))
        self.hears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.hears.setblocking(False)
        self._address = f"@gateway-test-{os.getpid()}-{id(self)}"
        self.hears.bind(self._address.replace("@", "\0"))
        self.count = 0

    def close(self) -> None:
        for one in (self.listen, self.admin, self.hears):
            one.close()

    def start(self, *arguments: str, activated: bool = True) -> ServedGateway:
        """Run the unit. activated: it gets the sockets."""
        given = [one.fileno() for one in (self.listen, self.admin)] if activated else []
        self.count += 1
        words = (str(len(given)), *map(str, given))
        return ServedGateway(
            self._folder / f"run-{self.count}",
            self.policies,
            self._store,
            *arguments,
            ports=(self.ports[0], self.ports[1]),
            data=self._folder / "data",
            environment={"NOTIFY_SOCKET": self._address, "LISTEN_FDNAMES": "listen:admin"},
            launcher=(sys.executable, "-c", LAUNCHER, *words),
            descriptors=given,
        )

    async def hear(self) -> str:
        """The next notification."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(READY_S):
            return (await loop.sock_recv(self.hears, 4096)).decode()


@pytest_asyncio.fixture(loop_scope="session")
async def systemd(
    tmp_path: Path, backend: Backend, redis_server: RedisServer
) -> AsyncIterator[Systemd]:
    systemd = Systemd(tmp_path, backend.url, redis_server.url)
    yield systemd
    systemd.close()


async def test_sockets_outlive_a_restart(systemd: Systemd) -> None:
    """A client that connects between two runs of the gateway waits, and the next one answers it."""
    gateway = systemd.start("--workers", "2")
    async with gateway:
        workers: set[str] = set()

        async def both_accept() -> bool:
            answers = await asyncio.gather(*(gateway.fetch("/short") for _ in range(40)))
            workers.update(map(worker_of, answers))
            return len(workers) == 2

        await eventually(both_accept, "both accept from the one socket")
    async with AsyncExitStack() as stack:
        between = [
            await stack.enter_async_context(await Wire.connect(gateway.port)) for _ in range(20)
        ]
        for wire in between:
            await wire.send(build_request("GET", "/short"))
        async with systemd.start("--workers", "3") as after:
            assert {(await wire.read_response()).status for wire in between} == {200}
            assert (await readiness(after))[1]["checks"]["workers"] == "3 of 3"


async def test_notifications(systemd: Systemd) -> None:
    """READY when it serves, RELOADING and READY around a SIGHUP, STOPPING when it stops."""
    async with systemd.start() as gateway:
        assert await systemd.hear() == "READY=1"
        gateway.signal(signal.SIGHUP)
        assert (await systemd.hear()).startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert await systemd.hear() == "READY=1"
        gateway.signal(signal.SIGTERM)
        assert await systemd.hear() == "STOPPING=1"


@pytest.mark.parametrize("activated", [False, True])
async def test_an_upgrade_of_a_unit(systemd: Systemd, activated: bool) -> None:
    """SIGUSR2: it reports the unit's new main process, and no end."""
    if not activated:
        systemd.listen.close()
        systemd.admin.close()
    gateway = systemd.start("--workers", "2", activated=activated)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(gateway.stop)
        stack.callback(end_successor, gateway)
        await gateway.ready()
        assert await systemd.hear() == "READY=1"
        async with clients(gateway) as (data, admin):
            gateway.signal(signal.SIGUSR2)
            words = {await systemd.hear(), await systemd.hear()}
            assert await gateway.ended() == 0
        (main,) = words - {"READY=1"}
        successor = int(main.removeprefix("MAINPID="))
        assert f"taken over by pid {successor}" in gateway.output()
        assert (data.wrong, admin.wrong) == ([], [])
        assert (await gateway.fetch("/short")).status == 200
        os.kill(successor, signal.SIGTERM)
        assert await systemd.hear() == "STOPPING=1"
