"""Events and their deliveries in Redis: what is due, who has it, and how each attempt ended.

An integration belongs to one of SHARDS shards. All names of a shard have its hash tag, so that each
step is one script in one slot of a cluster:

gw:{hooks:N}:watches:INTEGRATION   hash: watch -> its record
gw:{hooks:N}:event:ID              hash: integration, type, body, at, size, left (deliveries)
gw:{hooks:N}:seen:ID               exists while an event of this id is not accepted again
gw:{hooks:N}:deliveries:EVENT      set of its deliveries
gw:{hooks:N}:delivery:ID           hash: state, reason, attempts, at, ended, log, token (leased)
gw:{hooks:N}:recent:WATCH          sorted set of its deliveries, by when they were made
gw:{hooks:N}:queue:WATCH           sorted set of its deliveries that wait, by when they are due
gw:{hooks:N}:health:WATCH          hash: held (in flight), failures (in a row), tried and since (its
                                   last success), proven, ms (average), open, openings, ramp, status
gw:{hooks:N}:turns:good, :other    sorted sets of watches, by when they are visited next
gw:{hooks:N}:leases                sorted set of deliveries in flight, by when their lease ends
gw:{hooks:N}:dead                  sorted set of deliveries that were given up, by when
gw:{hooks:N}:finished              sorted set of events of which nothing waits, by when
gw:{hooks:N}:bytes                 the bytes of all events
gw:{hooks:N}:due                   channel: something is due

Times are microseconds of the server, Unix. `lua/` has the scripts.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, Literal
from zlib import crc32

from redis.exceptions import NoScriptError

from gateway.domain.ports import BudgetSpent
from gateway.stores.redis.errors import translated

SHARDS: Final = 16
#: An id is not accepted again for so long: a provider's resend is the same event.
SEEN_S: Final = 7 * 86_400
#: How long a delivery that is over can be looked at and sent again.
KEPT_S: Final = 86_400
#: How long a courier has a delivery, and how often it renews its leases.
LEASE_S: Final = 15.0
RENEW_S: Final = 5.0
#: The most deliveries of a watch in flight, and of one visit.
CAP: Final = 8
VISIT: Final = 4
#: Failures in a row that open a watch's breaker.
FAILURES: Final = 5

#: Deliveries of a disabled watch that one call cancels, which takes the server a few milliseconds.
_CANCELLED: Final = 500

Result = Literal["delivered", "waiting", "dead"]
Execute = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that a courier has to make.

    id:       EVENT:WATCH:NUMBER
    token:    of the claim: a lease that ended may be claimed again by the same courier
    watch:    the watch's record, as it was written
    body:     the event, as it was accepted
    attempts: made before
    at_us:    when it was accepted
    is_good:  its watch's last attempt succeeded, and it answers quickly
    openings: of its watch's breaker since the last success
    """

    id: str
    token: str
    watch: bytes
    integration: str
    body: bytes
    attempts: int
    at_us: int
    is_good: bool
    openings: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What a courier got. wait_s: until something else is due; None: nothing waits

    lost: leases of couriers that did not renew them
    """

    deliveries: tuple[Claimed, ...]
    wait_s: float | None
    lost: int


@dataclass(frozen=True, slots=True)
class Finished:
    """What an attempt means for its watch.

    failed:   attempts since its last success
    silent_s: how long that is ago; without one, its first failure
    """

    failed: int
    silent_s: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a delivery, as it is kept.

    at_us:  when it began; ms: how long it took
    status: of the answer; 0: there was none
    found:  the first characters of the answer, or why there was none
    """

    at_us: int
    ms: int
    status: int
    found: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery, as it is shown.

    state:    queued, leased, waiting, delivered, dead or cancelled
    reason:   why it is dead or cancelled
    at_us:    when it was made; ended_us: 0: it is not over
    """

    id: str
    state: str
    reason: str
    at_us: int
    ended_us: int
    attempts: tuple[Attempt, ...]

    @property
    def event(self) -> str:
        return self.id.partition(":")[0]


_FIELDS: Final = ("state", "reason", "at", "ended", "log")


def _delivery(delivery: str, found: list[bytes | None]) -> Delivery | None:
    state, reason, at, ended, log = ((value or b"").decode("utf-8", "replace") for value in found)
    if not state:
        return None
    attempts = tuple(Attempt(*json.loads(line)) for line in log.splitlines())
    return Delivery(delivery, state, reason, int(at or 0), int(ended or 0), attempts)


def shard_of(integration: str) -> int:
    """The shard of an integration's events."""
    return crc32(integration.encode()) % SHARDS


def tag_of(shard: int) -> str:
    """What all names of a shard begin with."""
    return f"gw:{{hooks:{shard}}}:"


class _Script:
    """A script, with the functions that all of them share."""

    def __init__(self, name: str) -> None:
        folder = files("gateway.stores.webhooks") / "lua"
        self.text = b"".join((folder / part).read_bytes() for part in ("common.lua", name))
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest()


_ACCEPT: Final = _Script("accept.lua")
_CLAIM: Final = _Script("claim.lua")
_RENEW: Final = _Script("renew.lua")
_FINISH: Final = _Script("finish.lua")
_DISABLE: Final = _Script("disable.lua")
_RESEND: Final = _Script("resend.lua")


