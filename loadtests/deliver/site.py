"""A Redis, a courier and endpoints, as processes; integrations and events straight in the store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.domain.ports import StoreDown
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.domain.webhooks.watches import Watch
from gateway.stores.redis.address import parse_url
from gateway.stores.webhooks.link import open_link
from gateway.stores.webhooks.opening import WebhookStores, open_webhooks
from loadtests.compare.processes import Program, tree, usage
from loadtests.deliver.naive import QUEUE
from tests.kit.certificates import Certificate, make_certificate
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process
from tests.kit.policies import GATEWAY, write_policies
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.wire import fetch

TYPE: Final = "ticket.created"
BUDGET: Final = 1024**3
#: Of an event without its id and time: typical for a ticket.
_DATA: Final = {"id": "T-1", "title": "x" * 160, "status": "open", "url": "https://x.example/T-1"}
SETTINGS: Final = """
webhooks: {{allow: [127.0.0.0/8], ca: {ca}, slots: {slots}, budget: 1GiB}}
"""
ENVIRONMENT: Final = {"GATEWAY_WEBHOOK_KEY": "0123456789abcdef" * 2}


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the endpoints that answer. ages_ms: of the deliveries that were asked for, by arrival"""

    count: int
    ages_ms: Sequence[float]
    duplicates: int
    hung: int


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU time so far, in seconds."""

    at: float
    worker_s: float
    redis_s: float


@dataclass(slots=True)
class Site:
    """worker: the process that delivers; it may have children"""

    server: RedisServer
    stores: WebhookStores
    certificate: Certificate
    port: int
    _figures_port: int
    worker: int = 0
    _events: int = 0

    # -- what there is -----------------------------------------------------------------------------

    async def endpoints(self, stem: str, count: int, each: int = 1, delay: str = "1") -> list[str]:
        """Make integrations with `each` endpoints; their names. delay: as a path of `receiver`"""
        return [
            await self.integration(
                f"{stem}{number}", [self.url(delay, str(n)) for n in range(each)]
            )
            for number in range(count)
        ]

    async def integration(self, stem: str, urls: Iterable[str]) -> str:
        """An integration with a watch for each URL."""
        name, now_us = f"int_{stem}", time.time_ns() // 1_000
        await self.stores.resources.add_integration(
            Integration(name, "bench", "generic", stem, now_us, "", "", False)
        )
        for number, url in enumerate(urls):
            watch = Watch(f"wat_{stem}_{number}", name, f"{url}/{stem}", (TYPE,), now_us)
            assert await self.stores.resources.add_watch(watch)
        return name

    def url(self, delay: str, path: str) -> str:
        return f"https://127.0.0.1:{self.port}/{delay}/{path}"

    # -- events ------------------------------------------------------------------------------------

    async def accept(self, integrations: Sequence[str]) -> None:
        """One event for each of these, at once."""
        for start in range(0, len(integrations), 500):
            await asyncio.gather(*map(self._accept, integrations[start : start + 500]))

    async def _accept(self, integration: str) -> None:
        event, body = self.event()
        await self.stores.queue_of(integration).accept(integration, event, TYPE, body)

    def event(self) -> tuple[str, bytes]:
        """The id of a new event, and its body with the time."""
        self._events += 1
        event = f"evt_{self._events:032x}"
        return event, json.dumps({"id": event, "at": time.time(), "data": _DATA}).encode()

    async def steadily(self, integrations: Sequence[str], rate: float) -> None:
        """An event for each of these in turn, so many a second."""
        began = time.monotonic()
        for number, integration in enumerate(integrations):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            await self._accept(integration)

    def queue_naively(self, urls: Sequence[str], count: int) -> None:
        with self.server.client() as client, client.pipeline(transaction=False) as pipe:
            for number in range(count):
                _, body = self.event()
                pipe.rpush(QUEUE, json.dumps([urls[number % len(urls)], body.decode()]))
            pipe.execute()

    # -- while it runs -----------------------------------------------------------------------------

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the worker, so that work can be queued."""
        signal_all(self.worker, signal.SIGSTOP)
        yield
        signal_all(self.worker, signal.SIGCONT)

    async def figures(self, first: int = sys.maxsize) -> Figures:
        """first: how many ages to leave out"""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._figures_port)
        writer.write(b"%d\n" % first)
        found = json.loads(await reader.read())
        writer.close()
        return Figures(**found)

    async def arrived(self, count: int, within_s: float = 240.0) -> Figures:
        """Wait until so many deliveries have arrived at endpoints that answer."""
        give_up = time.monotonic() + within_s
        while (found := await self.figures()).count < count:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{found.count} of {count} deliveries arrived")
            await asyncio.sleep(0.05)
        return found

    def spent(self) -> Spent:
        with self.server.client() as client:
            pid = int(client.info("server")["process_id"])
        return Spent(time.monotonic(), usage(self.worker).cpu_s, usage(pid).cpu_s)


