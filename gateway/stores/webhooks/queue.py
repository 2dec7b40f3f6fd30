"""Events and their deliveries in Redis: what is due, who has it, and how each attempt ended.

An integration belongs to one of SHARDS shards. All names of a shard have its hash tag, so that each
step is one script in one slot of a cluster:

gw:{hooks:N}:watches:INTEGRATION   hash: watch -> its record
gw:{hooks:N}:event:ID              hash: integration, account, type, body, at, size (with all its
                                   deliveries), left (deliveries), resent (times)
gw:{hooks:N}:seen                  sorted set of the newest events, by when they were accepted
gw:{hooks:N}:accounts              sorted set of accounts, by bytes of their events with deliveries
                                   left
gw:{hooks:N}:deliveries:EVENT      set of its deliveries
gw:{hooks:N}:events:INTEGRATION    sorted set of its events, by when they were accepted
gw:{hooks:N}:delivery:ID           hash: state, reason, attempts, at, ended, log, token (leased),
                                   replay (it is one)
gw:{hooks:N}:recent:WATCH          sorted set of its deliveries, by when they were made
gw:{hooks:N}:queue:WATCH           sorted set of its deliveries that wait, by when they are due
gw:{hooks:N}:replays:WATCH         the same for replayed ones, which go after those of `queue`
gw:{hooks:N}:health:WATCH          hash: held (in flight), failures (in a row), failed (when the
                                   first of them was), tried and since (its last success), proven,
                                   succeeded (before it was resumed), ms (average), open, openings,
                                   ramp, status, why, disabled (when); with a rate: step (the us
                                   between attempts), allowed (when the next one is)
gw:{hooks:N}:turns:good, :other    sorted sets of watches, by when they are visited next
gw:{hooks:N}:heads                 the same watches, by when their first delivery may be sent; or
                                   expires, of one that is paused; or is cancelled,
                                   of one that is disabled
gw:{hooks:N}:breakers              sorted set of watches whose breaker is open
gw:{hooks:N}:leases                sorted set of deliveries in flight, by when their lease ends
gw:{hooks:N}:dead:INTEGRATION      sorted set of deliveries that were given up, by when; one whose
                                   event is sent to the watch again is removed
gw:{hooks:N}:disabled              sorted set of watches that were disabled, by when: `notices`
gw:{hooks:N}:finished              sorted set of events of which nothing waits, by when
gw:{hooks:N}:bytes                 the bytes of all events
gw:{hooks:N}:counts                hash: waiting, dead (deliveries)
gw:{hooks:N}:due                   channel: something is due

Times are microseconds of the server, Unix. `lua/` has the scripts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from gateway.domain.ports import BudgetSpent, ResentTooOften
from gateway.domain.webhooks.deliveries import (
    ALL,
    SHARDS,
    Attempt,
    Claim,
    Claimed,
    Delivery,
    Filter,
    Finished,
    KeptEvent,
    Page,
    Replayed,
    ShardStats,
    shard_of,
)
from gateway.domain.webhooks.schedule import FAILURES
from gateway.stores.redis.errors import translated
from gateway.stores.webhooks.replies import (
    bounds_of,
    read_claim,
    read_delivery,
    read_event,
)
from gateway.stores.webhooks.scripts import Execute, Script, tag_of

__all__ = [
    "SHARDS",
    "Attempt",
    "BudgetSpent",
    "Claim",
    "Claimed",
    "Delivery",
    "DeliveryQueue",
    "Execute",
    "Finished",
    "KeptEvent",
    "Page",
    "Replayed",
    "ShardStats",
    "shard_of",
    "tag_of",
]

#: An id is not accepted again for so long: a provider's resend is the same event. `accept.lua`
#: knows the newest half a million.
SEEN_S: Final = 7 * 86_400
#: How long a delivery that is over can be looked at and sent again.
KEPT_S: Final = 86_400
#: How long a courier has a delivery, and how often it renews its leases.
LEASE_S: Final = 15.0
RENEW_S: Final = 5.0
#: The most deliveries of a watch in flight, where nothing else is set; and of one visit.
CAP: Final = 8
VISIT: Final = 4
#: The most bytes of the events of one claim: a longer reply ends the connection.
MOST_CLAIMED_BYTES: Final = 4 * 1024 * 1024

#: Deliveries of a disabled watch that one call cancels, which takes the server a few milliseconds.
_CANCELLED: Final = 100

#: What one call of a script looks at, which takes the server a few milliseconds; and one replay.
LOOKED_AT: Final = 500
_REPLAY_LOOKED_AT: Final = 300
_REPLAYED: Final = 50
_MOST_REPLAY_CALLS: Final = 200
#: Events and deliveries that one call drops, and the calls of one trim.
_DROPPED: Final = 200
_TRIMS: Final = 50

Result = Literal["delivered", "waiting", "dead"]

_ACCEPT: Final = Script("accept.lua")
_CLAIM: Final = Script("claim.lua")
_RENEW: Final = Script("renew.lua")
_FINISH: Final = Script("finish.lua")
_HOLD: Final = Script("hold.lua")
_PURGE: Final = Script("purge.lua")
_DISABLE: Final = Script("disable.lua")
_RESEND: Final = Script("resend.lua")
_REPLAY: Final = Script("replay.lua")
_TRIM: Final = Script("trim.lua")
_STATS: Final = Script("stats.lua")
_STATUS: Final = Script("status.lua")
_EVENTS: Final = Script("events.lua")
_DELIVERIES: Final = Script("deliveries.lua")
_ONE: Final = Script("one.lua")


class DeliveryQueue:
    """The events and deliveries of one shard. Every method raises StoreDown.

    So do replies and records that cannot be read: another version may have written them.

    execute: sends one command
    budget:  the most bytes of the shard's events
    cap:     the most deliveries of a watch in flight
    keep_s:  how long an event of which nothing waits is kept, if there is room
    share:   the most bytes of an account's events with deliveries left; None: the budget
    """

    def __init__(
        self,
        execute: Execute,
        shard: int,
        budget: Callable[[], int],
        cap: Callable[[], int] = lambda: CAP,
        keep_s: Callable[[], float] = lambda: KEPT_S,
        share: Callable[[str], int] | None = None,
    ) -> None:
        self._execute = execute
        self._tag = tag_of(shard)
        self._any = (f"{self._tag}leases",)
        self._budget = budget
        self._cap = cap
        self._keep_s = keep_s
        self._share = share or (lambda account: budget())

    @translated()
    async def accept(
        self, integration: str, event: str, event_type: str, body: bytes, account: str = ""
    ) -> int:
        """Keep an event and queue its deliveries; how many. 0 also for one that is known.

        body:    the event as it is delivered
        account: of whose share it is; '': of one that all such events have

        Raises BudgetSpent.
        """
        names = (f"{self._tag}watches:{integration}", f"{self._tag}event:{event}")
        arguments = (
            *(integration, event, event_type, body),
            *(self._budget(), self._cap(), SEEN_S, self._keep_s()),
            *(account, self._share(account)),
        )
        result, deliveries = await self._run(_ACCEPT, names, arguments)
        if result == b"full":
            raise BudgetSpent
        return int(deliveries)

    @translated()
    async def claim(
        self,
        token: str,
        most: int,
        others: int,
        share: float = 1.0,
        most_bytes: int = MOST_CLAIMED_BYTES,
    ) -> Claim:
        """Lease what is due.

        token:      that no other claim has
        most:       how many deliveries
        others:     how many of them may go to watches that are unproven, failing or slow
        share:      of the most of a watch in flight; at least one may be
        most_bytes: of their events; one alone may have more
        """
        lease_us = int(LEASE_S * 1_000_000)
        cap = max(1, int(self._cap() * share))
        most_bytes = min(most_bytes, MOST_CLAIMED_BYTES)
        arguments = (token, most, others, lease_us, cap, VISIT, most_bytes)
        return read_claim(token, await self._run(_CLAIM, self._any, arguments))

    @translated()
    async def renew(self, deliveries: Iterable[Claimed]) -> frozenset[str]:
        """Keep these for another LEASE_S. Returns the ids of those that others may have by now."""
        pairs = [part for each in deliveries for part in (each.token, each.id)]
        arguments = (int(LEASE_S * 1_000_000), *pairs)
        gone = await self._run(_RENEW, self._any, arguments)
        return frozenset(each.decode() for each in gone)

    @translated()
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
            *(FAILURES, int(probe_s * 1_000_000), self._cap()),
        )
        told = await self._run(_FINISH, self._any, arguments)
        return None if told is None else Finished(told[0], told[1] / 1_000_000)

    @translated()
    async def hold(self, delivery: Claimed) -> bool:
        """Give it back without an attempt, and pause its watch, as its account is suspended.

        False: the lease had ended, and another claim may have the delivery.
        """
        arguments = (delivery.token, delivery.id, delivery.integration, self._cap())
        return bool(await self._run(_HOLD, self._any, arguments))

    @translated()
    async def restore(self, delivery: Claimed) -> None:
        """Undo `hold`: the account of its watch is not suspended any more."""
        names = (f"{self._tag}watches:{delivery.integration}",)
        watch = delivery.id.split(":", 2)[1]
        await self._run(_STATUS, names, (watch, "restore"))

    @translated()
    async def purge(self, integration: str) -> None:
        """Forget all events of an integration, also those with deliveries that are not over."""
        left = 1
        while left:
            left = await self._run(_PURGE, self._any, (integration, _DROPPED))

    @translated()
    async def disable(self, watch: str, integration: str, why: str) -> bool:
        """Give a watch no more events, cancel what waits for it, and leave a notice of it.

        If this breaks off, claims cancel the rest. False: it was disabled or removed before.
        """
        arguments, is_new, left = (watch, integration, why, _CANCELLED), False, 1
        while left:
            left, began = await self._run(_DISABLE, self._any, arguments)
            is_new = is_new or bool(began)
        return is_new

    # -- what was accepted and delivered ----------------------------------------------------------

    @translated()
    async def events(
        self, integration: str, most: int = 50, before_us: int = 0, wanted: Filter = ALL
    ) -> Page[KeptEvent]:
        """Those of an integration, the newest first; large ones make a page shorter.

        Of a type, a page is of the next LOOKED_AT at most, as with `deliveries`.

        before_us: accepted before then; 0: any. wanted: by when they were accepted
        """
        looked_at = LOOKED_AT if wanted.type else min(LOOKED_AT, most)
        bounds = bounds_of(wanted, before_us)
        arguments = (integration, *bounds, looked_at, most, wanted.type)
        next_us, found = await self._run(_EVENTS, self._any, arguments)
        return Page(map(read_event, found), int(float(next_us)))

    @translated()
    async def event(self, event: str) -> KeptEvent | None:
        """None: it is not kept any more."""
        found = await self._run(_ONE, self._any, ("event", event))
        return None if found is None else read_event(found)

    @translated()
    async def delivery(self, delivery: str) -> Delivery | None:
        """A delivery with its attempts; None: it is not kept any more."""
        found = await self._run(_ONE, self._any, ("delivery", delivery))
        return None if found is None else read_delivery(found)

    async def deliveries(
        self,
        watch: str,
        most: int = 50,
        before_us: int = 0,
        states: Collection[str] = (),
        wanted: Filter = ALL,
    ) -> Page[Delivery]:
        """Those of a watch, the newest first, of any state or in these states.

        Of the next LOOKED_AT at most: a page may be short or empty though there are more.

        before_us: made before then; 0: any. wanted: by when they were made
        """
        return await self._listed(f"recent:{watch}", most, before_us, wanted, states)

    @translated()
    async def deliveries_of(self, event: str) -> list[Delivery]:
        """Those of an event, the oldest first."""
        found = await self._run(_ONE, self._any, ("deliveries", event))
        return sorted(map(read_delivery, found), key=lambda each: (each.at_us, each.id))

    async def dead(
        self, integration: str, most: int = 50, before_us: int = 0, wanted: Filter = ALL
    ) -> Page[Delivery]:
        """The dead letters of an integration, the last one first.

        One leaves the list once its event is sent to its watch again, by `resend` or `replay`. If
        that is given up too, the new delivery is a dead letter.

        before_us: given up before then; 0: any. wanted: by when they were given up
        """
        return await self._listed(f"dead:{integration}", most, before_us, wanted)

    @translated()
    async def _listed(
        self,
        name: str,
        most: int,
        before_us: int,
        wanted: Filter,
        states: Collection[str] = (),
    ) -> Page[Delivery]:
        looked_at = LOOKED_AT if states or wanted.type else min(LOOKED_AT, most)
        bounds = bounds_of(wanted, before_us)
        arguments = (name, *bounds, looked_at, most, wanted.type, *states)
        next_us, found = await self._run(_DELIVERIES, self._any, arguments)
        return Page(map(read_delivery, found), int(float(next_us)))

    # -- once more ---------------------------------------------------------------------------------

    @translated()
    async def resend(self, event: str, watch: str, account: str = "") -> str | None:
        """Queue a delivery of this event once more: its id. Raises BudgetSpent, ResentTooOften.

        account: as of `accept`
        None:    the event is not kept any more, or the watch is not there or disabled
        """
        arguments = (event, watch, self._cap(), self._budget(), self._share(account))
        made = await self._run(_RESEND, self._any, arguments)
        if made is None:
            return None
        if made[1]:
            raise BudgetSpent if made[1] == 1 else ResentTooOften
        return str(made[0].decode())

    @translated()
    async def replay(
        self, integration: str, watch: str, from_us: int, to_us: int, most: int, account: str = ""
    ) -> Replayed | None:
        """Queue deliveries of the kept events that this watch takes, the oldest first.

        They go after the live ones of the watch. An event of which it has a delivery that is not
        over is left out, and so is one that was sent again as often as it may be. Raises
        BudgetSpent where there is no room for any.

        from_us, to_us: accepted from then, and before then
        most:           deliveries
        account:        as of `accept`
        None:           the watch is not there or disabled
        """
        count, waiting, calls, bound = 0, 0, 0, from_us
        while True:
            number = min(_REPLAYED, most - count)
            arguments = (
                *(integration, watch, bound, f"({to_us}", _REPLAY_LOOKED_AT, number),
                *(self._cap(), self._budget(), self._share(account)),
            )
            found = await self._run(_REPLAY, self._any, arguments)
            if found is None:
                return Replayed(count, False, bound, waiting) if count else None
            queued, next_us, full = int(found[0]), int(found[1]), bool(found[2])
            count, calls = count + queued, calls + 1
            waiting += int(found[3])
            if next_us < 0:
                return Replayed(count, True, 0, waiting)
            bound = next_us
            if full and not count:
                raise BudgetSpent
            if full or count >= most or calls >= _MOST_REPLAY_CALLS:
                return Replayed(count, False, next_us, waiting)

    # -- what the shard has ------------------------------------------------------------------------

    @translated()
    async def stats(self) -> ShardStats:
        found = await self._run(_STATS, self._any, (self._cap(),))
        waiting, in_flight, dead, finished, its_bytes, due_us, breakers, over_us, due = found[:9]
        return ShardStats(
            waiting=waiting,
            due=due,
            in_flight=in_flight,
            dead=dead,
            finished=finished,
            bytes=its_bytes,
            oldest_due_s=due_us / 1_000_000,
            breakers=breakers,
            oldest_finished_s=over_us / 1_000_000 if over_us >= 0 else -1.0,
            accounts=_bytes_of(found[9]),
        )

    @translated()
    async def trim(self, most_bytes: int) -> int:
        """Drop events that are over, some thousand at most; how many.

        Those that were kept for long enough, and the oldest while the shard has more bytes.
        """
        dropped = 0
        for _ in range(_TRIMS):
            arguments = (self._keep_s(), most_bytes, _DROPPED)
            some, more = await self._run(_TRIM, self._any, arguments)
            dropped += some
            if not more:
                break
        return dropped

    # ----------------------------------------------------------------------------------------------

    async def _run(self, script: Script, names: tuple[str, ...], arguments: Iterable[Any]) -> Any:
        return await script.run(self._execute, names, arguments)


def _bytes_of(found: Sequence[bytes]) -> Mapping[str, int]:
    pairs = zip(found[::2], found[1::2], strict=True)
    sizes = {account.decode("utf-8", "replace"): float(its) for account, its in pairs}
    # Another program may have written infinity, which is no number of bytes.
    return {account: int(its) for account, its in sizes.items() if math.isfinite(its)}
