"""Webhooks while the store fails in each way: what was answered 202 is delivered afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from gateway import tasks
from loadtests.outage.cases import CASES, Case
from loadtests.outage.site import Site
from tests.kit.certificates import Certificate
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.hooks import (
    ENVIRONMENT,
    LEASE_ENDS_S,
    Provider,
    Receiver,
    add_account,
    write_hook_policies,
)
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.store_proxy import StoreProxy
from tests.kit.upstream import ScriptedUpstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: In flight when the store fails: `webhooks.per_watch`.
_EACH = 8
#: Couriers wait for a slow store.
_SLOW = "1 s latency"
#: It puts back what it has read before: nothing may change meanwhile.
_QUIET = "FLUSHALL"

SETUPS = sorted({(case.proxied, case.mode) for case in CASES.values()})


@asynccontextmanager
async def open_store_site(
    folder: Path, names: Iterable[str], proxied: bool, mode: str, receiver: Receiver, ca: Path
) -> AsyncIterator[tuple[Site, dict[str, Provider]]]:
    """A gateway whose store can fail, and a provider for each case."""
    async with AsyncExitStack() as stack:
        server = RedisServer(*DURABLE)
        stack.callback(server.stop)
        server.start()
        proxy = await stack.enter_async_context(StoreProxy(server.port))
        providers = {}
        for number, name in enumerate(names):
            path = f"/{number}"
            account = await add_account(server.url, {path: receiver.at(path)}, number)
            providers[name] = Provider(account.integration)
        more = f"on_store_failure: {mode}\nstore: {{timeout: 50ms}}\n"
        policies = write_hook_policies(folder / "policies", ca, gateway=more)
        store = proxy.url if proxied else server.url
        gateway = ServedGateway(
            folder / "gateway", policies, store, "--couriers", "1", environment=ENVIRONMENT
        )
        upstream = ScriptedUpstream()
        yield Site(server, proxy, await stack.enter_async_context(gateway), upstream), providers


@pytest.mark.parametrize(("proxied", "mode"), SETUPS)
async def test_a_store_that_fails(
    tmp_path: Path, certificate: Certificate, proxied: bool, mode: str
) -> None:
    """Each case in turn, with a provider and a watch of its own; all deliveries at the end."""
    names = [name for name, case in CASES.items() if (case.proxied, case.mode) == (proxied, mode)]
    assert names
    async with Receiver(certificate) as receiver:
        opened = open_store_site(tmp_path, names, proxied, mode, receiver, certificate.ca)
        async with opened as (site, providers):
            had: dict[str, set[str]] = {}
            for number, name in enumerate(names):
                one = _Run(site, receiver, providers[name], f"/{number}")
                had[name] = await one.fail(name, CASES[name])
            for number, name in enumerate(names):
                await _all_arrive(receiver, providers[name], f"/{number}", name)
            for number, name in enumerate(names):
                times = receiver.times
                twice = {sent[0] for sent in times if sent[1] == f"/{number}" and times[sent] > 1}
                print(f"{name}: twice {len(twice)} of {len(had[name])} in flight")
                assert twice <= had[name], name


class _Run:
    """One case."""

    def __init__(self, site: Site, receiver: Receiver, provider: Provider, path: str) -> None:
        self._site = site
        self._receiver = receiver
        self._provider = provider
        self._path = path

    async def fail(self, name: str, case: Case) -> set[str]:
        """Webhooks come all the time, while deliveries are in flight. Returns which those are."""
        site, receiver, provider = self._site, self._receiver, self._provider
        if name != _QUIET:
            receiver.hold()
        await provider.send_accepted(site.gateway, 2 * _EACH)
        if name == _QUIET:
            await eventually(self._is_quiet, "nothing waits or is in flight", LEASE_ENDS_S)
        else:
            await eventually(
                lambda: len(self._events()) >= _EACH, "some are in flight", LEASE_ENDS_S
            )
        had = set(self._events())
        feeding = tasks.spawn(self._feed(), "webhooks") if name != _QUIET else None
        await case.harm(site)
        if case.away and case.mode != "closed" and name != _SLOW:
            await eventually(lambda: provider.spooled >= 3, f"{name}: some wait in a file", 60.0)
        receiver.release()
        await case.heal(site)
        healed_s = time.monotonic()
        await tasks.end(feeding)
        await self._resumes(name)
        print(
            f"{name}: {len(provider.accepted)} accepted, {provider.spooled} in a file, "
            f"answers {dict(provider.answers)}, resumed {time.monotonic() - healed_s:.1f} s later"
        )
        return had if name != _QUIET else set()

    async def _is_quiet(self) -> bool:
        """Is there no lease and no queue? An empty set has no name."""
        with self._site.server.client() as client:
            return not client.keys("gw:{hooks:*}:leases") and not client.keys(
                "gw:{hooks:*}:queue:*"
            )

    def _events(self) -> list[str]:
        return [event for (event, path), _ in self._receiver.got if path == self._path]

    async def _feed(self) -> None:
        while True:
            await self._provider.send(self._site.gateway)
            await asyncio.sleep(0.01)

    async def _resumes(self, name: str) -> None:
        """A webhook is in the store at once again, and is delivered."""
        provider = self._provider

        async def is_kept() -> bool:
            before = provider.spooled
            await provider.send_accepted(self._site.gateway, 1)
            return provider.spooled == before

        await eventually(is_kept, f"{name}: the store has webhooks again", 60.0)
        await eventually(
            lambda: provider.accepted[-1] in self._events(), f"{name}: one arrives", LEASE_ENDS_S
        )


async def _all_arrive(receiver: Receiver, provider: Provider, path: str, name: str) -> None:
    def is_all() -> bool:
        return not receiver.lacks(provider.accepted, [path])

    try:
        await eventually(is_all, f"{name}: all arrive", LEASE_ENDS_S)
    finally:
        lost = receiver.lacks(provider.accepted, [path])
        print(f"{name}: lost {len(lost)} of {len(provider.accepted)}")
