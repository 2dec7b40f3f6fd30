"""Replays lines of an access log against a limiter whose clock is the log's.

A line is read, matched with a route of the policy, and decided at its own time; `gateway simulate`
prints the results.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, Protocol

from gateway.domain.counters import counter_names
from gateway.domain.limits import Check, Decision
from gateway.domain.meets import limits_for
from gateway.domain.networks import limit_subject, parse_address
from gateway.domain.policy import FAILED_AUTH, Policy
from gateway.domain.ports import StoreDown
from gateway.domain.routes import is_own
from gateway.errors import Refusal
from gateway.http1.paths import canonical
from gateway.limiting.memory import MemoryLimiter
from gateway.routing import find_route
from gateway.stores.limits.limiter import RedisLimiter
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.connection import StoreConnection

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
#: Later times cannot be divided exactly as Lua numbers: the year 2112.
_LATEST_US: Final = 2**52
_MOST_COST: Final = 2**32 - 1
#: Lines that are sent to a store together.
BATCH: Final = 256
#: Counters kept in process: more than a log is likely to have clients.
_CAPACITY: Final = 1_000_000
_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Line:
    """What a log line says about a request.

    cost:            None: the line has none
    may_lack_fields: the request was not admitted, and the line may lack the fields for a check
    """

    time_us: int
    method: str
    path: str
    client_ip: str
    key_id: str | None
    account: str | None
    plan: str | None
    cost: int | None
    may_lack_fields: bool


def parse_line(raw: bytes) -> Line:
    """Read one line of an access log. Raises ValueError, which says what is wrong."""
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("found invalid JSON, expected one JSON object per line") from None
    if not isinstance(fields, dict):
        raise ValueError("found another JSON value, expected an object")
    cost = fields.get("cost")
    if cost is not None and (type(cost) is not int or not 0 <= cost <= _MOST_COST):
        raise ValueError(f"cost: found {_brief(cost)}, expected a whole number such as 1")
    decision, key_id = fields.get("decision"), _text(fields, "key_id")
    if decision == "refused" and (cost is None or fields.get("limit") in (None, FAILED_AUTH.name)):
        cost = 0  # if another limit is named, that one counted the request before it was refused
    is_admitted = decision in (None, "admitted")
    return Line(
        time_us=parse_time(_text(fields, "time", needed=True) or ""),
        # Empty if the request could not be read that far.
        method=_text(fields, "method", needed=is_admitted) or "",
        path=_text(fields, "path", needed=is_admitted) or "",
        client_ip=_text(fields, "client_ip") or "",
        key_id=key_id,
        account=_text(fields, "account"),
        plan=_text(fields, "plan"),
        cost=cost,
        may_lack_fields=decision == "refused" or not (is_admitted or key_id),
    )


def parse_time(text: str) -> int:
    """RFC 3339 as Unix microseconds, exactly; finer digits are cut off. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
        time_us = (moment - _EPOCH) // _MICROSECOND
    except (ValueError, TypeError, OverflowError):  # TypeError: it has no time zone
        time_us = 0
    if not 0 < time_us < _LATEST_US:
        raise ValueError(
            f"time: found {_brief(text)}, expected a time such as 2026-01-02T03:04:05.000006Z"
        )
    return time_us


def _text(fields: dict[str, Any], name: str, *, needed: bool = False) -> str | None:
    value = fields.get(name)
    if isinstance(value, str) and (value or not needed):
        return value
    if value is None and not needed:
        return None
    raise ValueError(f"{name}: found {_brief(value)}, expected a text")


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"


