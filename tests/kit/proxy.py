"""The proxy in memory: a worker's parts, with the test's clients, upstream and limiter.

There is no socket, no store and no event loop that runs by itself: bytes go in, bytes come out, and
time is a number. `tests/wire/bench.py` has a whole gateway in memory, and `tests/proxy/conftest.py`
one over real sockets.
"""

from __future__ import annotations

import functools
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from gateway.domain.key_format import mint
from gateway.domain.keys import Account
from gateway.domain.limits import Check, Decision, Standing
from gateway.domain.policy import Policy
from gateway.domain.ports import Identity
from gateway.observe.limit_warnings import LimitWarnings
from gateway.observe.metrics import Metrics
from gateway.observe.usage_table import UsageTable
from gateway.policies.load import load
from gateway.proxy.account import Accounting
from gateway.proxy.backlog import Backlog
from gateway.proxy.client_connection import ClientConnection
from gateway.proxy.connections import Connections
from gateway.proxy.context import Context
from gateway.proxy.gate import Gate
from gateway.proxy.upstream_connection import UpstreamConnection
from gateway.proxy.upstream_pool import UpstreamPools
from gateway.stores.keys.cache import IdentityCache
from gateway.stores.keys.directory import Directory
from gateway.stores.redis.address import StoreAddress
from tests.kit.keys import make_key
from tests.kit.loops import ManualLoop
from tests.kit.policies import write_policies
from tests.kit.scripted_link import ScriptedLink
from tests.kit.transport import MemoryTransport

#: The default time, Unix microseconds.
NOW_US: Final = 1_800_000_000_000_000
#: The upstream of the policies; no connection to it is opened.
UPSTREAM_URL: Final = "http://127.0.0.1:1"
_statuses = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ").findall
#: An answer of the upstream.
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@functools.cache
def policy_of(**files: str) -> Policy:
    """The tests' policy, with these files in place of the default ones: plans="plans: …"."""
    with tempfile.TemporaryDirectory(prefix="policies-") as folder:
        return load(write_policies(Path(folder), UPSTREAM_URL, **files))


def request(
    key: str, path: str = "/v1/connectors", method: str = "GET", body: bytes = b""
) -> bytes:
    """A typical request."""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: gateway.example\r\nUser-Agent: test/1.0\r\n"
        f"Accept: */*\r\nAuthorization: Bearer {key}\r\n{length}\r\n"
    ).encode() + body


class PromptLimiter:
    """Gives the same answer to every check, before `decide` returns.

    It replaces the whole limiter, or the part of it that caches no refusals.

    limits: of each check
    asked: the number of checks; last: the newest
    """

    def __init__(self, *, allowed: bool = True, limits: int = 1) -> None:
        self.asked = 0
        self.last: Check | None = None
        self.on_refused: Callable[[Check, Decision], None] = lambda _check, _decision: None
        self._decision = Decision(
            allowed,
            0,
            None if allowed else 3_600_000_000,
            NOW_US,
            (Standing(500 if allowed else 0, 30_000_000),) * limits,
            0 if allowed else 1,
        )

    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        self.asked += 1
        self.last = check
        if not self._decision.allowed:
            self.on_refused(check, self._decision)
        done(self._decision)

    def release(self, check: Check) -> None: ...


