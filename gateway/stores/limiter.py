"""The limiter over Redis, and what counts while Redis cannot be asked.

Checks asked within one turn of the event loop travel together: one EVALSHA of `lua/decide.lua`
decides up to 128 of them. A check's share of the command is the same each time, so it is encoded
once and kept in `Check.wire`; per request remain a join and the reading of a packed reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from struct import Struct
from typing import Any, Final

import hiredis

from gateway.domain.limits import Check, Decision, Limit, Standing
from gateway.domain.policy import OnStoreFailure
from gateway.domain.ports import Limiter
from gateway.stores.memory import MemoryLimiter
from gateway.stores.wire import StoreLink, command

Done = Callable[[Decision | None], None]

#: Redis does nothing else while it decides a batch; at a few microseconds each, 128 checks keep
#: others waiting for less than a millisecond.
BATCH_CHECKS: Final = 128

_SCRIPT: Final = (files("gateway.stores") / "lua" / "decide.lua").read_bytes()
_LOAD: Final = command("SCRIPT", "LOAD", _SCRIPT)
_EVAL: Final = b"$7\r\nEVALSHA\r\n$40\r\n%s\r\n" % (
    sha1(_SCRIPT, usedforsecurity=False).hexdigest().encode()
)

# The forms of what passes between here and the script, which describes them.
_CHECK: Final = Struct("<dB")
_LIMIT: Final = Struct("<BBddddd")
_REPLY: Final = Struct("<qq")
#: How a check with that many limits is answered: its figures, then two for each limit.
_ANSWERS: Final = tuple(Struct("<BBIq" + "qq" * limits) for limits in range(33))


@dataclass(slots=True, eq=False)
class _Batch:
    """One call of the script. reply: None until it, or an error in its place, has arrived."""

    asked: list[tuple[Check, Done]]
    command: bytes
    sent_s: float
    reloaded: bool = False
    reply: Any = None


class RedisLimiter:
    """Implements `domain.ports.Limiter`; `done` is called in a later turn of the loop.

    clock_us: in place of the server's clock, for replaying the past; each check then goes alone,
              because a batch is decided at one moment
    on_batch: told of each batch: how many checks, and how many seconds the answer took
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
        self._asked: list[tuple[Check, Done]] = []
        self._flying: deque[_Batch] = deque()
        # So that the first batch of a fresh server already finds the script.
        link.on_up.append(self._load)
        if link.is_up:
            self._load()

    def decide(self, check: Check, done: Done) -> None:
        if self._clock_us is not None:
            self._send([(check, done)], self._clock_us())
            return
        if not self._asked:
            self._loop.call_soon(self._flush)
        self._asked.append((check, done))

    def _flush(self) -> None:
        asked, self._asked = self._asked, []
        for start in range(0, len(asked), BATCH_CHECKS):
            self._send(asked[start : start + BATCH_CHECKS], 0)

    def _send(self, asked: list[tuple[Check, Done]], now_us: int) -> None:
        encoded = build_command([check for check, _ in asked], now_us)
        batch = _Batch(asked, encoded, self._loop.time())
        self._flying.append(batch)
        self._link.send(encoded, lambda reply: self._answered(batch, reply))

    def _load(self) -> None:
        self._link.send(_LOAD, lambda _: None)

    def _answered(self, batch: _Batch, reply: Any) -> None:
        if (
            isinstance(reply, hiredis.ReplyError)
            and str(reply).startswith("NOSCRIPT")
            and not batch.reloaded
        ):
            # The server forgot the script, and has decided nothing.
            batch.reloaded = True
            self._load()
            self._link.send(batch.command, lambda reply: self._answered(batch, reply))
            return
        batch.reply = reply
        # A batch that had to be sent again holds up those after it: answers come in order.
        while self._flying and self._flying[0].reply is not None:
            self._deliver(self._flying.popleft())

    def _deliver(self, batch: _Batch) -> None:
        if self._on_batch is not None:
            self._on_batch(len(batch.asked), self._loop.time() - batch.sent_s)
        if not isinstance(batch.reply, bytes):
            for _, done in batch.asked:
                self._tell(done, None)
            return
        self.foreign += _REPLY.unpack_from(batch.reply)[1]
        for (_, done), decision in zip(
            batch.asked, read_reply(batch.reply, [check for check, _ in batch.asked]), strict=True
        ):
            self._tell(done, decision)

    def _tell(self, done: Done, decision: Decision | None) -> None:
        """One asker's mistake must not cost the rest of its batch their answers."""
        try:
            done(decision)
        except Exception as error:
            report = {"message": "an asker of the limiter failed", "exception": error}
            self._loop.call_exception_handler(report)


