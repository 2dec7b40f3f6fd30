"""The limiter over Redis.

The checks of one turn of the event loop are sent together: one EVALSHA of `lua/decide.lua` decides
up to 128 of them.

A server that answers a decision with an error (a replica, one that is out of memory or cannot write
to its disk, a user without permission to run scripts) would answer the next one in the same way. So
the connection is closed, and the next connection counts as up once it has decided a probe
(`probe`). The same is done where the reply is not a valid answer to the checks that were sent.

A check that cannot be sent does not affect others. Each `done` is called once, after a failure too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import hiredis

from gateway.domain.counters import PREFIX
from gateway.domain.limits import Check, Decision, Limit
from gateway.domain.ports import Review, StoreDown
from gateway.limiting.callbacks import report_failed_callback
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.limits.script import (
    LOAD,
    UnreadableReply,
    build_command,
    is_sendable,
    read_reply,
)
from gateway.stores.redis.clock import host_us
from gateway.stores.redis.connection import StoreConnection

log = logging.getLogger("gateway")

Done = Callable[[Decision | None], None]
Queued = tuple[Check, Done, Review | None]

#: A batch blocks Redis; at a few microseconds each, 128 checks block it for less than a
#: millisecond.
BATCH_CHECKS: Final = 128

#: The longest reply on a limiter's connection: the decisions of a batch have 70 KB at most.
MOST_REPLY_BYTES: Final = 1024 * 1024

#: The most limits of a check that are named in the log.
MOST_NAMED: Final = 8

#: The limit of a probe. It is never refused, so it always writes; its counter exists for a second.
_PROBE: Final = Limit("probe", "rate", 1_000_000, 1_000_000)


def probe(tag: str = "gateway") -> tuple[bytes, ...]:
    """The `setup` of a connection: load the script, and decide a check with it.

    tag: the hash tag of the probe's counter in a cluster
    """
    return LOAD, build_command([Check((_PROBE,), (f"{PREFIX}{{{tag}}}:{_PROBE.counter}",))], 0)


#: A reply that has not arrived. Not None, because a server may answer with None.
_NOT_YET: Final = object()


@dataclass(slots=True, eq=False)
class _Batch:
    """One call of the script. reply: may be an error"""

    queued: list[Queued]
    command: bytes
    sent_s: float
    reloaded: bool = False
    reply: Any = _NOT_YET


class UnsendableLog:
    """Logs checks that cannot be sent, at most one a second."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._throttle = LogThrottle()

    def note(self, check: Check) -> None:
        if self._throttle.suppressed("checks", self._loop.time()) is not None:
            names = ", ".join(repr(limit.name) for limit in check.limits[:MOST_NAMED])
            log.error("a check cannot be sent to the store; its limits: %s", names)


class RedisLimiter:
    """Implements `domain.ports.ReviewedLimiter`; `done` is called in a later turn of the loop.

    clock_us: replaces the server's clock, to replay the past; each check is then sent alone,
              because a batch is decided at one moment
    store_us: the store's time in this process, for the bounds of calendar periods
    on_batch: called with each decided batch: the number of checks, and the seconds it took
    """

    def __init__(
        self,
        link: StoreConnection,
        *,
        clock_us: Callable[[], int] | None = None,
        store_us: Callable[[], int] = host_us,
        on_batch: Callable[[int, float], None] | None = None,
    ) -> None:
        #: Values under the gateway's names that it has not written; they counted as empty.
        self.foreign = 0
        self._link = link
        self._clock_us = clock_us
        self._store_us = store_us
        self._on_batch = on_batch
        self._loop = asyncio.get_running_loop()
        self._queued: list[Queued] = []
        self._in_flight: deque[_Batch] = deque()
        self._unsendable = UnsendableLog()
        # A connection without a probe needs the script as well.
        link.on_up.append(self._load)
        if link.is_up:
            self._load()

    def decide(self, check: Check, done: Done, review: Review | None = None) -> None:
        if self._clock_us is not None:
            self._send([(check, done, review)], self._clock_us())
            return
        if not self._queued:
            self._loop.call_soon(self._flush)
        self._queued.append((check, done, review))

    def _flush(self) -> None:
        queued, self._queued = self._queued, []
        if not self._link.is_up:  # nothing is in flight then, so answers stay in order
            self._deliver_to(queued, [None] * len(queued))
            return
        for start in range(0, len(queued), BATCH_CHECKS):
            self._send(queued[start : start + BATCH_CHECKS], 0)

    def _send(self, queued: list[Queued], now_us: int) -> None:
        try:
            encoded = build_command([check for check, _, _ in queued], now_us, self._store_us)
        except Exception:
            queued = self._sendable(queued)
            if not queued:
                return
            encoded = build_command([check for check, _, _ in queued], now_us, self._store_us)
        batch = _Batch(queued, encoded, self._loop.time())
        self._in_flight.append(batch)
        self._link.send(encoded, lambda reply: self._answered(batch, reply))

    def _sendable(self, queued: list[Queued]) -> list[Queued]:
        """The checks that can be sent. The others get None."""
        sendable = []
        for one in queued:
            if is_sendable(one[0]):
                sendable.append(one)
            else:
                self._unsendable.note(one[0])
                self._deliver_to([one], [None])
        return sendable

    def _load(self) -> None:
        self._link.send(LOAD, lambda _: None)

    def _answered(self, batch: _Batch, reply: Any) -> None:
        error = str(reply) if isinstance(reply, hiredis.ReplyError) else ""
        if error.startswith("NOSCRIPT") and not batch.reloaded:
            # The server has lost the script, and has decided nothing.
            batch.reloaded = True
            self._load()
            self._link.send(batch.command, lambda reply: self._answered(batch, reply))
            return
        batch.reply = reply
        # Decisions are delivered in order, so a batch that was sent again delays later ones.
        while self._in_flight and self._in_flight[0].reply is not _NOT_YET:
            self._deliver(self._in_flight.popleft())
        # A value of another type affects only this batch.
        if error and "WRONGTYPE" not in error:
            self._link.reconnect(f"the store cannot decide: {error}")

    def _deliver(self, batch: _Batch) -> None:
        queued, reply = batch.queued, batch.reply
        if isinstance(reply, hiredis.ReplyError | StoreDown):
            self._deliver_to(queued, [None] * len(queued))
            return
        try:
            decisions, foreign = read_reply(reply, [check for check, _, _ in queued])
        except UnreadableReply as error:
            self._deliver_to(queued, [None] * len(queued))
            self._link.reconnect(f"the store's decisions cannot be read: {error}")
            return
        if self._on_batch is not None:
            self._on_batch(len(queued), self._loop.time() - batch.sent_s)
        self.foreign += foreign
        self._deliver_to(queued, decisions)

    def _deliver_to(self, queued: list[Queued], decisions: Sequence[Decision | None]) -> None:
        for (check, done, review), decision in zip(queued, decisions, strict=True):
            # A callback that fails must not affect the rest of its batch.
            try:
                if review is not None and (decision is None or not decision.allowed):
                    done(reviewed(review, check, decision))
                else:
                    done(decision)
            except Exception as error:
                report_failed_callback(error)


def reviewed(review: Review, check: Check, decision: Decision | None) -> Decision | None:
    """The reviewed decision on a check that was not admitted; None where the review fails."""
    try:
        return review(check, decision)
    except Exception as error:
        report_failed_callback(error)
        return None
