"""The answer of /v1/auth/verify: a key's record, its permissions, what remains of its limits.

A policy may have hundreds of limits, so this is the most expensive answer. Therefore the route has
its own limit, concurrent requests for the same answer share one check, and an answer is cached for
a second. The plan's limits, which are in the answer's head, are read each time.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

from gateway.domain.counters import counter_names
from gateway.domain.identity import Identity
from gateway.domain.keys import KeyRecord
from gateway.domain.limits import MOST_LIMITS, Check, Decision, Limit, Standing
from gateway.domain.meets import RouteLimit, all_limits, reachable
from gateway.domain.policy import Plan, Policy
from gateway.domain.shown import limit_as_json, reset_after_s, rfc3339
from gateway.errors import STORE_UNAVAILABLE
from gateway.proxy.gate import Gate
from gateway.proxy.request import Request

#: How long an answer is cached, unless the key or the policy changes.
FRESH_S: Final = 1.0
#: The most cached answers, of some 200 bytes for each limit.
MOST_KEPT: Final = 256


@dataclass(slots=True, eq=False)
class _CachedAnswer:
    """An answer that is cached, or pending.

    identity, policy: it holds for these very objects
    at_s:             when it was requested, by the clock of `Request.started`
    plan:             the key's plan
    met:              the key's limits, the plan's first
    names:            the names of their counters
    plan_check:       the check of the plan's limits, which are in the answer's head
    per_client:       the limits per address or header
    client_names:     the names of their counters
    waiting:          requests that wait for the limiter; None: it has answered
    body:             None: it is pending, or the store was unavailable
    """

    identity: Identity
    policy: Policy
    at_s: float
    plan: Plan
    met: list[RouteLimit]
    names: tuple[str, ...]
    plan_check: Check
    per_client: tuple[Limit, ...]
    client_names: tuple[str, ...]
    waiting: list[Request] | None = field(default_factory=list)
    body: bytes | None = None


class Verified:
    """The answers of the last second, and the limits that keys of each plan meet."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._policy: Policy | None = None
        #: By plan and billing day, under that policy, for keys without their own limits.
        self._met: dict[tuple[str, int], tuple[tuple[RouteLimit, ...], ...]] = {}
        #: By key id, the oldest first.
        self._cached: OrderedDict[str, _CachedAnswer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cached)

    def answer(self, request: Request) -> None:
        """Answer an admitted request, now or when the limiter has answered."""
        identity = request.identity
        assert identity is not None, "the route requires a key"
        cached = self._cached.get(identity.record.id)
        if cached is not None and _holds(cached, request, identity):
            if cached.waiting is None:
                self._answer(cached, request)
            else:
                cached.waiting.append(request)
            return
        cached = self._begin(request, identity)
        cached.waiting = [request]
        self._ask(cached)

    def _begin(self, request: Request, identity: Identity) -> _CachedAnswer:
        policy, record = request.policy, identity.record
        plan = policy.plan(record.plan)
        assert plan is not None, "the key was admitted"
        met = reachable(self._all_limits(policy, plan, record), record, identity.account)
        limits = tuple(limit for _, limit in met)
        names = _names(limits, request, identity)
        of_plan = sum(route is None for route, _ in met)
        per_client = tuple(limit for limit in limits if limit.per not in {"key", "account"})
        cached = _CachedAnswer(
            identity,
            policy,
            request.started,
            plan,
            met,
            names,
            Check(limits[:of_plan], names[:of_plan], 0),
            per_client,
            _names(per_client, request, identity),
        )
        self._keep(cached)
        return cached

    def _all_limits(
        self, policy: Policy, plan: Plan, record: KeyRecord
    ) -> tuple[tuple[RouteLimit, ...], ...]:
        day = record.billing_day
        if record.limits:
            return all_limits(policy, plan, record.limits, day)
        if policy is not self._policy:
            self._policy, self._met = policy, {}
        met = self._met.get((plan.name, day))
        if met is None:
            met = self._met[plan.name, day] = all_limits(policy, plan, {}, day)
        return met

    def _keep(self, cached: _CachedAnswer) -> None:
        """Cache it in place of the key's last one; evict those that are too old or too many."""
        key_id = cached.identity.record.id
        self._cached.pop(key_id, None)
        self._cached[key_id] = cached
        while len(self._cached) > MOST_KEPT or cached.at_s - self._oldest.at_s > FRESH_S:
            self._cached.popitem(last=False)

    @property
    def _oldest(self) -> _CachedAnswer:
        return next(iter(self._cached.values()))

    def _ask(self, cached: _CachedAnswer) -> None:
        """Read all limits in one turn: in checks of at most `MOST_LIMITS`."""
        limits = tuple(limit for _, limit in cached.met)
        parts = range(0, len(limits), MOST_LIMITS)
        found: dict[int, Decision | None] = {}

        def came(part: int, decision: Decision | None) -> None:
            found[part] = decision
            if len(found) == len(parts):
                self._finish(cached, [found[each] for each in parts])

        for start in parts:
            part = slice(start, start + MOST_LIMITS)
            check = Check(limits[part], cached.names[part], 0)
            self._gate.limiter.decide(check, partial(came, start))

    def _finish(self, cached: _CachedAnswer, decisions: Sequence[Decision | None]) -> None:
        standings = [each for found in decisions if found is not None for each in found.standings]
        waiting, cached.waiting = cached.waiting or (), None
        try:
            if len(standings) == len(cached.met):
                cached.body = _body(cached, standings)
        except Exception:
            for request in waiting:
                request.failed()
        if cached.body is None and self._cached.get(cached.identity.record.id) is cached:
            del self._cached[cached.identity.record.id]
        for request in waiting:
            self._answer(cached, request)

    def _answer(self, cached: _CachedAnswer, request: Request) -> None:
        """Read the plan's limits, and answer."""
        if request.is_over:
            return
        if cached.body is None:
            request.answer_refusal(STORE_UNAVAILABLE)
            return
        answer = partial(_answer_headed, request, cached.body, cached.plan_check)
        try:
            self._gate.limiter.decide(cached.plan_check, answer)
        except Exception:
            request.failed()