class DeliveryQueue:
    """The events and deliveries of one shard. Every method raises StoreDown.

    execute: sends one command, as `Redis.execute_command` does
    budget:  the most bytes of the shard's events
    """

    def __init__(self, execute: Execute, shard: int, budget: int) -> None:
        self._execute = execute
        self._tag = tag_of(shard)
        self._budget = budget

    async def accept(self, integration: str, event: str, event_type: str, body: bytes) -> int:
        """Keep an event and queue its deliveries; how many. 0 also for one that is known.

        body: the event as it is delivered. Raises BudgetSpent.
        """
        names = (f"{self._tag}watches:{integration}", f"{self._tag}event:{event}")
        arguments = (integration, event, event_type, body, self._budget, CAP, SEEN_S, KEPT_S)
        result, deliveries = await self._run(_ACCEPT, names, arguments)
        if result == b"full":
            raise BudgetSpent
        return int(deliveries)

    async def claim(self, token: str, most: int, others: int) -> Claim:
        """Lease what is due.

        token:  that no other claim has
        most:   how many deliveries
        others: how many of them may go to watches that are unproven, failing or slow
        """
        lease_us = int(LEASE_S * 1_000_000)
        arguments = (token, most, others, lease_us, CAP, VISIT)
        wait_us, lost, found = await self._run(_CLAIM, (f"{self._tag}leases",), arguments)
        deliveries = tuple(
            Claimed(
                id=delivery.decode(),
                token=token,
                watch=watch,
                integration=integration.decode(),
                body=body,
                attempts=int(attempts),
                at_us=int(at_us),
                is_good=bool(is_good),
                openings=int(openings),
            )
            for delivery, watch, integration, body, attempts, at_us, is_good, openings in found
        )
        return Claim(deliveries, wait_us / 1_000_000 if wait_us >= 0 else None, lost)

    async def renew(self, deliveries: Iterable[Claimed]) -> frozenset[str]:
        """Keep these for another LEASE_S. Returns the ids of those that others may have by now."""
        pairs = [part for each in deliveries for part in (each.token, each.id)]
        arguments = (int(LEASE_S * 1_000_000), *pairs)
        gone = await self._run(_RENEW, (f"{self._tag}leases",), arguments)
        return frozenset(each.decode() for each in gone)

    async def finish(
        self,
        delivery: Claimed,
        result: Result,
        attempt: Attempt,
        *,
        wait_s: float = 0.0,
        reason: str = "",
        probe_s: float = 0.0,
    ) -> Finished | None:
        """Record an attempt. None: the lease had ended, and another claim may have the delivery.

        wait_s:  until the next attempt of one that is waiting
        reason:  why one is dead
        probe_s: until the breaker's next probe, if this failure opens it or was a probe
        """
        kept = json.dumps([attempt.at_us, attempt.ms, attempt.status, attempt.found])
        arguments = (
            *(
                delivery.token,
                delivery.id,
                result,
                reason,
                int(wait_s * 1_000_000),
                kept,
                attempt.ms,
            ),
            *(FAILURES, int(probe_s * 1_000_000), CAP),
        )
        told = await self._run(_FINISH, (f"{self._tag}leases",), arguments)
        return None if told is None else Finished(told[0], told[1] / 1_000_000)

    async def disable(self, watch: str, why: str) -> None:
        """Give a watch no more events, and cancel what waits for it."""
        while await self._run(_DISABLE, (f"{self._tag}leases",), (watch, why, _CANCELLED)):
            pass

    # -- what was delivered -----------------------------------------------------------------------

    async def delivery(self, delivery: str) -> Delivery | None:
        """A delivery with its attempts; None: it is not kept any more."""
        found = await self._execute("HMGET", f"{self._tag}delivery:{delivery}", *_FIELDS)
        return _delivery(delivery, found)

    async def deliveries(self, watch: str, most: int = 50, before_us: int = 0) -> list[Delivery]:
        """Those of a watch, the newest first. before_us: made before then; 0: any"""
        last = f"({before_us}" if before_us else "+inf"
        ids = await self._execute(
            *("ZREVRANGEBYSCORE", f"{self._tag}recent:{watch}", last, "-inf", "LIMIT", 0, most)
        )
        found = [await self.delivery(each.decode("ascii", "replace")) for each in ids]
        return [each for each in found if each is not None]

    async def event(self, event: str) -> bytes | None:
        """The bytes of an event; None: it is not kept any more."""
        found: bytes | None = await self._execute("HGET", f"{self._tag}event:{event}", "body")
        return found

    async def resend(self, event: str, watch: str) -> str | None:
        """Queue a delivery of this event once more: its id.

        None: the event is not kept any more, or the watch is disabled.
        """
        made = await self._run(_RESEND, (f"{self._tag}leases",), (event, watch, CAP))
        return None if made is None else str(made.decode())

    async def _run(self, script: _Script, names: tuple[str, ...], arguments: Iterable[Any]) -> Any:
        arguments = tuple(arguments)
        async with translated():
            try:
                return await self._execute("EVALSHA", script.sha, len(names), *names, *arguments)
            except NoScriptError:
                return await self._execute("EVAL", script.text, len(names), *names, *arguments)
