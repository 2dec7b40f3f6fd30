"""How much is left of each limit of a key now, and their reset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.domain.audit import Event
from gateway.domain.counters import counter_names
from gateway.domain.keys import Account, KeyRecord, settled
from gateway.domain.limits import MOST_LIMITS, Check, Kind, Limit, Standing
from gateway.domain.plans import limits_for
from gateway.domain.policy import Policy
from gateway.domain.ports import AuditStore, Counts, KeyStore
from gateway.manage.actor import Actor
from gateway.manage.problems import Conflict, NotThere
from gateway.manage.trail import note


@dataclass(frozen=True, slots=True)
class LimitNow:
    """A limit that a key meets, and how it stands.

    kind, amount, burst, window_us, per, shadow: as of a `Limit`
    routes:    those that have it, by name
    remaining: how much is left: 59
    reset_us:  until all of it is back, if nothing more is sent: 60_252_631
    """

    name: str
    kind: Kind
    amount: int
    burst: int | None
    window_us: int
    per: str
    shadow: bool
    routes: tuple[str, ...]
    remaining: int
    reset_us: int


@dataclass(frozen=True, slots=True)
class _Met:
    """A limit that a key meets: where it is counted, and on which routes."""

    limit: Limit
    counter: str
    routes: tuple[str, ...]


class Limits:
    """The limits of keys, under the policy of the moment."""

    def __init__(
        self,
        keys: KeyStore,
        counts: Counts,
        audit: AuditStore,
        policy: Callable[[], Policy],
        clock_us: Callable[[], int],
    ) -> None:
        self._keys = keys
        self._counts = counts
        self._audit = audit
        self._policy = policy
        self._clock_us = clock_us

    async def now(self, key_id: str) -> tuple[LimitNow, ...]:
        """Every limit that is counted for the key or its account, the plan's first.

        A limit that has other figures on some route is told once with each. Raises NotThere.
        """
        return await self._standing(await self._met(key_id))

    async def reset(self, actor: Actor, key_id: str, name: str) -> None:
        """Forget what was counted under a limit, everywhere. Raises NotThere and Conflict."""
        named = [met for met in await self._met(key_id) if met.limit.name == name]
        if not named:
            raise NotThere(f"the key {key_id} meets no limit {name}")
        met = [one for one in named if one.limit.kind != "concurrency"]
        if not met:
            raise Conflict(
                f"the limit {name} counts requests under way; each is given back when it ends"
            )
        before = await self._standing(met)
        await self._counts.reset(sorted({one.counter for one in met}))
        left = [{"per": one.per, "remaining": one.remaining} for one in before]
        event = Event(
            self._clock_us(),
            str(actor),
            "limit.reset",
            f"key:{key_id}",
            before={"limit": name, "left": left},
        )
        await note(self._audit, event)

    async def _met(self, key_id: str) -> list[_Met]:
        record = await self._keys.get(key_id)
        if record is None:
            raise NotThere(f"there is no key {key_id}")
        account = await self._keys.account(record.account) or Account(record.account)
        return limits_met(self._policy(), settled(record, account))

    async def _standing(self, met: list[_Met]) -> tuple[LimitNow, ...]:
        standings: list[Standing] = []
        for start in range(0, len(met), MOST_LIMITS):
            part = met[start : start + MOST_LIMITS]
            limits, counters = tuple(one.limit for one in part), tuple(one.counter for one in part)
            decision = await self._counts.judge(Check(limits, counters, 0, dry=True))
            standings += decision.standings
        return tuple(_now(one, standing) for one, standing in zip(met, standings, strict=True))


def limits_met(policy: Policy, record: KeyRecord) -> list[_Met]:
    """The limits of a key on all routes, each once, the plan's first.

    record: settled with its account
    """
    routes: dict[Limit, list[str]] = {}
    for route_name, limit in _each(policy, record):
        routes.setdefault(limit, []).append(route_name)
    limits = sorted(routes, key=lambda limit: limit.name != "plan")
    counters = counter_names(
        limits, account=record.account, lineage=record.lineage, ip="", header=lambda _: ""
    )
    return [
        _Met(limit, counter, tuple(dict.fromkeys(routes[limit])))
        for limit, counter in zip(limits, counters, strict=True)
    ]


def limit_as_json(one: LimitNow) -> dict[str, object]:
    """All of it."""
    return {
        "name": one.name,
        "kind": one.kind,
        "amount": one.amount,
        "burst": one.burst,
        "window_us": one.window_us,
        "per": one.per,
        "shadow": one.shadow,
        "routes": list(one.routes),
        "remaining": one.remaining,
        "reset_us": one.reset_us,
    }


def _each(policy: Policy, record: KeyRecord) -> Iterator[tuple[str, Limit]]:
    plan = policy.plans.get(record.plan)
    for route in policy.routes.values():
        if route.auth == "key":
            for limit in limits_for(plan, route, record.limits):
                if limit.per in {"key", "account"}:
                    yield route.name, limit


def _now(met: _Met, standing: Standing) -> LimitNow:
    limit = met.limit
    return LimitNow(
        limit.name,
        limit.kind,
        limit.amount,
        limit.burst,
        limit.window_us,
        limit.per,
        limit.shadow,
        met.routes,
        standing.remaining,
        standing.reset_us,
    )
