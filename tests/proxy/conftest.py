"""A gateway in the test's process, with memory limits, in front of a scripted upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gateway.app import Gateway, Settings
from gateway.domain.policy import Bounds, Policy, Timeouts
from gateway.policies.load import load
from gateway.proxy import deadlines
from gateway.stores.redis.address import StoreAddress
from tests.kit.keys import make_key
from tests.kit.policies import write_policies
from tests.kit.upstream import ScriptedUpstream
from tests.kit.wire import Wire, bearer

_numbers = iter(range(10**9))


@dataclass
class Bench:
    """The parts: the gateway, its upstream, a key on the enterprise plan."""

    gateway: Gateway
    upstream: ScriptedUpstream
    key: str

    async def connect(self) -> Wire:
        return await Wire.connect(self.gateway.port)

    async def mint(self, **fields: Any) -> str:
        """Make a key with these fields of the record; return its text."""
        plain = {"account": "acme", "plan": "enterprise", "scopes": ("connectors:read",)}
        text, record = make_key(lambda below: next(_numbers) * 7919 % below, **{**plain, **fields})
        await self.gateway.keys.add(record)
        return text

    @property
    def auth(self) -> list[tuple[str, str]]:
        return bearer(self.key)


Start = Callable[..., Awaitable[Bench]]


@pytest.fixture
def no_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines are checked by the test alone, at its own times.

    A check of the gateway's in between would be at the real time, and renew what it sees used.
    """
    monkeypatch.setattr(deadlines, "TICK_S", 1e6)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a bench; keyword arguments are timeouts, bounds, further policy fields or files."""
    async with AsyncExitStack() as stack:

        async def started(
            *,
            timeouts: dict[str, float] | None = None,
            bounds: dict[str, int] | None = None,
            files: dict[str, str] | None = None,
            access_log: str = "off",
            **fields: Any,
        ) -> Bench:
            upstream = await stack.enter_async_context(ScriptedUpstream())
            folder = write_policies(tmp_path / "policies", upstream.url, **(files or {}))
            policy: Policy = replace(
                load(folder),
                timeouts=replace(Timeouts(drain_s=5.0), **(timeouts or {})),
                bounds=replace(Bounds(), **(bounds or {})),
                **fields,
            )
            settings = Settings(
                folder,
                listen=("127.0.0.1", 0),
                admin=("127.0.0.1", 0),
                store=StoreAddress("memory"),
                access_log=access_log,
            )
            gateway = Gateway(settings, policy=policy)
            await gateway.start()
            stack.push_async_callback(gateway.stop)
            bench = Bench(gateway, upstream, "")
            bench.key = await bench.mint()
            return bench

        yield started
