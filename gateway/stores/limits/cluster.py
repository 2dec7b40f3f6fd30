"""The limiter over a Redis Cluster.

One EVALSHA may touch one slot only, so checks of one turn of the event loop are put together by
slot; what goes to one node goes out pipelined. The names of a caller's counts share a hash tag, and
with it a slot, as long as they are counted per key and account.

A check whose counts lie in several slots (it is also limited per address, say) is decided in two
steps, as nothing in a cluster is atomic over slots. First every slot judges, and counts nothing;
only where all admit it does every slot count. A refusal in either step refuses. Two requests that
race for a last place may both get past the first step, so one of them may be counted in one slot
and be refused in the other: less than the limit is admitted then, never more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

import hiredis
from redis.crc import key_slot

from gateway.domain.limits import Check, Decision, Standing
from gateway.domain.ports import Review, StoreDown
from gateway.stores.limiter import BATCH_CHECKS, Unsendable, report_failure, reviewed
from gateway.stores.nodes import ClusterNodes
from gateway.stores.script import UnreadableReply, build_command, is_sendable, read_reply

Done = Callable[[Decision | None], None]

#: A check's limits, by slot: their indexes.
Parts = tuple[tuple[int, tuple[int, ...]], ...]

#: How soon checks are sent again whose names are on their way from one node to another.
_AGAIN_S: Final = 0.005


@dataclass(slots=True, eq=False)
class _Steps:
    """A check in several slots. decisions: of the step that is under way, one for each part."""

    check: Check
    done: Done
    parts: Parts
    dry: bool
    decisions: list[Decision | None] = field(default_factory=list)
    missing: int = 0


class ClusterLimiter:
    """Implements `domain.ports.ReviewedLimiter`; `done` is called in a later turn of the loop.

    clock_us: in place of the servers' clocks, for replaying the past; each check then goes alone
    on_batch: told of each batch that was decided: how many checks, and in how many seconds
    """

    def __init__(
        self,
        nodes: ClusterNodes,
        *,
        clock_us: Callable[[], int] | None = None,
        on_batch: Callable[[int, float], None] | None = None,
    ) -> None:
        #: Values found under our names that were not ours, and were taken for empty.
        self.foreign = 0
        self._nodes = nodes
        self._clock_us = clock_us
        self._on_batch = on_batch
        self._loop = asyncio.get_running_loop()
        self._asked: dict[int, list[tuple[Check, Done]]] = {}
        self._unsendable = Unsendable()

    def decide(self, check: Check, done: Done, review: Review | None = None) -> None:
        if review is not None:
            done = partial(_reviewed, check, done, review)
        parts = _parts(check.counters)
        if len(parts) == 1:
            self._ask(parts[0][0], check, done)
        else:
            # What counts nothing anyway is decided by the first step alone.
            self._step(_Steps(check, done, parts, dry=True))

    def _ask(self, slot: int, check: Check, done: Done) -> None:
        if self._clock_us is not None:
            self._send(slot, [(check, done)], self._clock_us())
            return
        if not self._asked:
            self._loop.call_soon(self._flush)
        self._asked.setdefault(slot, []).append((check, done))

    def _flush(self) -> None:
        turn, self._asked = self._asked, {}
        for slot, asked in turn.items():
            for start in range(0, len(asked), BATCH_CHECKS):
                self._send(slot, asked[start : start + BATCH_CHECKS], 0)

    def _send(
        self, slot: int, asked: list[tuple[Check, Done]], now_us: int, until_s: float | None = None
    ) -> None:
        sent_s = self._loop.time()
        until_s = until_s or sent_s + self._nodes.timeout_s()
        try:
            encoded = build_command([check for check, _ in asked], now_us)
        except Exception:
            asked = self._sendable(asked)
            if not asked:
                return
            encoded = build_command([check for check, _ in asked], now_us)
        answered = partial(self._answered, slot, asked, now_us, sent_s, until_s)
        self._nodes.send_to(slot, encoded, answered, until_s)

    def _sendable(self, asked: list[tuple[Check, Done]]) -> list[tuple[Check, Done]]:
        """Those that can be sent. The others are answered, and cost these nothing."""
        sendable = []
        for check, done in asked:
            if is_sendable(check):
                sendable.append((check, done))
            else:
                self._unsendable.note(check)
                self._tell(done, None)
        return sendable

    def _answered(
        self,
        slot: int,
        asked: list[tuple[Check, Done]],
        now_us: int,
        sent_s: float,
        until_s: float,
        reply: Any,
    ) -> None:
        if not isinstance(reply, hiredis.ReplyError | StoreDown):
            self._deliver(slot, asked, sent_s, reply)
            return
        error = str(reply) if isinstance(reply, hiredis.ReplyError) else ""
        if error.startswith("TRYAGAIN") and self._loop.time() + _AGAIN_S < until_s:
            # Some of the names have gone to another node, others not yet. Nothing was done, and
            # the fewer names are asked for at once, the sooner they are all in one place.
            for one in asked:
                self._loop.call_later(_AGAIN_S, self._send, slot, [one], now_us, until_s)
            return
        for _, done in asked:
            self._tell(done, None)
        if _is_of_the_node(error):
            self._nodes.give_up(f"the store cannot decide: {error}", slot)

    def _deliver(
        self, slot: int, asked: list[tuple[Check, Done]], sent_s: float, reply: Any
    ) -> None:
        try:
            decisions, foreign = read_reply(reply, [check for check, _ in asked])
        except UnreadableReply as error:
            for _, done in asked:
                self._tell(done, None)
            self._nodes.give_up(f"the store's decisions cannot be read: {error}", slot)
            return
        if self._on_batch is not None:
            self._on_batch(len(asked), self._loop.time() - sent_s)
        self.foreign += foreign
        for (_, done), decision in zip(asked, decisions, strict=True):
            self._tell(done, decision)

    def _tell(self, done: Done, decision: Decision | None) -> None:
        """One asker's mistake must not cost the rest of its batch their answers."""
        try:
            done(decision)
        except Exception as error:
            report_failure(error)

    # -- a check in several slots ------------------------------------------------------------------

    def _step(self, steps: _Steps) -> None:
        steps.missing = len(steps.parts)
        steps.decisions = [None] * len(steps.parts)
        for index, (slot, limits) in enumerate(steps.parts):
            part = part_of(steps.check, limits, dry=steps.dry)
            self._ask(slot, part, partial(self._part_came, steps, index))

    def _part_came(self, steps: _Steps, index: int, decision: Decision | None) -> None:
        steps.decisions[index] = decision
        steps.missing -= 1
        if steps.missing:
            return
        found = [decision for decision in steps.decisions if decision is not None]
        counts = steps.check.cost > 0 and not steps.check.dry
        if len(found) < len(steps.parts):
            steps.done(None)
        elif steps.dry and counts and all(decision.allowed for decision in found):
            steps.dry = False
            self._step(steps)
        else:
            limits = [limits for _, limits in steps.parts]
            steps.done(merge(steps.check, list(zip(limits, found, strict=True))))


