"""The limiter over a Redis Cluster.

One EVALSHA may touch one slot only, so the checks of one turn of the event loop are batched by
slot, and the commands to one node are pipelined. The counters of a key and its account share a hash
tag, and with it a slot.

A check whose counters are in several slots (for example, one also limited per address) is decided
in two steps, as nothing in a cluster is atomic across slots. First every slot decides without
counting; if all admit the check, every slot counts it. A refusal in either step refuses. Two
requests that race for the last unit may both pass the first step, so one of them may be counted in
one slot and refused in the other: less than the limit is then admitted, never more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

import hiredis
from redis.crc import key_slot

from gateway.domain.limits import Check, Decision, Standing, governing
from gateway.domain.ports import Review, StoreDown
from gateway.limiting.callbacks import deliver
from gateway.stores.limits.limiter import BATCH_CHECKS, UnsendableLog, reviewed
from gateway.stores.limits.script import UnreadableReply, build_command, is_sendable, read_reply
from gateway.stores.redis.clock import host_us
from gateway.stores.redis.cluster import ClusterNodes

Done = Callable[[Decision | None], None]

#: A check's limits, by slot: their indexes.
Parts = tuple[tuple[int, tuple[int, ...]], ...]

#: The pause before checks are sent again whose counters are moving from one node to another.
_AGAIN_S: Final = 0.005


@dataclass(slots=True, eq=False)
class _Steps:
    """A check in several slots. decisions: those of the current step, one for each part"""

    check: Check
    done: Done
    parts: Parts
    dry: bool
    decisions: list[Decision | None] = field(default_factory=list)
    missing: int = 0


class ClusterLimiter:
    """Implements `domain.ports.ReviewedLimiter`; `done` is called in a later turn of the loop.

    clock_us: replaces the servers' clocks, to replay the past; each check is then sent alone
    store_us: the store's time in this process, for the bounds of calendar periods
    on_batch: called with each decided batch: the number of checks, and the seconds it took
    """

    def __init__(
        self,
        nodes: ClusterNodes,
        *,
        clock_us: Callable[[], int] | None = None,
        store_us: Callable[[], int] = host_us,
        on_batch: Callable[[int, float], None] | None = None,
    ) -> None:
        #: Values under the gateway's names that it has not written; they counted as empty.
        self.foreign = 0
        self._nodes = nodes
        self._clock_us = clock_us
        self._store_us = store_us
        self._on_batch = on_batch
        self._loop = asyncio.get_running_loop()
        self._queued: dict[int, list[tuple[Check, Done]]] = {}
        self._unsendable = UnsendableLog()

    def decide(self, check: Check, done: Done, review: Review | None = None) -> None:
        if review is not None:
            done = partial(_reviewed, check, done, review)
        parts = _parts(check.counters)
        if len(parts) == 1:
            self._ask(parts[0][0], check, done)
        else:
            # A check that counts nothing needs only the first step.
            self._step(_Steps(check, done, parts, dry=True))

    def _ask(self, slot: int, check: Check, done: Done) -> None:
        if self._clock_us is not None:
            self._send(slot, [(check, done)], self._clock_us())
            return
        if not self._queued:
            self._loop.call_soon(self._flush)
        self._queued.setdefault(slot, []).append((check, done))

    def _flush(self) -> None:
        turn, self._queued = self._queued, {}
        for slot, queued in turn.items():
            for start in range(0, len(queued), BATCH_CHECKS):
                self._send(slot, queued[start : start + BATCH_CHECKS], 0)

    def _send(
        self, slot: int, queued: list[tuple[Check, Done]], now_us: int, until_s: float | None = None
    ) -> None:
        sent_s = self._loop.time()
        until_s = until_s or sent_s + self._nodes.timeout_s()
        try:
            encoded = build_command([check for check, _ in queued], now_us, self._store_us)
        except Exception:
            queued = self._sendable(queued)
            if not queued:
                return
            encoded = build_command([check for check, _ in queued], now_us, self._store_us)
        answered = partial(self._answered, slot, queued, now_us, sent_s, until_s)
        self._nodes.send_to(slot, encoded, answered, until_s)

    def _sendable(self, queued: list[tuple[Check, Done]]) -> list[tuple[Check, Done]]:
        """The checks that can be sent. The others get None."""
        sendable = []
        for check, done in queued:
            if is_sendable(check):
                sendable.append((check, done))
            else:
                self._unsendable.note(check)
                deliver(done, None)
        return sendable

    def _answered(
        self,
        slot: int,
        queued: list[tuple[Check, Done]],
        now_us: int,
        sent_s: float,
        until_s: float,
        reply: Any,
    ) -> None:
        if not isinstance(reply, hiredis.ReplyError | StoreDown):
            self._deliver(slot, queued, sent_s, reply)
            return
        error = str(reply) if isinstance(reply, hiredis.ReplyError) else ""
        if error.startswith("TRYAGAIN") and self._loop.time() + _AGAIN_S < until_s:
            # Some of the counters have moved to another node, others not yet; nothing was done. A
            # command with fewer names finds them all on one node sooner.
            for one in queued:
                self._loop.call_later(_AGAIN_S, self._send, slot, [one], now_us, until_s)
            return
        for _, done in queued:
            deliver(done, None)
        if _is_of_the_node(error):
            self._nodes.reconnect(f"the store cannot decide: {error}", slot)

    def _deliver(
        self, slot: int, queued: list[tuple[Check, Done]], sent_s: float, reply: Any
    ) -> None:
        try:
            decisions, foreign = read_reply(reply, [check for check, _ in queued])
        except UnreadableReply as error:
            for _, done in queued:
                deliver(done, None)
            self._nodes.reconnect(f"the store's decisions cannot be read: {error}", slot)
            return
        if self._on_batch is not None:
            self._on_batch(len(queued), self._loop.time() - sent_s)
        self.foreign += foreign
        for (_, done), decision in zip(queued, decisions, strict=True):
            deliver(done, decision)

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
    """A check with only some of a check's limits."""
    costs = None if check.costs is None else tuple(check.costs[index] for index in limits)
    return Check(
        tuple(check.limits[index] for index in limits),
        tuple(check.counters[index] for index in limits),
        check.cost if costs is None or any(costs) else 0,
        dry,
        # A dry check takes no lease, but one of a connection that holds one is admitted.
        lease=check.lease,
        costs=costs,
        connection=check.connection,
        holder=check.holder,
    )