def _holds(cached: _CachedAnswer, request: Request, identity: Identity) -> bool:
    """Is this the answer to the request, too?"""
    return (
        cached.identity is identity
        and cached.policy is request.policy
        and request.started - cached.at_s < FRESH_S
        and (
            not cached.per_client
            or cached.client_names == _names(cached.per_client, request, identity)
        )
    )


def _names(limits: Sequence[Limit], request: Request, identity: Identity) -> tuple[str, ...]:
    return counter_names(
        limits,
        account=identity.record.account,
        home=identity.record.home,
        lineage=identity.record.lineage,
        ip=request.subject,
        header=request.header,
    )


def _answer_headed(request: Request, body: bytes, check: Check, decision: Decision | None) -> None:
    if request.is_over:
        return
    if decision is None:
        request.answer_refusal(STORE_UNAVAILABLE)
        return
    try:
        request.check, request.decision = check, decision
        request.answer(200, body)
    except Exception:
        request.failed()


def _body(cached: _CachedAnswer, standings: Sequence[Standing]) -> bytes:
    """The answer's JSON. The constant part of each limit is cached."""
    rows = ", ".join(
        f"{_row(limit, None if route is None else route.name)}"
        f'"remaining": {standing.remaining}, "reset_after": {reset_after_s(standing)}}}'
        for (route, limit), standing in zip(cached.met, standings, strict=True)
    )
    head = json.dumps({"valid": True, "key": _key(cached.identity, cached.plan.name)})
    return f'{head[:-1]}, "limits": [{rows}]}}'.encode("ascii")


def _key(identity: Identity, plan: str) -> dict[str, object]:
    record = identity.record
    return {
        "id": record.id,
        "name": record.name,
        "account": record.account,
        "plan": plan,
        "environment": record.environment,
        "scopes": list(record.scopes),
        "permissions": {area: list(actions) for area, actions in record.permissions.items()},
        "ip_ranges": [str(network) for network in record.networks],
        "services": list(identity.account.services),
        "expires": None if record.expires_us is None else rfc3339(record.expires_us),
    }


@lru_cache(maxsize=4_096)
def _row(limit: Limit, route: str | None) -> str:
    """The beginning of a limit's row, up to `remaining`."""
    return json.dumps(limit_as_json(limit, route))[:-1] + ", "