@asynccontextmanager
async def open_site(folder: Path) -> AsyncIterator[Site]:
    """Redis and endpoints; `couriers` or `naive` delivers."""
    async with AsyncExitStack() as stack:
        server = RedisServer()
        stack.callback(server.stop)
        server.start()
        certificate = make_certificate(folder, ["127.0.0.1"])
        receiver = _start_receiver(certificate)
        stack.callback(receiver.wait)
        stack.callback(receiver.terminate)
        assert receiver.stdout is not None
        stack.callback(receiver.stdout.close)
        ports = (await asyncio.to_thread(receiver.stdout.readline)).split()
        execute = await stack.enter_async_context(open_link(parse_url(server.url)))

        async def is_connected() -> bool:
            with suppress(StoreDown):
                return bool(await execute("PING"))
            return False

        await eventually(is_connected, "the store answers")
        stores = open_webhooks(execute, lambda: WebhookSettings(budget_bytes=BUDGET))
        yield Site(server, stores, certificate, int(ports[0]), int(ports[1]))


@asynccontextmanager
async def courier(
    site: Site, folder: Path, slots: int = 256, per_watch: int = 8
) -> AsyncIterator[None]:
    """One courier, by the command that operators use."""
    settings = SETTINGS.format(ca=site.certificate.ca, slots=slots)
    policies = write_policies(folder / "policies", "http://127.0.0.1:9", gateway=GATEWAY + settings)
    admin_port = free_port()
    process = Process(
        folder / "courier",
        *("deliver", "--policies", str(policies), "--store", site.server.url),
        *("--listen", f"127.0.0.1:{free_port()}", "--admin", f"127.0.0.1:{admin_port}"),
        *("--data", str(folder / "data"), "--log-level", "warning", "--couriers", "1"),
        environment=ENVIRONMENT,
    )

    async def is_ready() -> bool:
        assert process.process.poll() is None, f"the courier ended: {process.output()}"
        try:
            return (await fetch(admin_port, "/readyz")).status == 200
        except OSError:
            return False

    try:
        await eventually(is_ready, "the courier is ready", READY_S)
        site.worker = process.process.pid
        yield
    finally:
        # What hangs would keep its drain waiting.
        signal_all(process.process.pid, signal.SIGKILL)
        await process.stop()


@asynccontextmanager
async def naive(site: Site, folder: Path) -> AsyncIterator[None]:
    """The naive worker."""
    command = (sys.executable, "-m", "loadtests.deliver.naive", str(site.server.port))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    program = Program(folder, *command, str(site.certificate.ca), environment=environment)
    site.worker = program.pid
    try:
        yield
    finally:
        program.stop()


def _start_receiver(certificate: Certificate) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "loadtests.deliver.receiver", *map(str, certificate[:2])],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def signal_all(pid: int, number: signal.Signals) -> None:
    """To a process that we started, and its descendants."""
    for each in tree(pid):
        with suppress(ProcessLookupError):
            os.kill(each, number)
