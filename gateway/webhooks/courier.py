"""Delivers what is due: claims deliveries, sends them, and records how each attempt ended.

Several couriers share the work without knowing of each other. One that dies loses nothing: what it
had is claimed by another one when its lease ends.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from gateway import tasks
from gateway.domain.ports import CorruptRecord, StoreDown
from gateway.domain.webhooks.schedule import (
    GivenUp,
    after_failure,
    is_success,
    is_to_be_disabled,
    probe_after_s,
)
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.domain.webhooks.watches import Watch
from gateway.observe.log_throttle import LogThrottle
from gateway.observe.webhook_metrics import WebhookMetrics
from gateway.stores.webhooks.queue import (
    LEASE_S,
    RENEW_S,
    Attempt,
    Claimed,
    DeliveryQueue,
    Finished,
)
from gateway.stores.webhooks.records import read_watch
from gateway.webhooks.sender import Answer, Sender
from gateway.webhooks.signed import headers_of

log = logging.getLogger("gateway")

#: How often a shard is looked at without being told that something is due.
LOOK_S: Final = 0.25
#: The share of slots for watches that are unproven, failing or slow: they may all hang.
OTHERS: Final = 0.25
#: The most deliveries of one claim, which takes the server some milliseconds.
MOST_CLAIMED: Final = 256
#: A delivery that takes longer gives its slot to another one: good endpoints may begin to hang, and
#: their deliveries then have all slots. Up to twice as many as there are slots are in flight; the
#: more there are, the fewer of one watch begin.
GIVES_BACK_S: Final = 1.0
#: The bytes of events in flight, which are bounded as slots are: up to twice as many with those of
#: deliveries that take longer. An endpoint that reads nothing holds three times its event in this
#: process, and one event may be on its way to fifty of them at once.
MOST_BYTES: Final = 64 * 1024 * 1024
#: The share of slots and bytes that is claimed at once then, as every claim lessens the share of a
#: watch.
_STEP: Final = 0.125
#: After an error of the store, and between attempts to record an outcome.
_PAUSE_S: Final = 0.25
_LOST_RECORD: Final = "the record of the watch cannot be read"
_FAULT: Final = "the gateway could not make the attempt"


@dataclass(slots=True)
class _Used:
    """Slots, or bytes. slow: by deliveries that gave theirs back; others: to watches not good"""

    all: int = 0
    slow: int = 0
    others: int = 0

    def room(self, most: int) -> tuple[int, float]:
        """How many more may be used now, and what share of the usual number one watch may have."""
        left = 2 * most - self.all
        if left > most:
            return left - most, 1.0
        free = most - self.all + self.slow
        return min(free, left, max(1, int(most * _STEP))), left / most

    def others_room(self, most: int) -> int:
        """How many more of them the watches that are not good may have."""
        return max(0, max(1, int(most * OTHERS)) - self.others)


@dataclass(slots=True)
class _Shard:
    """A shard, and what this courier has of it.

    wake:     set when it has to be looked at
    is_short: its last claim could take none of the watches that are not good
    """

    queue: DeliveryQueue
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    held: dict[str, Claimed] = field(default_factory=dict)
    is_short: bool = False


@dataclass(slots=True)
class _Flight:
    """A delivery in flight. is_slow: it gave its slot and its bytes back"""

    shard: _Shard
    claimed: Claimed
    is_slow: bool = False


class Courier:
    """Delivers for all shards until it is stopped.

    master:      the key of which the secrets of watches are derived
    now_us:      Unix microseconds
    is_suspended: is this account, whose events wait then? Raises StoreDown
    """

    def __init__(
        self,
        queues: Sequence[DeliveryQueue],
        sender: Sender,
        master: bytes,
        settings: Callable[[], WebhookSettings] = WebhookSettings,
        *,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
        dice: Callable[[], float] = random.random,
        is_suspended: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self.metrics = WebhookMetrics()
        self._shards = [_Shard(queue) for queue in queues]
        self._sender = sender
        self._master = master
        self._settings = settings
        self._now_us = now_us
        self._dice = dice
        self._is_suspended = is_suspended
        self._name = secrets.token_hex(8)
        self._claims = 0
        self._slots, self._bytes = _Used(), _Used()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._stopping = False
        self._throttle = LogThrottle()

    async def run(self) -> None:
        """Deliver until cancelled, or until `stop` and all that is in flight has ended."""
        loops = [tasks.spawn(self._serve(shard), "claims") for shard in self._shards]
        renewals = tasks.spawn(self._renew(), "renewals of leases")
        try:
            await asyncio.gather(*loops)
            while self._in_flight:
                await asyncio.wait(self._in_flight)
        finally:
            await tasks.end(renewals, *loops, *self._in_flight)

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopping = True
        self._freed.set()
        for shard in self._shards:
            shard.wake.set()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def wake(self, shard: int) -> None:
        """Something of this shard is due."""
        self._shards[shard].wake.set()

    # -- claiming ----------------------------------------------------------------------------------

    async def _serve(self, shard: _Shard) -> None:
        while True:
            wait_s = 0.0
            try:
                # One at a time: two shards must not both fill the same free slots.
                async with self._claiming:
                    if self._stopping:
                        return
                    free, share = self._slots.room(self._settings().slots)
                    free_bytes, share_of_bytes = self._bytes.room(MOST_BYTES)
                    if free > 0 and free_bytes > 0:
                        # Before the claim: what becomes due meanwhile may not be in its answer.
                        shard.wake.clear()
                        wait_s = await self._claim(
                            *(shard, min(free, MOST_CLAIMED), free_bytes),
                            min(share, share_of_bytes),
                        )
                    else:
                        self._freed.clear()
                        await self._freed.wait()
            except StoreDown as error:
                self._warn("deliveries cannot be claimed", error)
                wait_s = _PAUSE_S
            except Exception as error:
                # Whatever another program wrote there: it must not end the deliveries of all.
                self._warn("deliveries cannot be claimed", error, trace=True)
                wait_s = _PAUSE_S
            if wait_s > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await shard.wake.wait()

    def _warn(self, words: str, error: Exception | str, *, trace: bool = False) -> None:
        """Once a second for all shards, which have one store. trace: with where it was raised"""
        if (suppressed := self._throttle.suppressed(words, time.monotonic())) is not None:
            more = f" ({suppressed} such lines were suppressed)" if suppressed else ""
            told = error if trace and isinstance(error, Exception) else None
            log.warning("%s: %s%s", words, error, more, exc_info=told)

    async def _claim(self, shard: _Shard, most: int, most_bytes: int, share: float) -> float:
        """Claim and begin; how long to wait for the next time."""
        self._claims += 1
        others = self._slots.others_room(self._settings().slots)
        if not self._bytes.others_room(MOST_BYTES):
            others = 0
        shard.is_short = not others
        token = f"{self._name}.{self._claims}"
        claim = await shard.queue.claim(token, most, others, share, most_bytes)
        self.metrics.leases_lost += claim.lost
        for fault in claim.faults:
            self._warn("deliveries of a watch cannot be claimed", fault)
        for claimed in claim.deliveries:
            self._begin(shard, claimed)
        if claim.deliveries:
            return 0.0
        return LOOK_S if claim.wait_s is None else min(LOOK_S, max(claim.wait_s, 0.001))

    def _begin(self, shard: _Shard, claimed: Claimed) -> None:
        flight = _Flight(shard, claimed)
        shard.held[claimed.id] = claimed
        self._use(flight, 1)
        task = tasks.spawn(self._deliver(shard, claimed), "delivery")
        self._in_flight.add(task)
        timer = asyncio.get_running_loop().call_later(GIVES_BACK_S, self._give_back, flight)
        task.add_done_callback(partial(self._ended, flight, timer))

    def _give_back(self, flight: _Flight) -> None:
        self._use(flight, -1)
        flight.is_slow = True
        self._use(flight, 1)
        self._freed.set()

    def _ended(
        self, flight: _Flight, timer: asyncio.TimerHandle, delivery: asyncio.Task[None]
    ) -> None:
        timer.cancel()
        self._in_flight.discard(delivery)
        self._use(flight, -1)
        # If its lease was lost, this courier may have claimed it again.
        held, its = flight.shard.held, flight.claimed
        if held.get(its.id) is its:
            del held[its.id]
        self._freed.set()
        if not its.is_good:
            for each in self._shards:
                if each.is_short:
                    each.wake.set()

    def _use(self, flight: _Flight, sign: int) -> None:
        """Count a delivery in flight; sign: -1: no more"""
        for used, number in ((self._slots, 1), (self._bytes, len(flight.claimed.body))):
            used.all += sign * number
            used.slow += sign * number * flight.is_slow
            used.others += sign * number * (not flight.claimed.is_good)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            # At once: one node of a cluster that does not answer must not end the leases of others.
            await asyncio.gather(*(self._renew_of(each) for each in self._shards if each.held))

    async def _renew_of(self, shard: _Shard) -> None:
        try:
            await shard.queue.renew(tuple(shard.held.values()))
        except StoreDown as error:
            self._warn("leases cannot be renewed", error)
        except Exception as error:
            self._warn("leases cannot be renewed", error, trace=True)

    # -- one delivery ------------------------------------------------------------------------------

    async def _deliver(self, shard: _Shard, claimed: Claimed) -> None:
        event, watch_id, _ = claimed.id.split(":", 2)
        if await self._is_held(shard, claimed):
            return
        began_us = self._now_us()
        try:
            watch = read_watch(watch_id, claimed.watch)
            answer = await self._send(watch, event, claimed.body)
        except CorruptRecord:
            answer = Answer(0, 0, _LOST_RECORD)
        except Exception as error:
            # It counts as a failed attempt: else it would be made again for ever.
            self._warn("an attempt failed in the gateway", error, trace=True)
            answer = Answer(0, 0, _FAULT)
        self._count(claimed, answer, began_us)
        attempt = Attempt(began_us, answer.ms, answer.status, answer.found)
        await self._record(shard, claimed, watch_id, answer, attempt)

    async def _is_held(self, shard: _Shard, claimed: Claimed) -> bool:
        """Does it wait, as its account is suspended? Without the store it waits for its lease."""
        if self._is_suspended is None or not claimed.account:
            return False
        try:
            if await self._is_suspended(claimed.account):
                await shard.queue.hold(claimed)
                # Whoever has resumed it meanwhile has not seen this watch held.
                if not await self._is_suspended(claimed.account):
                    await shard.queue.restore(claimed)
                return True
        except StoreDown as error:
            self._warn("an account cannot be read before its deliveries", error)
            return True
        return False

    def _count(self, claimed: Claimed, answer: Answer, began_us: int) -> None:
        self.metrics.attempted(answer.status, answer.ms / 1000)
        if not claimed.attempts:
            self.metrics.age_s.add(max(0, began_us - claimed.at_us) / 1_000_000)

    async def _send(self, watch: Watch, event: str, body: bytes) -> Answer:
        names = self._settings().names
        headers = headers_of(watch, event, body, self._master, names, self._now_us())
        return await self._sender.send(watch.url, body, headers)

    async def _record(
        self, shard: _Shard, claimed: Claimed, watch: str, answer: Answer, attempt: Attempt
    ) -> None:
        if is_success(answer.status):
            if await self._finish(shard, claimed, "delivered", attempt):
                self.metrics.deliveries["delivered"] += 1
            return
        follows = after_failure(
            claimed.attempts + 1,
            (self._now_us() - claimed.at_us) / 1_000_000,
            self._dice(),
            status=answer.status or None,
            retry_after_s=answer.retry_after_s,
        )
        probe_s = probe_after_s(claimed.openings, self._dice())
        if isinstance(follows, GivenUp):
            finished = await self._finish(
                shard, claimed, "dead", attempt, reason=follows.reason, probe_s=probe_s
            )
        else:
            finished = await self._finish(
                shard, claimed, "waiting", attempt, wait_s=follows.wait_s, probe_s=probe_s
            )
        if finished is None:
            return
        result = "dead" if isinstance(follows, GivenUp) else "failed"
        self.metrics.deliveries[result] += 1
        if isinstance(follows, GivenUp) and follows.reason == "gone":
            await self._disable(shard, claimed, watch, "it answered 410 Gone")
        elif is_to_be_disabled(finished.failed, finished.silent_s):
            hours = finished.silent_s / 3600
            await self._disable(shard, claimed, watch, f"no success for {hours:.0f} hours")

    async def _finish(
        self,
        shard: _Shard,
        claimed: Claimed,
        result: Literal["delivered", "waiting", "dead"],
        attempt: Attempt,
        *,
        wait_s: float = 0.0,
        reason: str = "",
        probe_s: float = 0.0,
    ) -> Finished | None:
        """Record it; while the store is away, for as long as the lease may still be there."""
        give_up = time.monotonic() + LEASE_S
        while True:
            try:
                finished = await shard.queue.finish(
                    claimed, result, attempt, wait_s=wait_s, reason=reason, probe_s=probe_s
                )
            except StoreDown as error:
                if time.monotonic() > give_up:
                    self._warn("an attempt cannot be recorded", error)
                    return None
                await asyncio.sleep(_PAUSE_S)
            else:
                self.metrics.leases_lost += finished is None
                return finished

    async def _disable(self, shard: _Shard, claimed: Claimed, watch: str, why: str) -> None:
        try:
            is_new = await shard.queue.disable(watch, claimed.integration, why)
        except StoreDown as error:
            # Its next failure disables it.
            self._warn("watches cannot be disabled", error)
            return
        if not is_new:
            return  # by another attempt that was in flight
        self.metrics.watches_disabled += 1
        # One line a second for all: a customer can resume a watch again and again.
        if (suppressed := self._throttle.suppressed("disabled", time.monotonic())) is not None:
            more = f" ({suppressed} more were disabled)" if suppressed else ""
            log.warning("watch %s was disabled: %s%s", watch, why, more)