class ScriptedDirectory:
    """A key directory without keys: each look-up waits until the test answers it.

    asked: the key ids that were looked up, in order
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._waiting: list[Callable[[Any], None]] = []

    def known(self, key_id: str) -> None: ...

    def look_up(self, key_id: str, done: Callable[[Any], None]) -> None:
        self.asked.append(key_id)
        self._waiting.append(done)

    def touch(self, identity: Identity) -> None: ...

    def answer(self, found: Any) -> None:
        """Answer the oldest look-up."""
        self._waiting.pop(0)(found)


class ProxyBench:
    """A worker's parts around one policy.

    key:       the text of a key that may do all that its plan allows
    loop:      its turns and time are controlled by the test
    context:   what all connections share; `context.gate` decides about requests
    identities: the known keys, by their texts
    upstreams: the upstream's ends of its connections, each for one exchange
    now_us:    the time, by which keys expire
    link:      the connection for look-ups of unknown keys
    """

    link: ScriptedLink

    def __init__(
        self,
        loop: ManualLoop,
        policy: Policy,
        limiter: Any = None,
        transport: type[MemoryTransport] = MemoryTransport,
    ) -> None:
        self.loop = loop
        self.now_us = NOW_US
        self.metrics = Metrics("test")
        self.upstreams: list[MemoryTransport] = []
        self._transport = transport
        self._spell = random.Random(1).randrange
        self.identities: dict[str, Identity] = {}
        self._identities = IdentityCache(lambda: 0.0)
        self.context = self._context(policy, limiter or PromptLimiter())
        self.key = self.add_key()

    def _context(self, policy: Policy, limiter: Any) -> Context:
        def link(*arguments: Any, **options: Any) -> Any:
            self.link = ScriptedLink(*arguments, **options)
            return self.link

        directory = Directory(StoreAddress("tcp"), identities=self._identities, link=link)
        gate = Gate(policy, limiter, directory, self.metrics, lambda: self.now_us)
        pools = UpstreamPools(self.metrics)
        pools.use(policy)
        numbers = count(1 << 20)  # so that all have the same length
        return Context(
            connections=Connections(self.metrics, lambda: 1 << 26, 1 << 20),
            backlog=Backlog(self.loop),  # type: ignore[arg-type]
            collected=Backlog(self.loop),  # type: ignore[arg-type]
            gate=gate,
            pools=pools,
            metrics=self.metrics,
            accounting=Accounting(
                self.metrics,
                None,
                lambda: self.now_us,
                UsageTable(self.metrics, 0),
                LimitWarnings(),
            ),
            version="test",
            clock_us=lambda: self.now_us,
            next_id=lambda: b"0123456789ab-%x" % next(numbers),
        )

    # -- policy, limiter and keys -----------------------------------------------------------------
    def use(self, policy: Policy) -> None:
        """Use this policy from now on, as after a reload."""
        self.context.gate.use(policy)
        self.context.pools.use(policy)

    def use_limiter(self, limiter: Any) -> None:
        """Use this one from now on."""
        self.context.gate.limiter = limiter

    def add_key(self, **fields: Any) -> str:
        """Add a known key, with these fields of its record; return its text."""
        plain = {"plan": "pro", "scopes": ("connectors:read",), "created_us": 1}
        text, record = make_key(self._spell, **{**plain, **fields})
        identity = Identity(record, Account(record.account))
        self._identities.keep(identity)
        self.identities[text] = identity
        return text

    def change_key(self, key: str, **fields: Any) -> None:
        """Change a key as another process would: the cached identity is no longer current."""
        before = self.identities[key]
        before.current = False
        identity = Identity(replace(before.record, **fields), before.account)
        self._identities.keep(identity)
        self.identities[key] = identity

    def unknown_key(self) -> str:
        """The text of a well-formed key that is cached as unknown."""
        text, key_id = mint("production", self._spell)
        self._identities.keep_unknown(key_id)
        return text

    # -- connections ------------------------------------------------------------------------------
    def client(self, **options: Any) -> Client:
        """A client connection, with an idle upstream connection."""
        self.add_upstream()
        return Client(self.context, **options)

    def add_upstream(self) -> MemoryTransport:
        """Add an idle upstream connection; return the upstream's end."""
        (pool,) = self.context.pools._by_server.values()
        connection = UpstreamConnection(pool)
        end = self._transport(connection)
        connection.connection_made(end)
        pool.idle.append(connection)
        self.upstreams.append(end)
        return end

    def asked(self) -> MemoryTransport | None:
        """The upstream's end of the first connection that has sent a whole request."""
        for end in self.upstreams:
            exchange = end.protocol.exchange
            if exchange is not None and exchange.is_sent:
                return end
        return None

    def answer(self, response: bytes = OK) -> None:
        """Answer all requests that the upstream has."""
        for end in self.upstreams:
            if end.protocol.exchange is not None:
                end.push(response)


class Client(MemoryTransport):
    """A client: what it sends is read by its connection; its answers are in `written`."""

    def __init__(self, context: Context, **options: Any) -> None:
        super().__init__(**options)
        self.connection = self.protocol = ClientConnection(context)
        self.connection.connection_made(self)

    def send(self, data: bytes) -> bytes:
        """Send as much as is read at once; return the rest."""
        return self.receive(data)

    @property
    def count(self) -> int:
        """The number of answers."""
        return self.written.count(b"HTTP/1.1 ")

    @property
    def statuses(self) -> list[int]:
        """The statuses of all answers so far."""
        return [int(status) for status in _statuses(self.written)]


@contextmanager
def proxy_bench(policy: Policy | None = None, **files: str) -> Iterator[ProxyBench]:
    """A bench with the tests' policy, these files in place of its own, or another policy."""
    loop = ManualLoop()
    with loop.running():
        yield ProxyBench(loop, policy or policy_of(**files))
