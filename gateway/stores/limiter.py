"""The limiter over Redis.

Checks asked within one turn of the event loop travel together: one EVALSHA of `lua/decide.lua`
decides up to 128 of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import hiredis

from gateway.domain.limits import Check, Decision
from gateway.stores.script import LOAD, build_command, foreign_values, read_reply
from gateway.stores.wire import StoreLink

Done = Callable[[Decision | None], None]

#: Redis does nothing else while it decides a batch; at a few microseconds each, 128 checks keep
#: others waiting for less than a millisecond.
BATCH_CHECKS: Final = 128


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
        self._link.send(LOAD, lambda _: None)

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
        self.foreign += foreign_values(batch.reply)
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
