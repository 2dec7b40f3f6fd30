"""The hot path without sockets, a loop or a store: a worker's own parts, and stubs at its edges.

What a request costs here is our code alone. The stubs do as little as can be: a transport keeps
what was written last, a loop runs what it was told to when asked, a store has one answer ready.
"""

from __future__ import annotations

import asyncio
import random
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Check, Decision, Standing
from gateway.domain.ports import Identity
from gateway.domain.spelling import digest, mint
from gateway.observe.metrics import Metrics
from gateway.observe.usage import UsageTable
from gateway.observe.warned import Warned
from gateway.policies.load import load
from gateway.proxy.account import Accounting
from gateway.proxy.backlog import Backlog
from gateway.proxy.connections import Connections
from gateway.proxy.context import Context
from gateway.proxy.downstream import Downstream
from gateway.proxy.gate import Gate
from gateway.proxy.pool import Pools
from gateway.proxy.upstream import UpstreamConnection
from gateway.stores.connect import StoreAddress
from gateway.stores.directory import Directory
from gateway.stores.fallback import FallbackLimiter
from gateway.stores.identities import Identities
from gateway.stores.leases import LeaseKeeper
from gateway.stores.limiter import RedisLimiter
from gateway.stores.memory import MemoryLimiter
from gateway.stores.remembered import RememberingLimiter
from tests.kit.policies import write_policies
from tests.kit.scripted_link import ScriptedLink

#: So many requests arrive within one turn of the loop, and travel to the store as one batch.
TOGETHER: Final = 16
#: Keys, each with an account, that are known to the worker.
KEYS: Final = 256
#: The moment at which everything happens: Unix microseconds.
NOW_US: Final = 1_800_000_000_000_000

PLANS: Final = "plans:\n  pro: {rate: 600/minute, burst: 1000}\n"


class Turns:
    """A loop that runs nothing by itself. Timers never fire; nothing here waits for one."""

    def __init__(self) -> None:
        #: As in uvloop, a function written in C.
        self.time = time.monotonic
        self._soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self._soon.append((callback, arguments))

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Any:
        raise AssertionError(f"{callback} waits for {delay} s, which never pass here")

    def run(self) -> int:
        """One turn; how many callbacks it ran."""
        soon, self._soon = self._soon, []
        for callback, arguments in soon:
            callback(*arguments)
        return len(soon)


class Transport:
    """Takes everything at once, and keeps the last of it."""

    def __init__(self) -> None:
        self.last = b""

    def write(self, data: bytes) -> None:
        self.last = data

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 40_000) if name == "peername" else None

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None: ...


class PromptLimiter:
    """Gives the same answer to every question, before `decide` returns. asked: how many there were.

    It stands in for the whole limiter, or for the part of it that remembers no refusals.
    """

    def __init__(self, *, allowed: bool = True) -> None:
        self.asked = 0
        self.on_refused: Callable[[Check, Decision], None] = lambda _check, _decision: None
        self._decision = Decision(
            allowed,
            0,
            None if allowed else 3_600_000_000,
            NOW_US,
            (Standing(500 if allowed else 0, 30_000_000),),
            0 if allowed else 1,
        )

    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        self.asked += 1
        if not self._decision.allowed:
            self.on_refused(check, self._decision)
        done(self._decision)

    def release(self, check: Check) -> None: ...


class PromptLink(ScriptedLink):
    """A link to a store that admits every batch of single limits of one size."""

    def __init__(self, size: int) -> None:
        super().__init__(StoreAddress("tcp"))
        self.is_up = True
        # As `stores/script.py` reads it: the time, foreign values; per check whether it is allowed,
        # the governing limit, those that refuse, the retry time, and what is left and until when.
        answer = struct.pack("<BBIqqq", 1, 0, 0, -1, 500, 30_000_000)
        self._reply = struct.pack("<qq", NOW_US, 0) + answer * size

    def answer(self) -> None:
        """Answer what was sent."""
        sent, self.sent = self.sent, []
        for _, done in sent:
            done(self._reply)


def remembering(limiter: Any) -> LeaseKeeper:
    """What a worker puts around a limiter that decides: refusals and leases are remembered."""
    return LeaseKeeper(RememberingLimiter(limiter, time.monotonic_ns), (), time.monotonic)