@dataclass(slots=True)
class Result:
    """The result of a line.

    check:       None: no limit applies, or the line could not be checked
    error:       why it could not be checked
    is_reported: the error is reported; not so if the line may lack fields
    """

    place: str
    line: Line | None = None
    check: Check | None = None
    decision: Decision | None = None
    error: str = ""
    is_reported: bool = False

    def as_json(self) -> dict[str, Any]:
        """The line's JSON."""
        if self.error:
            return {"allowed": False, "error": self.error}
        if self.check is None or self.decision is None:
            return {"allowed": True, "limit": None, "remaining": None, "reset_us": None}
        decision = self.decision
        found = {
            "allowed": decision.allowed,
            "limit": self.check.limits[decision.governing].name,
            "remaining": decision.remaining,
            "reset_us": decision.reset_us,
        }
        return found if decision.allowed else {**found, "retry_us": decision.retry_us}


def replay_lines(
    policy: Policy, replay: Replay, lines: Iterable[tuple[str, bytes]]
) -> Iterator[list[Result]]:
    """Check and decide lines, each with its place. Raises StoreDown."""
    numbered = iter(lines)
    while some := list(islice(numbered, 1 if replay.is_local else BATCH)):
        results = [build_result(policy, place, raw) for place, raw in some]
        asking = [
            (result, result.line.time_us, result.check)
            for result in results
            if result.line is not None and result.check is not None
        ]
        decisions = replay.decide([(now_us, check) for _, now_us, check in asking])
        for (result, *_), decision in zip(asking, decisions, strict=True):
            if decision is None:
                raise StoreDown(f"{result.place}: the store did not decide, the replay ends here")
            result.decision = decision
        yield results


def build_result(policy: Policy, place: str, raw: bytes) -> Result:
    """Build the check of a line; the decision is made later."""
    try:
        line = parse_line(raw)
    except ValueError as error:
        return Result(place, error=str(error), is_reported=True)
    try:
        return Result(place, line, _check(policy, line))
    except ValueError as error:
        return Result(place, line, error=str(error), is_reported=not line.may_lack_fields)


def _check(policy: Policy, line: Line) -> Check | None:
    """The check of a line's request; None: no limit applies. Raises ValueError."""
    if line.path == "*":
        return None  # OPTIONS *, which the gateway answers itself
    table = policy.table
    path = canonical(line.path.encode("utf-8", "surrogatepass"), keeps_slashes=table.keeps_slashes)
    route = path if isinstance(path, Refusal) else find_route(table, line.method, path)
    if isinstance(route, Refusal):
        raise ValueError(f"path: found {_brief(line.path)}, expected one that can be routed")
    if route is None:
        raise ValueError(f"no route for {line.method} {_brief(line.path)}")
    if is_own(route):
        return None
    plan = None
    if route.auth == "key":
        if not line.key_id:
            raise ValueError(f"key_id: found none, and route '{route.name}' requires a key")
        plan = policy.plans.get(line.plan or "")
        if plan is None:
            raise ValueError(f"plan: found {_brief(line.plan)}, expected one of the policies'")
    # Lines are in the order in which requests ended, and there are none for requests in progress:
    # the leases at a given time are unknown.
    limits = tuple(limit for limit in limits_for(plan, route, {}) if not limit.is_leased)
    if not limits:
        return None
    lineage = line.key_id or ""
    names = counter_names(
        limits,
        account=line.account or lineage,
        lineage=lineage,
        ip=_subject(policy, line) if any(limit.per == "ip" for limit in limits) else "",
        header=lambda _: "",
    )
    return Check(limits, names, route.cost if line.cost is None else line.cost)


def _subject(policy: Policy, line: Line) -> str:
    """The subject of the line's address for limits; "" if it has none. Raises ValueError."""
    if not line.client_ip:
        return ""
    try:
        return limit_subject(parse_address(line.client_ip), policy.ipv6_prefix)
    except ValueError:
        expected = "an IP address such as 192.0.2.7"
        raise ValueError(
            f"client_ip: found {_brief(line.client_ip)}, expected {expected}"
        ) from None


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
                limiter.decide(Check(check.limits, names, check.cost), decisions.append)
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
            raise link.last_error or StoreDown(f"{address.label} does not answer") from None
        yield link
    finally:
        await link.stop()
