"""The hot path without sockets, a loop or a store: a worker's own parts, and stubs around them.

The cost of a request here is that of our code alone. The stubs do as little as possible: a
transport keeps the last write, a loop runs its callbacks on request, a store has one fixed answer.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from gateway.limiting.fallback import FallbackLimiter
from gateway.limiting.memory import MemoryLimiter
from gateway.limiting.prepaid import PrepaidLimiter
from gateway.limiting.refusal_cache import RefusalCache
from gateway.observe.metrics import Metrics
from gateway.proxy.client_connection import ClientConnection
from gateway.stores.limits.leases import LeaseKeeper
from gateway.stores.limits.limiter import RedisLimiter
from gateway.stores.redis.address import StoreAddress
from tests.kit.loops import ManualLoop
from tests.kit.proxy import NOW_US, OK, ProxyBench, policy_of
from tests.kit.scripted_link import ScriptedLink
from tests.kit.transport import MemoryTransport

#: The number of requests in one turn of the loop, which are one batch for the store.
TOGETHER: Final = 16
#: Cached keys, each with an account.
KEYS: Final = 256

PLANS: Final = "plans:\n  pro: {rate: 600/minute, burst: 1000}\n"


class Turns(ManualLoop):
    """A loop whose timers never fire; nothing here waits for one."""

    def __init__(self) -> None:
        super().__init__()
        #: As in uvloop, a function written in C.
        self.time = time.monotonic  # type: ignore[method-assign]

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Any:
        raise AssertionError(f"{callback} waits for {delay} s, which never pass here")


class Transport(MemoryTransport):
    """A transport that keeps only the last write, as our own code is measured."""

    last = b""

    def write(self, data: Any) -> None:
        self.last = data

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


class PromptLink(ScriptedLink):
    """A link to a store that admits every batch, of one size, of checks of one limit."""

    def __init__(self, size: int) -> None:
        super().__init__(StoreAddress("tcp"))
        self.is_up = True
        # As `stores/limits/script.py` reads it: the time, foreign values; per check whether it is
        # allowed, the governing limit, those that refuse, the retry time, what is left, until when.
        answer = struct.pack("<BBIqqq", 1, 0, 0, -1, 500, 30_000_000)
        self._reply = struct.pack("<qq", NOW_US, 0) + answer * size

    def answer(self) -> None:
        """Answer the commands that were sent."""
        sent, self.sent = self.sent, []
        for _, done in sent:
            done(self._reply)


class Never:
    """A loop for what waits for the store to return, which it does not."""

    time = staticmethod(time.monotonic)

    def call_soon(self, callback: Callable[[], object]) -> object:
        return asyncio.get_running_loop().call_soon(callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Never:
        return self

    def cancel(self) -> None:
        pass


def remembering(limiter: Any) -> LeaseKeeper:
    """The limiter with what a worker has around it."""
    prepaid = PrepaidLimiter(limiter, time.monotonic_ns)
    return LeaseKeeper(RefusalCache(prepaid, time.monotonic_ns), (), time.monotonic)


def limiter_client(link: PromptLink, metrics: Metrics) -> LeaseKeeper:
    """The limiter of a worker, built as in `stores/opening.py`."""
    primary = RedisLimiter(link, on_batch=metrics.checked)  # type: ignore[arg-type]
    link.sent.clear()  # the script is loaded
    local = MemoryLimiter(lambda: NOW_US)
    return remembering(FallbackLimiter(primary, local, lambda: "local", loop=Never()))


class Rig(ProxyBench):
    """A worker with cached keys, a policy, and an idle connection to the upstream per client.

    keys:       the texts of the cached keys; unknown: a well-formed one without a record
    store_link: the limiter's link to the store, if a case has one
    closing:    what is closed with it
    """

    def __init__(self, loop: Turns, closing: ExitStack) -> None:
        super().__init__(loop, policy_of(plans=PLANS), transport=Transport)
        self.closing = closing
        self.store_link = PromptLink(TOGETHER)
        self.keys = [self.add_key() for _ in range(KEYS)]
        self.unknown = self.unknown_key()

    def connect(self) -> tuple[ClientConnection, Transport]:
        """A client's connection, and an idle one to the upstream."""
        transport = Transport()
        connection = ClientConnection(self.context)
        connection.connection_made(transport)
        self.add_upstream()
        return connection, transport

    def answer(self, response: bytes = OK) -> None:
        """The limiter as in the bench, at less cost."""
        for end in self.upstreams:
            if end.protocol.exchange is not None:
                deliver(end.protocol, response)


def deliver(protocol: Any, data: bytes) -> None:
    """Have a protocol read this, as the event loop does."""
    size = len(data)
    protocol.get_buffer(-1)[:size] = data
    protocol.buffer_updated(size)


@contextmanager
def rig() -> Iterator[Rig]:
    """A rig, within a loop that does not run."""
    loop = Turns()
    with loop.running(), ExitStack() as closing:
        yield Rig(loop, closing)