class FallbackLimiter:
    """Asks the store, and where that cannot be asked does as the policy says.

    mode:    read at each use: "local" counts in this process, "open" lets everything pass and
             counts nothing, "closed" leaves the question unanswered
    workers: how many processes count side by side: each takes its share of every limit
    """

    def __init__(
        self,
        primary: Limiter,
        local: MemoryLimiter,
        mode: Callable[[], OnStoreFailure],
        *,
        workers: int = 1,
    ) -> None:
        self._primary = primary
        self._local = local
        self._mode = mode
        self._workers = workers

    def decide(self, check: Check, done: Done) -> None:
        def answered(decision: Decision | None) -> None:
            done(decision if decision is not None else self._instead(check))

        self._primary.decide(check, answered)

    def _instead(self, check: Check) -> Decision | None:
        mode = self._mode()
        if mode == "closed":
            return None
        if mode == "open":
            return _admitted(check, self._local.clock_us())
        limits = tuple(_share(limit, self._workers, check.cost) for limit in check.limits)
        decision = self._local.decide_now(Check(limits, check.counters, check.cost))
        decision.local = True
        return decision


def build_command(checks: list[Check], now_us: int) -> bytes:
    """The call of the script that decides these checks, at `now_us` or, where that is 0, now."""
    names: list[bytes] = []
    figures: list[bytes] = []
    count = 0
    for check in checks:
        wire = check.wire
        if wire is None:
            wire = check.wire = _encode(check)
        limits = len(check.limits)
        count += limits
        split = -(_CHECK.size + limits * _LIMIT.size)
        names.append(wire[:split])
        figures.append(wire[split:])
    packed = b"".join(figures)
    return b"*%d\r\n%s$%d\r\n%d\r\n%s$%d\r\n%d\r\n$%d\r\n%s\r\n" % (
        count + 5,
        _EVAL,
        len(b"%d" % count),
        count,
        b"".join(names),
        len(b"%d" % now_us),
        now_us,
        len(packed),
        packed,
    )


def read_reply(reply: bytes, checks: list[Check]) -> Iterator[Decision]:
    """The decisions of a reply to `build_command`, in order."""
    now_us = _REPLY.unpack_from(reply)[0]
    at = _REPLY.size
    for check in checks:
        form = _ANSWERS[len(check.limits)]
        allowed, governing, refusing, retry_us, *figures = form.unpack_from(reply, at)
        at += form.size
        yield Decision(
            allowed == 1,
            governing,
            retry_us if retry_us >= 0 else None,
            now_us,
            tuple(map(Standing, figures[::2], figures[1::2])),
            refusing,
        )


def _encode(check: Check) -> bytes:
    """The names of a check's counts as RESP strings, and behind them its packed figures."""
    names = [name.encode() for name in check.counters]
    return b"".join(
        (
            *(b"$%d\r\n%s\r\n" % (len(name), name) for name in names),
            _CHECK.pack(-check.cost if check.dry else check.cost, len(check.limits)),
            *map(_pack_limit, check.limits),
        )
    )


def _pack_limit(limit: Limit) -> bytes:
    if limit.kind == "quota":
        kind, width_us = 2, limit.window_us
    else:
        kind, width_us = int(limit.burst is not None), limit.slot_us
    return _LIMIT.pack(
        kind, limit.shadow, limit.amount, limit.peak, width_us, limit.unit_us, limit.slot_us
    )


def _admitted(check: Check, now_us: int) -> Decision:
    """An admission that nothing has counted."""
    standings = tuple(Standing(limit.amount, 0) for limit in check.limits)
    enforced = [index for index, limit in enumerate(check.limits) if not limit.shadow]
    governing = min(enforced, key=lambda index: check.limits[index].amount, default=0)
    return Decision(True, governing, None, now_us, standings, local=True)


@lru_cache(maxsize=4096)
def _share(limit: Limit, workers: int, cost: int) -> Limit:
    """One worker's part of a limit; never so little that a cost it admits could not pass at all."""
    if workers == 1:
        return limit

    def part(whole: int) -> int:
        return min(whole, max(1, cost, whole // workers))

    burst = None if limit.burst is None else part(limit.burst)
    return replace(limit, amount=part(limit.amount), burst=burst)
