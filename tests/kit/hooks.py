"""Webhooks through a real gateway: a provider that sends them, and a receiver that keeps count."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.signatures import sign
from gateway.domain.webhooks.watches import Watch
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.queue import Delivery, DeliveryQueue, shard_of
from gateway.stores.webhooks.resources import Resources
from gateway.webhooks.sealing import Sealer
from tests.kit import proc
from tests.kit.certificates import Certificate
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.policies import write_policies
from tests.kit.upstream import Exchange, Script, SecureUpstream, reply
from tests.kit.wire import Response, fetch

MASTER: Final = "a-webhook-key-for-tests-of-32-characters"
ENVIRONMENT: Final = {"GATEWAY_WEBHOOK_KEY": MASTER}
#: For a delivery whose courier or claim was lost: its lease of 15 s ends before it is sent again.
LEASE_ENDS_S: Final = 90.0

_PLANS: Final = "plans:\n  any: {rate: 1000000/minute}\n"
ROUTES: Final = """
routes:
  hooks: {match: POST /hooks/*, upstream: webhooks, auth: none}
  api: {match: "* /api/**", upstream: api}
"""
_SECRET: Final = "a-secret-of-the-provider"
_captured = re.compile(r"Captured as (evt_[0-9a-f]+)").match
_ok: Final = reply(200)

#: An event, and the path of the endpoint that it was sent to.
Sent = tuple[str, str]


class Receiver(SecureUpstream):
    """The endpoint of watches, one for each path. It answers 200 unless a script is given.

    got:     what arrived, in order, and when
    answers: scripts by path; the body was read
    """

    def __init__(self, certificate: Certificate) -> None:
        super().__init__(self._answer, certificate.certificate, certificate.key)
        self.got: list[tuple[Sent, float]] = []
        self.answers: dict[str, Script] = {}
        self._gate = asyncio.Event()
        self._holding = False

    def hold(self) -> None:
        """Answer nothing, until `release`."""
        self._holding, self._gate = True, asyncio.Event()

    def release(self) -> None:
        self._holding = False
        self._gate.set()

    def at(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}{path}"

    @property
    def times(self) -> Counter[Sent]:
        """How often each delivery has arrived."""
        return Counter(sent for sent, _ in self.got)

    def lacks(self, events: Iterable[str], paths: Collection[str]) -> set[Sent]:
        """What has not arrived of these events at these endpoints."""
        return {(event, path) for event in events for path in paths} - self.times.keys()

    async def _answer(self, exchange: Exchange) -> None:
        await exchange.read_body()
        path = exchange.request.target
        self.got.append(((exchange.request.maybe("webhook-id") or "", path), time.monotonic()))
        if self._holding:
            await self._gate.wait()
        await self.answers.get(path, _ok)(exchange)


class Provider:
    """Sends webhooks, each one once, as a provider that never repeats them.

    accepted: the events that were answered 202; answers: of all, 0: there was none
    spooled:  how many of them the gateway keeps in a file
    named:    in the ids of its webhooks
    """

    def __init__(self, integration: Integration, named: str = "webhook") -> None:
        self._integration = integration
        self._named = named
        self._count = 0
        self.accepted: list[str] = []
        self.answers: Counter[int] = Counter()
        self.spooled = 0

    async def send(self, gateway: ServedGateway) -> int:
        """The status of the answer."""
        self._count += 1
        named = f"{self._named}-{self._count}"
        body = json.dumps({"id": named, "type": "build.finished", "data": {"n": self._count}})
        signed = sign(body.encode(), [_SECRET], event_id=named, now_s=int(time.time()))
        target = f"/hooks/{self._integration.capture}"
        try:
            answer = await fetch(
                gateway.port, target, method="POST", headers=signed.items(), body=body.encode()
            )
        except (OSError, AssertionError):  # the gateway ended, or broke the connection
            self.answers[0] += 1
            return 0
        self._count_answer(answer)
        return answer.status

    def _count_answer(self, answer: Response) -> None:
        self.answers[answer.status] += 1
        if answer.status == 202:
            found = _captured(answer.json()["message"])
            assert found is not None, answer.body
            self.accepted.append(found[1])
            self.spooled += answer.json()["message"].endswith("delivered later.")

    async def send_accepted(self, gateway: ServedGateway, count: int) -> list[str]:
        """Send until so many more are accepted; their ids."""
        before = len(self.accepted)

        async def is_enough() -> bool:
            if len(self.accepted) - before < count:
                await self.send(gateway)
            return len(self.accepted) - before >= count

        await eventually(is_enough, f"{count} webhooks are accepted; {self.answers=}", 60.0)
        return self.accepted[before:]


@dataclass(frozen=True, slots=True)
class Account:
    """An integration in a store, and its watches by the path of their endpoint."""

    integration: Integration
    watches: dict[str, Watch]

    def secret(self, path: str) -> str:
        """What the receiver was told when the watch was made."""
        return self.watches[path].secrets(MASTER.encode(), 0)[0]


async def add_account(store: str, urls: dict[str, str], number: int = 1) -> Account:
    """An integration of the kind `generic`, with a watch for each endpoint: path -> URL."""
    name, capture = f"int_{number:024x}", f"{number:032x}"
    sealed = Sealer(MASTER.encode()).seal(name, [_SECRET])
    integration = Integration(name, "acme", "generic", "Builds", 1, capture, sealed)
    watches = {}
    async with redis_client(parse_url(store)) as client:
        resources = Resources(executing(client))
        assert await resources.add_integration(integration)
        for index, (path, url) in enumerate(urls.items()):
            watch = Watch(f"wat_{number:012x}{index:012x}", name, url, ("build.*",), 1)
            await resources.add_watch(watch)
            watches[path] = watch
    return Account(integration, watches)


def write_hook_policies(folder: Path, ca: Path, more: str = "", **files: str) -> Path:
    """Policies whose watches may have endpoints here. more: of the section `webhooks`"""
    texts = {
        "plans": _PLANS,
        "routes": ROUTES,
        "webhooks": f"webhooks: {{ca: {ca}, allow: [127.0.0.0/8]{more}}}\n",
        **files,
    }
    return write_policies(folder, "http://127.0.0.1:9", **texts)


def courier_pids(gateway: ServedGateway) -> list[int]:
    return proc.children(gateway.process.pid, "gateway.cli.courier")


def kill_couriers(gateway: ServedGateway) -> None:
    for pid in courier_pids(gateway):
        os.kill(pid, signal.SIGKILL)


async def admin(gateway: ServedGateway, target: str) -> Any:
    """What the admin API answers, of a path after /admin/v1."""
    headers = [("Host", "127.0.0.1")]
    answer = await fetch(
        gateway.admin_port, f"/admin/v1{target}", key=gateway.admin_token, headers=headers
    )
    assert answer.status == 200, answer.body
    return answer.json()


async def watch_of(gateway: ServedGateway, account: Account, path: str) -> Any:
    """The state of a watch, as an operator sees it."""
    watch = account.watches[path]
    return await admin(gateway, f"/integrations/{watch.integration}/watches/{watch.id}")


async def deliveries_of(store: str, account: Account, path: str) -> list[Delivery]:
    """The deliveries of a watch with their attempts, the newest first."""
    async with redis_client(parse_url(store)) as client:
        queue = DeliveryQueue(executing(client), shard_of(account.integration.id), lambda: 0)
        found, before_us = list[Delivery](), 0
        while True:
            page = await queue.deliveries(account.watches[path].id, 1000, before_us)
            found += page
            if not page.next_us:
                return found
            before_us = page.next_us