def limiter_client(link: PromptLink, metrics: Metrics) -> LeaseKeeper:
    """The limiter of a worker, as `stores/opening.py` puts it together."""
    primary = RedisLimiter(link, on_batch=metrics.checked)  # type: ignore[arg-type]
    link.sent.clear()  # the script is there
    local = MemoryLimiter(lambda: NOW_US)
    return remembering(FallbackLimiter(primary, local, lambda: "local"))


class Rig:
    """A worker with known keys, a policy, and an idle connection to the upstream for each client.

    keys:    the texts of the known keys; unknown: a well-formed one that no record has
    closing: what is to be closed with it
    """

    def __init__(self, folder: Path, loop: Turns, closing: ExitStack) -> None:
        self.loop = loop
        self.closing = closing
        self.link = PromptLink(TOGETHER)
        self.metrics = Metrics("bench")
        self._policy = load(write_policies(folder, "http://127.0.0.1:1", plans=PLANS))
        self._identities = Identities(lambda: 0.0)
        spell = random.Random(1).randrange
        self.keys = [self._known_key(*mint("production", spell)) for _ in range(KEYS)]
        self.unknown, unknown_id = mint("production", spell)
        self._identities.keep_unknown(unknown_id)
        self.context = self._context()
        self._ups: list[UpstreamConnection] = []
        self.use_limiter(PromptLimiter())

    def _known_key(self, text: str, key_id: str) -> str:
        record = KeyRecord(
            id=key_id,
            digest=digest(text.encode()),
            name="bench",
            account=f"account-{key_id}",
            plan="pro",
            environment="production",
            lineage=key_id,
            created_us=1,
            scopes=("connectors:read",),
        )
        self._identities.keep(Identity(record, Account(record.account)))
        return text

    def _context(self) -> Context:
        directory = Directory(
            StoreAddress("tcp"),
            identities=self._identities,
            link=ScriptedLink,  # type: ignore[arg-type]
        )
        gate = Gate(
            self._policy,
            PromptLimiter(),
            directory,
            self.metrics,
            lambda: NOW_US,
        )
        pools = Pools(self.metrics)
        pools.use(self._policy)
        numbers = count(1 << 20)  # so that all have the same length
        return Context(
            connections=Connections(self.metrics, lambda: 1 << 26, 1 << 20),
            backlog=Backlog(self.loop),  # type: ignore[arg-type]
            gate=gate,
            pools=pools,
            metrics=self.metrics,
            accounting=Accounting(
                self.metrics, None, lambda: NOW_US, UsageTable(self.metrics, 0), Warned()
            ),
            version="bench",
            clock_us=lambda: NOW_US,
            next_id=lambda: b"0123456789ab-%x" % next(numbers),
        )

    def use_limiter(self, limiter: Any) -> None:
        """Ask this one from now on."""
        self.context.gate.limiter = limiter

    def client(self) -> tuple[Downstream, Transport]:
        """A client's connection, and an idle one to the upstream beside it."""
        transport = Transport()
        downstream = Downstream(self.context)
        downstream.connection_made(transport)  # type: ignore[arg-type]
        self.add_upstream()
        return downstream, transport

    def add_upstream(self) -> None:
        """An idle connection to the upstream."""
        (pool,) = self.context.pools._by_server.values()
        upstream = UpstreamConnection(pool)
        upstream.connection_made(Transport())  # type: ignore[arg-type]
        pool.idle.append(upstream)
        self._ups.append(upstream)

    def answer(self, response: bytes) -> None:
        """The upstream answers whatever it was asked."""
        for upstream in self._ups:
            if upstream.exchange is not None:
                deliver(upstream, response)


def deliver(protocol: Any, data: bytes) -> None:
    """Let a protocol read this, as the event loop does."""
    size = len(data)
    protocol.get_buffer(-1)[:size] = data
    protocol.buffer_updated(size)


@contextmanager
def rig() -> Iterator[Rig]:
    """A rig, within a loop that stands still."""
    loop = Turns()
    asyncio._set_running_loop(loop)  # type: ignore[arg-type]
    try:
        with ExitStack() as closing, tempfile.TemporaryDirectory(prefix="bench-") as folder:
            yield Rig(Path(folder) / "policies", loop, closing)
    finally:
        asyncio._set_running_loop(None)
