"""The leases that this worker holds: noted when granted, renewed while held, released at the end.

A lease is a slot of a concurrency limit, kept in the store under its own number, with an expiry by
the store's clock. Its request may last for hours, and its gateway may die at any time. So a lease
is short, and its holder renews it several times before it expires. A renewal also restores what the
store has lost: after a FLUSHALL, a restart without persistence or an outage, every counter is
correct again within one round of renewals.

Renewals and releases are sent without waiting for the reply. The next renewal, or the expiry of a
lease that is no longer renewed, corrects what a failed one left.

In a limit of connections the requests of a connection share a lease in each worker. It is released
at the end of its last request, unless another one is being decided: commands arrive in order, so
the release would remove the lease that the decision has just taken.

A gateway that was stopped for longer than a lease lasts may find its slots taken when it continues.
It keeps its connections, and the counter stays above the limit until enough of them have ended.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from secrets import randbelow
from typing import Any, Final, Protocol

from gateway.domain.limits import LEASE_US, MOST_LEASE, Check, Decision, Member
from gateway.domain.ports import Limiter
from gateway.stores.redis.connection import command
from gateway.tasks import end, spawn

Done = Callable[[Decision | None], None]
#: Sends a command about the counter of this name, and calls back with the reply.
Send = Callable[[str, bytes, Callable[[Any], None]], None]

#: A lease is renewed this long after it was taken or renewed last: two renewals may fail.
RENEW_S: Final = 2.0
#: The interval of checks for due renewals, and the most counters renewed each time, so that a store
#: that has just recovered is not overloaded. The leases of up to 15,000 counters stay held.
CHECK_S: Final = 0.1
MOST_COUNTERS: Final = 250
#: Leases renewed by one command, which blocks Redis for half a millisecond.
BATCH_LEASES: Final = 500
#: How long a worker that stops waits for its last releases to arrive.
STOP_TIMEOUT_S: Final = 0.5

#: KEYS[1]: a counter; ARGV: for how many microseconds from now, and the leases' members. A bounded
#: number of expired leases is removed at one time, as in decide.lua.
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


class LeaseStore(Protocol):
    """Where leases are kept. Failures are not reported: later renewals correct them."""

    def renew(self, name: str, members: Collection[Member]) -> None:
        """Hold these leases of a counter for their full time from now on, lost ones included."""
        ...

    def release(self, name: str, member: Member) -> None:
        """Release a lease of a counter; harmless when it is not held."""
        ...


class RedisLeases:
    """Leases in Redis: the sorted sets that `lua/decide.lua` counts in."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._unanswered = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def renew(self, name: str, members: Collection[Member]) -> None:
        left = map(member_text, members)
        while some := list(islice(left, BATCH_LEASES)):
            self._send_command(name, command("EVAL", _RENEW, 1, name, LEASE_US, *some))

    def release(self, name: str, member: Member) -> None:
        self._send_command(name, command("ZREM", name, member_text(member)))

    async def flushed(self) -> None:
        """Wait until the store has answered all commands, for STOP_TIMEOUT_S at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._quiet.wait()

    def _send_command(self, name: str, encoded: bytes) -> None:
        self._unanswered += 1
        self._quiet.clear()
        self._send(name, encoded, self._answered)

    def _answered(self, _reply: Any) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._quiet.set()


def member_text(member: Member) -> int | str:
    """A member of the sorted set, as `lua/decide.lua` writes it."""
    return member if isinstance(member, int) else "{}:{}".format(*member)


@dataclass(slots=True)
class _Held:
    """The leases of one counter that are held.

    due_s:   when to renew them
    members: each with the numbers of the requests that hold it; none: one is being decided
    """

    due_s: float
    members: dict[Member, set[int]] = field(default_factory=dict)


class LeaseKeeper:
    """Implements `domain.ports.LeaseLimiter` around a limiter that decides.

    stores: where the leases are kept; with the fallback's own counters, so that they include this
            worker's leases in an outage
    now_s:  a clock that never steps back
    tag:    of this worker among all of all gateways; 0: a random one
    """

    def __init__(
        self,
        limiter: Limiter,
        stores: Sequence[LeaseStore],
        now_s: Callable[[], float],
        *,
        tag: int = 0,
    ) -> None:
        self._tag = tag or randbelow(MOST_LEASE) + 1
        self._limiter = limiter
        self._stores = stores
        self._now_s = now_s
        #: By the counter's name, in the order in which they are due.
        self._held: OrderedDict[str, _Held] = OrderedDict()
        #: The leases of connections that checks may take whose decision has not arrived.
        self._awaited: dict[tuple[str, Member], int] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def held(self) -> int:
        """The number of leases that this worker holds."""
        return sum(len(held.members) for held in self._held.values())

    def decide(self, check: Check, done: Done) -> None:
        if not check.lease:
            self._limiter.decide(check, done)
        else:
            self._decide_leased(check, done)

    def _decide_leased(self, check: Check, done: Done) -> None:
        # A function of its own: the cells of its variables would cost every check 1.5 %.
        check.holder = self._tag
        awaited: list[tuple[str, Member]] = []
        if check.connection:
            awaited = [lease for lease in check.leases if isinstance(lease[1], tuple)]
            for lease in awaited:
                self._awaited[lease] = self._awaited.get(lease, 0) + 1

        def decided(decision: Decision | None) -> None:
            if decision is not None and decision.allowed:
                self._note(check)
            for lease in awaited:
                self._no_longer_await(*lease)
            done(decision)

        self._limiter.decide(check, decided)

    def release(self, check: Check) -> None:
        for name, member in check.leases:
            held = self._held.get(name)
            requests = None if held is None else held.members.get(member)
            if requests and check.lease in requests:
                requests.remove(check.lease)
                self._release_unused(name, member)

    def renew_due(self) -> None:
        """Renew the leases that are due, of MOST_COUNTERS counters at most."""
        now_s = self._now_s()
        for _ in range(MOST_COUNTERS):
            name, held = next(iter(self._held.items()), ("", None))
            if held is None or held.due_s > now_s:
                break
            held.due_s = now_s + RENEW_S
            self._held.move_to_end(name)
            for store in self._stores:
                store.renew(name, held.members.keys())

    def renew_soon(self) -> None:
        """Make all leases due now: the store may have lost its data."""
        for held in self._held.values():
            held.due_s = 0.0

    def start(self) -> None:
        """Renew leases until `stop`. Needs a running loop."""
        self._task = spawn(self._run(), "lease keeper")

    async def stop(self) -> None:
        """Stop renewing, and release all leases."""
        await end(self._task)
        for name, held in self._held.items():
            self._release(name, held.members)
        self._held.clear()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self.renew_due()

    def _note(self, check: Check) -> None:
        for name, member in check.leases:
            held = self._held.get(name)
            if held is None:
                held = self._held[name] = _Held(self._now_s() + RENEW_S)
            held.members.setdefault(member, set()).add(check.lease)

    def _no_longer_await(self, name: str, member: Member) -> None:
        others = self._awaited.pop((name, member)) - 1
        if others:
            self._awaited[name, member] = others
        else:
            self._release_unused(name, member)

    def _release_unused(self, name: str, member: Member) -> None:
        """Release a lease if it is held, and no request has it or may have it."""
        held = self._held.get(name)
        if held is None or (name, member) in self._awaited or held.members.get(member, True):
            return
        del held.members[member]
        if not held.members:
            del self._held[name]
        self._release(name, (member,))

    def _release(self, name: str, members: Iterable[Member]) -> None:
        for member in members:
            for store in self._stores:
                store.release(name, member)