def _reviewed(check: Check, done: Done, review: Review, decision: Decision | None) -> None:
    is_admitted = decision is not None and decision.allowed
    done(decision if is_admitted else reviewed(review, check, decision))


def part_of(check: Check, limits: Sequence[int], *, dry: bool) -> Check:
    """The question about some of a check's limits."""
    return Check(
        tuple(check.limits[index] for index in limits),
        tuple(check.counters[index] for index in limits),
        check.cost,
        dry,
        # Who is only judged takes no lease.
        lease=0 if dry else check.lease,
    )


def merge(check: Check, parts: Sequence[tuple[Sequence[int], Decision]]) -> Decision:
    """One decision out of those about parts of a check's limits, as if they had been made at once.

    Each part comes with the indexes of its limits, which are in order.
    """
    standings = [Standing(0, 0)] * len(check.limits)
    refusing, governing, ruling = 0, 0, None
    for limits, decision in parts:
        for at, index in enumerate(limits):
            standings[index] = decision.standings[at]
            refusing |= (decision.refusing >> at & 1) << index
        # Where any refuses, the longest wait governs; ties go to the one that stands first.
        first = limits[decision.governing]
        if not decision.allowed and (
            ruling is None or (-_wait(decision), first) < (-_wait(ruling), governing)
        ):
            ruling, governing = decision, first
    if ruling is not None:
        return Decision(
            False, governing, ruling.retry_us, ruling.now_us, tuple(standings), refusing
        )
    enforced = [index for index, limit in enumerate(check.limits) if not limit.shadow]
    governing = min(enforced, key=lambda index: standings[index].remaining, default=0)
    # Times are told from the clock of the node that keeps the governing count.
    now_us = next(decision.now_us for limits, decision in parts if governing in limits)
    return Decision(True, governing, None, now_us, tuple(standings), refusing)


@lru_cache(maxsize=65_536)
def _parts(counters: tuple[str, ...]) -> Parts:
    """Which slots these names lie in. A check of no limits may go to any."""
    slots: dict[int, list[int]] = {}
    for index, name in enumerate(counters):
        slots.setdefault(key_slot(name.encode()), []).append(index)
    return tuple((slot, tuple(indexes)) for slot, indexes in slots.items()) or ((0, ()),)


def _wait(decision: Decision) -> float:
    """Order of waits: never is the longest."""
    return float("inf") if decision.retry_us is None else decision.retry_us


def _is_of_the_node(error: str) -> bool:
    """Would the node answer whatever it is asked with this error?

    Not where it is about a value of another type, a name on its way, or a slot that nobody owns.
    """
    elsewhere = ("TRYAGAIN", "ASK", "MOVED", "CLUSTERDOWN Hash slot")
    return bool(error) and "WRONGTYPE" not in error and not error.startswith(elsewhere)
