"""The limiter over Redis.

Checks asked within one turn of the event loop travel together: one EVALSHA of `lua/decide.lua`
decides up to 128 of them.

A server that answers a decision with an error (a replica, one that is out of memory or may not
write to its disk, a user who may not run scripts) would answer the next one with it as well. So the
link is given up, and comes back when a decision of its own (`trial`) has passed. So it is where the
server answers with what is no answer to the checks that it was sent.

A check that cannot be sent fails alone. Whoever asks is answered once, whatever goes wrong.
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
from gateway.observe.seldom import Seldom
from gateway.stores.script import LOAD, UnreadableReply, build_command, is_sendable, read_reply
from gateway.stores.wire import StoreLink

log = logging.getLogger("gateway")

Done = Callable[[Decision | None], None]
Asked = tuple[Check, Done, Review | None]

#: Redis does nothing else while it decides a batch; at a few microseconds each, 128 checks keep
#: others waiting for less than a millisecond.
BATCH_CHECKS: Final = 128

#: The longest reply on a link of limits: the decisions of a batch have 70 KB at most.
MOST_REPLY_BYTES: Final = 1024 * 1024

#: So many of a check's limits are named in the log.
MOST_NAMED: Final = 8

#: What a trial decides. It is never refused, so it always writes; and its count lives for a second.
_PROBE: Final = Limit("probe", "rate", 1_000_000, 1_000_000)


def trial(tag: str = "gateway") -> tuple[bytes, ...]:
    """What a link does before it counts as up (its `setup`): load the script, and decide by it.

    tag: places the probe's count in a cluster
    """
    return LOAD, build_command([Check((_PROBE,), (f"{PREFIX}{{{tag}}}:{_PROBE.counter}",))], 0)


#: Stands for a reply that has not arrived: a server may answer with None.
_NOT_YET: Final = object()


@dataclass(slots=True, eq=False)
class _Batch:
    """One call of the script. reply: what has arrived, which may be an error"""

    asked: list[Asked]
    command: bytes
    sent_s: float
    reloaded: bool = False
    reply: Any = _NOT_YET


class Unsendable:
    """What the log says of checks that cannot be sent: one line a second."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._seldom = Seldom()

    def note(self, check: Check) -> None:
        if self._seldom.left_out("checks", self._loop.time()) is not None:
            names = ", ".join(repr(limit.name) for limit in check.limits[:MOST_NAMED])
            log.error("a check cannot be sent to the store, its limits are: %s", names)


class RedisLimiter:
    """Implements `domain.ports.ReviewedLimiter`; `done` is called in a later turn of the loop.

    clock_us: in place of the server's clock, for replaying the past; each check then goes alone,
              because a batch is decided at one moment
    on_batch: told of each batch that was decided: how many checks, and in how many seconds
    """

    def __init__(
        self,
        link: StoreLink,
        *,
        clock_us: Callable[[], int] | None = None,
        on_batch: Callable[[int, float], None] | None = None,
    ) -> None:
        #: Values found under our names that were not ours, and were taken for empty.
        self.foreign = 0
        self._link = link
        self._clock_us = clock_us
        self._on_batch = on_batch
        self._loop = asyncio.get_running_loop()
        self._asked: list[Asked] = []
        self._flying: deque[_Batch] = deque()
        self._unsendable = Unsendable()
        # So that also on a link without a trial the first batch finds the script.
        link.on_up.append(self._load)
        if link.is_up:
            self._load()

    def decide(self, check: Check, done: Done, review: Review | None = None) -> None:
        if self._clock_us is not None:
            self._send([(check, done, review)], self._clock_us())
            return
        if not self._asked:
            self._loop.call_soon(self._flush)
        self._asked.append((check, done, review))

    def _flush(self) -> None:
        asked, self._asked = self._asked, []
        if not self._link.is_up:  # nothing is in flight then, so this is in order
            self._tell(asked, [None] * len(asked))
            return
        for start in range(0, len(asked), BATCH_CHECKS):
            self._send(asked[start : start + BATCH_CHECKS], 0)

    def _send(self, asked: list[Asked], now_us: int) -> None:
        try:
            encoded = build_command([check for check, _, _ in asked], now_us)
        except Exception:
            asked = self._sendable(asked)
            if not asked:
                return
            encoded = build_command([check for check, _, _ in asked], now_us)
        batch = _Batch(asked, encoded, self._loop.time())
        self._flying.append(batch)
        self._link.send(encoded, lambda reply: self._answered(batch, reply))

    def _sendable(self, asked: list[Asked]) -> list[Asked]:
        """Those that can be sent. The others are answered, and cost these nothing."""
        sendable = []
        for one in asked:
            if is_sendable(one[0]):
                sendable.append(one)
            else:
                self._unsendable.note(one[0])
                self._tell([one], [None])
        return sendable

    def _load(self) -> None:
        self._link.send(LOAD, lambda _: None)

    def _answered(self, batch: _Batch, reply: Any) -> None:
        error = str(reply) if isinstance(reply, hiredis.ReplyError) else ""
        if error.startswith("NOSCRIPT") and not batch.reloaded:
            # The server forgot the script, and has decided nothing.
            batch.reloaded = True
            self._load()
            self._link.send(batch.command, lambda reply: self._answered(batch, reply))
            return
        batch.reply = reply
        # A batch that had to be sent again holds up those after it: answers come in order.
        while self._flying and self._flying[0].reply is not _NOT_YET:
            self._deliver(self._flying.popleft())
        # A value of another type is the matter of the keys in this batch alone.
        if error and "WRONGTYPE" not in error:
            self._link.give_up(f"the store cannot decide: {error}")

    def _deliver(self, batch: _Batch) -> None:
        asked, reply = batch.asked, batch.reply
        if isinstance(reply, hiredis.ReplyError | StoreDown):
            self._tell(asked, [None] * len(asked))
            return
        try:
            decisions, foreign = read_reply(reply, [check for check, _, _ in asked])
        except UnreadableReply as error:
            self._tell(asked, [None] * len(asked))
            self._link.give_up(f"the store's decisions cannot be read: {error}")
            return
        if self._on_batch is not None:
            self._on_batch(len(asked), self._loop.time() - batch.sent_s)
        self.foreign += foreign
        self._tell(asked, decisions)

    def _tell(self, asked: list[Asked], decisions: Sequence[Decision | None]) -> None:
        for (check, done, review), decision in zip(asked, decisions, strict=True):
            # One asker's mistake must not cost the rest of its batch their answers.
            try:
                if review is not None and (decision is None or not decision.allowed):
                    done(reviewed(review, check, decision))
                else:
                    done(decision)
            except Exception as error:
                report_failure(error)


def reviewed(review: Review, check: Check, decision: Decision | None) -> Decision | None:
    """What is told where a request was not admitted; None where the review fails."""
    try:
        return review(check, decision)
    except Exception as error:
        report_failure(error)
        return None


def report_failure(error: Exception) -> None:
    """An asker has failed: say so, and go on."""
    report = {"message": "an asker of the limiter failed", "exception": error}
    asyncio.get_running_loop().call_exception_handler(report)
