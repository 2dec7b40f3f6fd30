"""A gateway in front of the checking upstream: over real sockets, or without a socket.

In memory everything happens in turns of the event loop, without waiting for I/O, so that a message
can be sent byte by byte, or split at any place, thousands of times a second.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gateway.app import Gateway, Settings
from gateway.domain.keys import KeyRecord
from gateway.domain.limits import Check, Decision, Limit
from gateway.domain.policy import Bounds, Policy, Timeouts
from gateway.domain.ports import Limiter
from gateway.domain.upstreams import Ejection
from gateway.policies.load import load
from gateway.proxy import deadlines
from gateway.proxy.client_connection import ClientConnection
from gateway.stores.redis.address import StoreAddress
from tests.kit import policies
from tests.kit.keys import make_key
from tests.kit.transport import MemoryTransport
from tests.wire.upstream import JudgingUpstream, connect_in_memory

#: Each route has a limit, so that each forwarded request was counted; no test reaches one.
ROUTES = re.sub(r"rate: \d+/minute", "rate: 600000000/minute", policies.ROUTES).replace(
    "auth: none}", "auth: none, limits: [{name: open, rate: 600000000/minute, per: ip}]}"
)
PLANS = "plans:\n  vast: {rate: 600000000/minute}\n"
GATEWAY = "environment: production\nfailed_auth: {rate: 600000000/minute}\n"
#: Turns without a change after which all work is done: a connection takes about six.
_QUIET_TURNS = 12


def policy_for(folder: Path, upstream: str, **changes: Any) -> Policy:
    """The tests' routes, with limits and deadlines that no case reaches."""
    policy = load(
        policies.write_policies(folder, upstream, plans=PLANS, routes=ROUTES, gateway=GATEWAY)
    )
    unlimited = Timeouts(header_s=600, body_s=600, idle_s=600, response_s=600, write_s=600)
    upstreams = {
        name: replace(one, ejection=Ejection(failures=10**9))
        for name, one in policy.upstreams.items()
    }
    return replace(policy, timeouts=unlimited, bounds=Bounds(), upstreams=upstreams, **changes)


def mint(seed: int) -> tuple[bytes, KeyRecord]:
    """The same key each time, so that a fuzzer's findings can be replayed."""
    numbers = iter(range(seed, 10**9))
    text, record = make_key(lambda below: next(numbers) * 7919 % below, account="acme", plan="vast")
    return text.encode(), record


KEYS = {mark: mint(seed) for mark, seed in ((b"{key}", 1), (b"{other}", 500))}
KEY_TEXTS = {mark: text for mark, (text, _) in KEYS.items()}


class CountingLimiter:
    """Passes on to a limiter, and counts admitted checks; failed authentications do not count."""

    def __init__(self, limiter: Limiter, failed_auth: Limit) -> None:
        self._limiter = limiter
        self._failed_auth = failed_auth
        self.admitted = 0

    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        def count(decision: Decision | None) -> None:
            counts = check.cost and check.limits[0] is not self._failed_auth
            self.admitted += bool(counts and decision is not None and decision.allowed)
            done(decision)

        self._limiter.decide(check, count)


@dataclass(slots=True)
class Outcome:
    """The bytes written to a connection, and whether it was closed."""

    written: bytes
    ended: bool
    aborted: bool


@asynccontextmanager
async def started(policy: Policy, folder: Path) -> AsyncIterator[Gateway]:
    """A gateway on a free port that has the keys of `KEYS`."""
    settings = Settings(folder, listen=("127.0.0.1", 0), admin=None, store=StoreAddress("memory"))
    gateway = Gateway(settings, policy=policy)
    await gateway.start()
    try:
        for _, record in KEYS.values():
            await gateway.keys.add(record)
        yield gateway
    finally:
        await gateway.stop()


class MemoryBench:
    """A gateway whose clients and upstream are in memory. Owns its event loop."""

    def __init__(self, folder: Path) -> None:
        self.upstream = JudgingUpstream()
        self.complaints: list[str] = []
        self._runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        self._loop = self._runner.get_loop()
        self._loop.set_exception_handler(self._complain)
        self._folder = folder
        policy = policy_for(folder, "http://127.0.0.1:9")
        self._started = started(policy, folder)
        self.gateway = self._runner.run(self._start())
        self.limiter = CountingLimiter(self.gateway._context.gate.limiter, policy.failed_auth)
        self.gateway._context.gate.limiter = self.limiter

    async def _start(self) -> Gateway:
        # No case reaches a deadline. A check of deadlines also looks at the sockets of connections
        # that are paused, and would take one without a socket for closed.
        with patch.object(deadlines, "TICK_S", 3_600.0):
            gateway = await self._started.__aenter__()
            await asyncio.sleep(0)

        async def connect(factory: Callable[[], asyncio.Protocol], *_: Any, **__: Any) -> Any:
            return connect_in_memory(self.upstream, factory)

        setattr(self._loop, "create_connection", connect)  # noqa: B010
        return gateway

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    def close(self) -> None:
        self._runner.run(self._stop())
        self._runner.close()

    async def _stop(self) -> None:
        await self._started.__aexit__(None, None, None)

    def run(
        self,
        sends: Iterable[Iterable[bytes]],
        answers: Iterable[bytes] = (),
        hangs_up: bool = False,
    ) -> Outcome:
        """Send the pieces of each message over one connection; return the outcome."""
        self.upstream.expect(tuple(answers), hangs_up)
        self.limiter.admitted = 0
        return self._runner.run(self._run(sends))

    async def _run(self, sends: Iterable[Iterable[bytes]]) -> Outcome:
        protocol = ClientConnection(self.gateway._context)
        transport = MemoryTransport(protocol, peer=("127.0.0.1", 1))
        protocol.connection_made(transport)
        for pieces in sends:
            for piece in pieces:
                transport.deliver(piece)
                await asyncio.sleep(0)
            await self._settle(transport)
        ended = transport.is_closed or transport.wrote_eof
        outcome = Outcome(bytes(transport.written), ended, transport.is_aborted)
        transport.deliver_end()
        await self._settle(transport)
        return outcome

    async def _settle(self, transport: MemoryTransport) -> None:
        """Run turns of the loop until nothing has changed for a while."""
        quiet = 0
        before = None
        while quiet < _QUIET_TURNS:
            now = (
                *(len(transport.written), len(self.upstream.raw)),
                *(transport.is_closed, transport.is_drained),
            )
            quiet = quiet + 1 if now == before else 0
            before = now
            await asyncio.sleep(0)
