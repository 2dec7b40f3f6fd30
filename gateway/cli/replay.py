"""Replays lines of an access log against a limiter whose clock is the log's.

`outcome` says what the limiter is asked for a line; it decides at the line's own time, in the order
of the lines. `gateway simulate` prints the results.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

from gateway.cli.log_files import Placed
from gateway.cli.log_lines import Line
from gateway.cli.outcome import Answer, Expected, answer_now, answer_then, expect
from gateway.domain.limits import Check, Decision
from gateway.domain.policy import Policy
from gateway.domain.ports import StoreDown
from gateway.limiting.memory import MemoryLimiter
from gateway.stores.limits.limiter import RedisLimiter
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.connection import StoreConnection
from gateway.stores.redis.reasons import with_cure

#: Lines that are sent to a store together.
BATCH: Final = 256
#: Counters kept in process: more than a log is likely to have clients.
_CAPACITY: Final = 1_000_000
_TIMEOUT_S: Final = 2.0
#: How far lines of several workers may be out of order.
_UNORDERED_US: Final = 1_000_000


@dataclass(slots=True)
class Result:
    """The result of a line.

    line, expected: None: it could not be read, or not decided
    time_us:  at which it was decided
    decision: None: the limiter was not asked
    fault:    why it could not be read or decided
    """

    place: str
    line: Line | None = None
    expected: Expected | None = None
    time_us: int = 0
    decision: Decision | None = None
    fault: str = ""

    @property
    def check(self) -> Check | None:
        """What the limiter was asked."""
        return None if self.expected is None else self.expected.check

    def answers(self) -> tuple[Answer | None, Answer] | None:
        """What happened (None: the line does not say it), and what would; None: not decided."""
        if self.line is None or self.expected is None:
            return None
        return answer_then(self.line), answer_now(self.line, self.expected, self.decision)

    def as_json(self) -> dict[str, Any]:
        """The line's JSON. Of a line with a status also what happened, and what would."""
        answers = self.answers()
        if answers is None:
            return {"allowed": False, "error": self.fault}
        then, now = answers
        shown = self._decided(now)
        return shown if then is None else {**shown, "then": then.kind, "now": now.kind}

    def _decided(self, now: Answer) -> dict[str, Any]:
        assert self.expected is not None
        check, decision = self.check, self.decision
        if self.expected.error and now.kind != "limited":
            return {"allowed": False, "error": self.expected.error}
        if check is None or decision is None:
            allowed = now.kind not in ("refused", "failed")
            return {"allowed": allowed, "limit": None, "remaining": None, "reset_us": None}
        found = {
            "allowed": decision.allowed,
            "limit": check.limits[decision.governing].name,
            "remaining": decision.remaining,
            "reset_us": decision.reset_us,
        }
        return found if decision.allowed else {**found, "retry_us": decision.retry_us}


def replay_lines(
    policy: Policy, replay: Replay, lines: Iterable[Placed], plan: str | None = None
) -> Iterator[list[Result]]:
    """Decide lines, each with its place. plan: of lines that have none. Raises StoreDown."""
    numbered = iter(lines)
    latest_us = 0
    while some := list(islice(numbered, 1 if replay.is_local else BATCH)):
        results = [build_result(policy, place, line, plan) for place, line in some]
        asking = list[tuple[Result, Check]]()
        for result in results:
            if result.line is not None and result.check is not None:
                result.time_us = latest_us = _time_of(result.line, latest_us)
                asking.append((result, result.check))
        decisions = replay.decide([(result.time_us, check) for result, check in asking])
        for (result, _), decision in zip(asking, decisions, strict=True):
            if decision is None:
                raise StoreDown(f"{result.place}: the store did not decide, the replay ends here")
            result.decision = decision
        yield results


def build_result(policy: Policy, place: str, line: Line | str, plan: str | None) -> Result:
    """Build the check of a line; the decision is made later. line: or why it cannot be read"""
    if isinstance(line, str):
        return Result(place, fault=line)
    try:
        return Result(place, line, expect(policy, line, plan))
    except ValueError as error:
        return Result(place, line, fault=str(error))


def _time_of(line: Line, latest_us: int) -> int:
    """When a line is decided: at its time, or, if it took until then, with the line before it.

    A line is written at its request's end, after those of requests that came later. At its own time
    the clock would step back for the limiter, which would end its windows early.
    """
    if line.duration_us is None or line.time_us >= latest_us:
        return line.time_us
    is_late = line.time_us + line.duration_us + _UNORDERED_US >= latest_us
    return latest_us if is_late else line.time_us


class Replay(Protocol):
    """A limiter whose clock is the log's. is_local: a decision needs no round trip"""

    is_local: bool

    def decide(self, asked: Sequence[tuple[int, Check]]) -> list[Decision | None]:
        """Decide each check at its time, in order."""
        ...


@contextmanager
def open_replay(address: StoreAddress) -> Iterator[Replay]:
    """A replay on the store at this address; its counters there are removed at the end."""
    if address.kind == "memory":
        yield _MemoryReplay()
        return
    with asyncio.Runner() as runner:
        replay = _RedisReplay(address, runner)
        try:
            yield replay
        finally:
            replay.clean_up()


class _MemoryReplay:
    is_local = True

    def __init__(self) -> None:
        self._now_us = 0
        self._limiter = MemoryLimiter(lambda: self._now_us, capacity=_CAPACITY)

    def decide(self, asked: Sequence[tuple[int, Check]]) -> list[Decision | None]:
        return [self._decide(now_us, check) for now_us, check in asked]

    def _decide(self, now_us: int, check: Check) -> Decision:
        self._now_us = now_us
        return self._limiter.decide_now(check)


class _RedisReplay:
    """Counts in Redis under its own prefix, and keeps the names, to remove them."""

    is_local = False

    def __init__(self, address: StoreAddress, runner: asyncio.Runner) -> None:
        self._address = address
        self._runner = runner
        self._prefix = f"gw:simulate:{secrets.token_hex(8)}:"
        self._names: set[str] = set()
        self._now_us = 0

    def decide(self, asked: Sequence[tuple[int, Check]]) -> list[Decision | None]:
        return self._runner.run(self._decide(asked))

    def clean_up(self) -> None:
        if self._names:
            self._runner.run(self._remove())

    async def _decide(self, asked: Sequence[tuple[int, Check]]) -> list[Decision | None]:
        decisions: list[Decision | None] = []
        async with _connected(self._address) as link:
            limiter = RedisLimiter(link, clock_us=lambda: self._now_us)
            for self._now_us, check in asked:
                names = tuple(self._prefix + name for name in check.counters)
                self._names.update(names)
                renamed = Check(check.limits, names, check.cost, costs=check.costs)
                limiter.decide(renamed, decisions.append)
            # Replies arrive in order, so this one arrives after all decisions.
            await link.ask("PING")
        return decisions

    async def _remove(self) -> None:
        names = list(self._names)
        async with _connected(self._address) as link:
            for start in range(0, len(names), BATCH):
                await link.ask("UNLINK", *names[start : start + BATCH])


@asynccontextmanager
async def _connected(address: StoreAddress) -> AsyncIterator[StoreConnection]:
    link = StoreConnection(address, timeout_s=_TIMEOUT_S)
    link.start()
    try:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await link.wait_up()
        except TimeoutError:
            reason = link.last_error or f"{address.label} does not answer"
            raise StoreDown(with_cure(reason)) from None
        yield link
    finally:
        await link.stop()
