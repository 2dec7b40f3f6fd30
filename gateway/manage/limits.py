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


@dataclass(frozen=True, slots=True)
class LimitNow:
    """A limit that a key meets, and its state.

    routes:  the names of the routes that have it
    of_plan: it is one of the plan's
    """

    limit: Limit
    routes: tuple[str, ...]
    of_plan: bool
    standing: Standing

    @property
    def resettable(self) -> bool:
        """Can it be reset? Not a concurrency limit, which counts requests in progress."""
        return not self.limit.is_leased

    @property
    def used(self) -> int:
        """How many of the amount are in use: of a concurrency limit, how many are open now."""
        return max(0, self.limit.amount - self.standing.remaining)


@dataclass(frozen=True, slots=True)
class AccountLimit:
    """A limit that the keys of an account meet, unless they have their own plan or values.

    standing: its state; None: it is counted for each key
    """

    limit: Limit
    routes: tuple[str, ...]
    of_plan: bool
    standing: Standing | None


@dataclass(frozen=True, slots=True)
class _Met:
    """A limit that a key meets, with its counter and its routes.

    candidates: the counter of its candidate; (): it has none
    """

    limit: Limit
    counter: str
    candidates: tuple[str, ...]
    routes: tuple[str, ...]
    of_plan: bool


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

    async def of_connections(self, key_id: str) -> tuple[LimitNow, ...]:
        """Those that count connections. Raises NotThere."""
        met = await self._met(key_id)
        return await self._standing([one for one in met if one.limit.rules.shared])

    async def of_account(self, name: str) -> tuple[AccountLimit, ...]:
        """Every limit of a key of this account that has no plan and no values of its own."""
        account = await self._keys.account(name) or Account(name)
        key = KeyRecord(name, b"", "", name, "", self._policy().environment, name, 0)
        met = _met_by(self._policy(), with_account(key, account))
        shared = [one for one in met if one.limit.per == "account"]
        states = {
            id(one): now for one, now in zip(shared, await self._standing(shared), strict=True)
        }
        return tuple(
            AccountLimit(one.limit, one.routes, one.of_plan, now.standing if now else None)
            for one in met
            for now in (states.get(id(one)),)
        )

    async def reset(self, actor: Actor, key_id: str, name: str) -> None:
        """Delete the counters of a limit and of its candidate, on all gateways.

        Raises NotThere and Conflict.
        """
        named = [met for met in await self._met(key_id) if met.limit.name == name]
        if not named:
            raise NotThere(f"the key {key_id} meets no limit {name}")
        met = [one for one in named if not one.limit.is_leased]
        if not met:
            raise Conflict(
                f"the limit {name} is a concurrency limit; a lease ends with its request"
            )
        before = await self._standing(met)
        await self._counts.reset(
            sorted({name for one in met for name in (one.counter, *one.candidates)})
        )
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
            limits = tuple(one.limit for one in part)
            counters = tuple(one.counter for one in part)
            decision = await self._counts.decide(Check(limits, counters, 0, dry=True))
            standings += decision.standings
        return tuple(
            LimitNow(one.limit, one.routes, one.of_plan, standing)
            for one, standing in zip(met, standings, strict=True)
        )


def _met_by(policy: Policy, record: KeyRecord) -> list[_Met]:
    """The limits counted for the key or its account, each with all its routes, the plan's first.

    record: as returned by `with_account`
    """
    routes: dict[Limit, list[str]] = {}
    plan = policy.plan(record.plan)
    of_plan = {limit.name for limit in plan.limits} if plan else set()
    for group in all_limits(policy, plan, record.limits, record.billing_day):
        for route, limit in group:
            if route is not None and limit.per in {"key", "account"}:
                routes.setdefault(limit, []).append(route.name)

    def counters(limits: tuple[Limit, ...]) -> tuple[str, ...]:
        return counter_names(
            limits,
            account=record.account,
            home=record.home,
            lineage=record.lineage,
            ip="",
            header=lambda _: "",
        )

    return [
        _Met(
            limit,
            counter,
            counters((limit.candidate,) if limit.candidate else ()),
            tuple(names),
            limit.name in of_plan,
        )
        for (limit, names), counter in zip(routes.items(), counters(tuple(routes)), strict=True)
    ]


def now_as_json(one: LimitNow | AccountLimit) -> dict[str, object]:
    """The limit as /v1/auth/verify shows it, with all of its routes. null: it has no one state"""
    standing = one.standing
    return {
        **limit_as_json(one.limit, None if one.of_plan else one.routes[0]),
        "routes": list(one.routes),
        "remaining": None if standing is None else standing.remaining,
        "reset_after": None if standing is None else reset_after_s(standing),
    }
