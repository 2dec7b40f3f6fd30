"""The leases that this worker holds: noted when granted, renewed while they last, given back.

A lease is a place in the count of a concurrency limit, kept in the store under a number of its own
until a moment by the store's clock. Its request may last for hours, its gateway may die in a
second. So it is never taken for long, and whoever holds it moves that moment on, several times
before it comes. A renewal puts back what the store has lost, too: after a FLUSHALL, a restart
without persistence or an outage every count is right again within one round of renewals.

Renewals and returns are sent and not waited for. One that fails is made up for by the next renewal,
or by the lapse of a lease that nobody renews any more.

The price of lapsing: a gateway that was stopped for longer than a lease lasts may find its places
taken when it goes on. It keeps its connections, and the count stays above the limit until enough
of them have ended.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol

from gateway.domain.limits import LEASE_US, Check, Decision
from gateway.domain.ports import Limiter
from gateway.stores.wire import command
from gateway.tasks import spawn

Done = Callable[[Decision | None], None]
#: Sends a command to where the count of that name is kept, and calls back with the reply.
Send = Callable[[str, bytes, Callable[[Any], None]], None]

#: A lease is renewed this long after it was taken or renewed last: two renewals may fail.
RENEW_S: Final = 2.0
#: How often the keeper looks for leases to renew, and the most counts that it renews then: a store
#: that has just come back is not to be kept busy by them. So 15,000 counts stay held in any case.
LOOK_S: Final = 0.1
MOST_COUNTS: Final = 250
#: Leases renewed by one command. Redis does nothing else meanwhile: that is half a millisecond.
TOGETHER: Final = 500
#: How long the end of a worker waits for its last returns to arrive.
FAREWELL_S: Final = 0.5

#: KEYS[1]: a count; ARGV: how long from now in microseconds, and the leases' numbers. Of those that
#: have lapsed a bounded number is removed at one time, as in decide.lua.
_RENEW: Final = b"""
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local latest = string.format('%.0f', now + ARGV[1])
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then redis.call('UNLINK', KEYS[1]) end
local lapsed = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('%.0f', now))
if lapsed > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, math.min(lapsed, 1000) - 1) end
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], latest, ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[1] / 1000))
"""


class LeaseBook(Protocol):
    """Where leases are kept. Nothing is answered: what fails is made up for in time."""

    def renew(self, name: str, numbers: Collection[int]) -> None:
        """Hold these leases of a count for their whole time from now on, lost ones included."""
        ...

    def release(self, name: str, number: int) -> None:
        """Give back a lease of a count; harmless when it is not held."""
        ...


class RedisLeases:
    """The book in Redis: the sorted sets that `lua/decide.lua` counts in."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._unanswered = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def renew(self, name: str, numbers: Collection[int]) -> None:
        left = iter(numbers)
        while some := list(islice(left, TOGETHER)):
            self._tell(name, command("EVAL", _RENEW, 1, name, LEASE_US, *some))

    def release(self, name: str, number: int) -> None:
        self._tell(name, command("ZREM", name, number))

    async def flushed(self) -> None:
        """Wait, though not for long, until the store has answered everything."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._quiet.wait()

    def _tell(self, name: str, encoded: bytes) -> None:
        self._unanswered += 1
        self._quiet.clear()
        self._send(name, encoded, self._answered)

    def _answered(self, _reply: Any) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._quiet.set()


@dataclass(slots=True)
class _Held:
    """What is held of one count. due_s: when to renew it."""

    due_s: float
    numbers: set[int] = field(default_factory=set)


class LeaseKeeper:
    """Implements `domain.ports.LeaseLimiter` around a limiter that decides.

    books: where the leases are kept. The count that stands in for the store while it is away is
           one of them: it then knows already what this worker holds
    now_s: a clock that never steps back
    """

    def __init__(
        self, limiter: Limiter, books: Sequence[LeaseBook], now_s: Callable[[], float]
    ) -> None:
        self._limiter = limiter
        self._books = books
        self._now_s = now_s
        #: By the count's name, in the order in which they are due.
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    @property
    def held(self) -> int:
        """How many leases this worker holds."""
        return sum(len(held.numbers) for held in self._held.values())

    def decide(self, check: Check, done: Done) -> None:
        if not check.lease:
            self._limiter.decide(check, done)
            return

        def decided(decision: Decision | None) -> None:
            if decision is not None and decision.allowed:
                self._note(check)
            done(decision)

        self._limiter.decide(check, decided)

    def release(self, check: Check) -> None:
        for name in check.leases:
            held = self._held.get(name)
            if held is not None and check.lease in held.numbers:
                held.numbers.remove(check.lease)
                if not held.numbers:
                    del self._held[name]
                self._give_back(name, (check.lease,))

    def renew_due(self) -> None:
        """Renew what is due, as much as may be at one time."""
        now_s = self._now_s()
        for _ in range(MOST_COUNTS):
            name, held = next(iter(self._held.items()), ("", None))
            if held is None or held.due_s > now_s:
                break
            held.due_s = now_s + RENEW_S
            self._held.move_to_end(name)
            for book in self._books:
                book.renew(name, held.numbers)

    def renew_soon(self) -> None:
        """The store is back, perhaps without what it knew: do not wait until renewals are due."""
        for held in self._held.values():
            held.due_s = 0.0

    def start(self) -> None:
        """Begin to renew, until `stop`. Needs a running loop."""
        self._task = spawn(self._run(), "lease keeper")

    async def stop(self) -> None:
        """Renew no more, and give everything back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for name, held in self._held.items():
            self._give_back(name, held.numbers)
        self._held.clear()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.renew_due()

    def _note(self, check: Check) -> None:
        for name in check.leases:
            held = self._held.get(name)
            if held is None:
                held = self._held[name] = _Held(self._now_s() + RENEW_S)
            held.numbers.add(check.lease)

    def _give_back(self, name: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            for book in self._books:
                book.release(name, number)