def merge(check: Check, parts: Sequence[tuple[Sequence[int], Decision]]) -> Decision:
    """One decision from the decisions on the parts of a check, as if made in one step.

    parts: for each part the indexes of its limits, in order, and its decision
    """
    standings = [Standing(0, 0)] * len(check.limits)
    waits: dict[int, int | None] = {}
    refusing = 0
    for limits, decision in parts:
        for at, index in enumerate(limits):
            standings[index] = decision.standings[at]
            refusing |= (decision.refusing >> at & 1) << index
        if not decision.allowed:
            waits[limits[decision.governing]] = decision.retry_us
    index = governing(check.limits, standings, waits)
    # The clock is that of the node with the governing counter.
    now_us = next(decision.now_us for limits, decision in parts if index in limits)
    return Decision(not waits, index, waits.get(index), now_us, tuple(standings), refusing)


@lru_cache(maxsize=65_536)
def _parts(counters: tuple[str, ...]) -> Parts:
    """The slots that these names are in. A check without limits may be sent to any slot."""
    slots: dict[int, list[int]] = {}
    for index, name in enumerate(counters):
        slots.setdefault(key_slot(name.encode()), []).append(index)
    return tuple((slot, tuple(indexes)) for slot, indexes in slots.items()) or ((0, ()),)


def _is_of_the_node(error: str) -> bool:
    """Is this error about the node as a whole?

    False where it is about a value of another type, a name that is moving, or a slot without owner.
    """
    elsewhere = ("TRYAGAIN", "ASK", "MOVED", "CLUSTERDOWN Hash slot")
    return bool(error) and "WRONGTYPE" not in error and not error.startswith(elsewhere)
