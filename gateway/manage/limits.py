"""The current state of each limit of a key, and resetting limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.audit import Event
from gateway.domain.counters import counter_names
from gateway.domain.keys import Account, KeyRecord, with_account
from gateway.domain.limits import MOST_LIMITS, Check, Limit, Standing
from gateway.domain.meets import all_limits
from gateway.domain.policy import Policy
from gateway.domain.ports import AuditStore, Counters, KeyStore
from gateway.domain.shown import limit_as_json, reset_after_s
from gateway.manage.audit_log import Actor, note
from gateway.manage.problems import Conflict, NotThere
from gateway.policies.checks import PLAN_LIMIT


@dataclass(frozen=True, slots=True)
class LimitNow:
    """A limit that a key meets, and its state. routes: the names of the routes that have it"""

    limit: Limit
    routes: tuple[str, ...]
    standing: Standing

    @property
    def resettable(self) -> bool:
        """Can it be reset? Not a concurrency limit, which counts requests in progress."""
        return not self.limit.is_leased


@dataclass(frozen=True, slots=True)
class _Met:
    """A limit that a key meets, with its counter and its routes."""

    limit: Limit
    counter: str
    routes: tuple[str, ...]


class Limits:
    """The limits of keys, under the current policy."""

    def __init__(
        self,
        keys: KeyStore,
        counts: Counters,
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

        A limit with different values on some routes is returned once for each. Raises NotThere.
        """
        return await self._standing(await self._met(key_id))

    async def reset(self, actor: Actor, key_id: str, name: str) -> None:
        """Delete the counters of a limit, on all gateways. Raises NotThere and Conflict."""
        named = [met for met in await self._met(key_id) if met.limit.name == name]
        if not named:
            raise NotThere(f"the key {key_id} meets no limit {name}")
        met = [one for one in named if not one.limit.is_leased]
        if not met:
            raise Conflict(
                f"the limit {name} is a concurrency limit; a lease ends with its request"
            )
        before = await self._standing(met)
        await self._counts.reset(sorted({one.counter for one in met}))
        limits = [{"per": one.limit.per, "remaining": one.standing.remaining} for one in before]
        event = Event(
            self._clock_us(),
            str(actor),
            "limit.reset",
            f"key:{key_id}",
            before={"limit": name, "limits": limits},
        )
        await note(self._audit, event)

    async def _met(self, key_id: str) -> list[_Met]:
        record = await self._keys.get(key_id)
        if record is None:
            raise NotThere(f"there is no key {key_id}")
        account = await self._keys.account(record.account) or Account(record.account)
        return _met_by(self._policy(), with_account(record, account))

    async def _standing(self, met: list[_Met]) -> tuple[LimitNow, ...]:
        standings: list[Standing] = []
        for start in range(0, len(met), MOST_LIMITS):
            part = met[start : start + MOST_LIMITS]
            limits, counters = tuple(one.limit for one in part), tuple(one.counter for one in part)
            decision = await self._counts.decide(Check(limits, counters, 0, dry=True))
            standings += decision.standings
        return tuple(
            LimitNow(one.limit, one.routes, standing)
            for one, standing in zip(met, standings, strict=True)
        )


def _met_by(policy: Policy, record: KeyRecord) -> list[_Met]:
    """The limits counted for the key or its account, each with all its routes, the plan's first.

    record: as returned by `with_account`
    """
    routes: dict[Limit, list[str]] = {}
    for group in all_limits(policy, policy.plans.get(record.plan), record.limits):
        for route, limit in group:
            if route is not None and limit.per in {"key", "account"}:
                routes.setdefault(limit, []).append(route.name)
    counters = counter_names(
        tuple(routes), account=record.account, lineage=record.lineage, ip="", header=lambda _: ""
    )
    return [
        _Met(limit, counter, tuple(names))
        for (limit, names), counter in zip(routes.items(), counters, strict=True)
    ]


def now_as_json(one: LimitNow) -> dict[str, object]:
    """The limit as /v1/auth/verify shows it, with all of its routes."""
    return {
        **limit_as_json(one.limit, None if one.limit.name == PLAN_LIMIT else one.routes[0]),
        "routes": list(one.routes),
        "remaining": one.standing.remaining,
        "reset_after": reset_after_s(one.standing),
    }
