"""The answer of /v1/auth/verify: a key's record, its permissions, what remains of its limits.

A policy may have hundreds of limits, so this is the most expensive answer. Therefore the route has
its own limit, concurrent requests for the same answer share one check, and an answer is cached for
a second. The plan's limit, which is in the answer's head, is read each time.
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
from gateway.domain.limits import MOST_LIMITS, Check, Decision, Limit, Standing
from gateway.domain.meets import Met, limits_met, reachable
from gateway.domain.policy import Policy
from gateway.domain.shown import limit_as_json, reset_after_s, rfc3339
from gateway.errors import STORE_UNAVAILABLE
from gateway.proxy.gate import Gate
from gateway.proxy.request import Request

#: How long an answer is cached, unless the key or the policy changes.
FRESH_S: Final = 1.0
#: The most cached answers, of some 200 bytes for each limit.
MOST_KEPT: Final = 256


@dataclass(slots=True, eq=False)
class _Told:
    """An answer that is cached, or pending.

    identity, policy: it holds for these very objects
    at_s:             when it was requested, by the clock of `Request.started`
    met:              the key's limits, the plan's first
    names:            the names of their counters
    per_caller:       the limits per address or header
    callers:          the names of their counters
    waiting:          requests that wait for the limiter; None: it has answered
    body:             None: it is pending, or the store was unavailable
    """

    identity: Identity
    policy: Policy
    at_s: float
    met: list[Met]
    names: tuple[str, ...]
    per_caller: tuple[Limit, ...]
    callers: tuple[str, ...]
    waiting: list[Request] | None = field(default_factory=list)
    body: bytes | None = None


class Verified:
    """The answers of the last second, and the limits that keys of each plan meet."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._policy: Policy | None = None
        #: By plan, under that policy, for keys without their own limits.
        self._met: dict[str, tuple[tuple[Met, ...], ...]] = {}
        #: By key id, the oldest first.
        self._told: OrderedDict[str, _Told] = OrderedDict()

    def __len__(self) -> int:
        return len(self._told)

    def answer(self, request: Request) -> None:
        """Answer an admitted request, now or when the limiter has answered."""
        identity = request.identity
        assert identity is not None, "the route requires a key"
        told = self._told.get(identity.record.id)
        if told is not None and _holds(told, request, identity):
            if told.waiting is None:
                self._answer(told, request)
            else:
                told.waiting.append(request)
            return
        told = self._begin(request, identity)
        told.waiting = [request]
        self._ask(told)

    def _begin(self, request: Request, identity: Identity) -> _Told:
        met = reachable(
            self._limits_met(request.policy, identity), identity.record, identity.account
        )
        limits = tuple(limit for _, limit in met)
        per_caller = tuple(limit for limit in limits if limit.per not in {"key", "account"})
        told = _Told(
            identity,
            request.policy,
            request.started,
            met,
            _names(limits, request, identity),
            per_caller,
            _names(per_caller, request, identity),
        )
        self._keep(told)
        return told

    def _limits_met(self, policy: Policy, identity: Identity) -> tuple[tuple[Met, ...], ...]:
        record = identity.record
        plan = policy.plans[record.plan]
        if record.limits:
            return limits_met(policy, plan, record.limits)
        if policy is not self._policy:
            self._policy, self._met = policy, {}
        met = self._met.get(plan.name)
        if met is None:
            met = self._met[plan.name] = limits_met(policy, plan, {})
        return met

    def _keep(self, told: _Told) -> None:
        """Cache it in place of the key's last one; evict those that are too old or too many."""
        key_id = told.identity.record.id
        self._told.pop(key_id, None)
        self._told[key_id] = told
        while len(self._told) > MOST_KEPT or told.at_s - self._oldest.at_s > FRESH_S:
            self._told.popitem(last=False)

    @property
    def _oldest(self) -> _Told:
        return next(iter(self._told.values()))

    def _ask(self, told: _Told) -> None:
        """Read all limits in one turn: in checks of at most `MOST_LIMITS`."""
        limits = tuple(limit for _, limit in told.met)
        parts = range(0, len(limits), MOST_LIMITS)
        found: dict[int, Decision | None] = {}

        def came(part: int, decision: Decision | None) -> None:
            found[part] = decision
            if len(found) == len(parts):
                self._finish(told, [found[each] for each in parts])

        for start in parts:
            part = slice(start, start + MOST_LIMITS)
            check = Check(limits[part], told.names[part], 0)
            self._gate.limiter.decide(check, partial(came, start))

    def _finish(self, told: _Told, decisions: Sequence[Decision | None]) -> None:
        standings = [each for found in decisions if found is not None for each in found.standings]
        waiting, told.waiting = told.waiting or (), None
        try:
            if len(standings) == len(told.met):
                told.body = _body(told, standings)
        except Exception:
            for request in waiting:
                request.failed()
        if told.body is None and self._told.get(told.identity.record.id) is told:
            del self._told[told.identity.record.id]
        for request in waiting:
            self._answer(told, request)

    def _answer(self, told: _Told, request: Request) -> None:
        """Read the plan's limit, and answer."""
        if request.is_over:
            return
        if told.body is None:
            request.answer_refusal(STORE_UNAVAILABLE)
            return
        _, plan_limit = told.met[0]
        check = Check((plan_limit,), told.names[:1], 0)
        try:
            self._gate.limiter.decide(check, partial(_answer_headed, request, told.body, check))
        except Exception:
            request.failed()


def _holds(told: _Told, request: Request, identity: Identity) -> bool:
    """Is this the answer to the request, too?"""
    return (
        told.identity is identity
        and told.policy is request.policy
        and request.started - told.at_s < FRESH_S
        and (not told.per_caller or told.callers == _names(told.per_caller, request, identity))
    )


def _names(limits: Sequence[Limit], request: Request, identity: Identity) -> tuple[str, ...]:
    return counter_names(
        limits,
        account=identity.record.account,
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


def _body(told: _Told, standings: Sequence[Standing]) -> bytes:
    """The answer's JSON. The constant part of each limit is cached."""
    rows = ", ".join(
        f"{_row(limit, None if route is None else route.name)}"
        f'"remaining": {standing.remaining}, "reset_after": {reset_after_s(standing)}}}'
        for (route, limit), standing in zip(told.met, standings, strict=True)
    )
    head = json.dumps({"valid": True, "key": _key(told.identity)})
    return f'{head[:-1]}, "limits": [{rows}]}}'.encode("ascii")


def _key(identity: Identity) -> dict[str, object]:
    record = identity.record
    return {
        "id": record.id,
        "name": record.name,
        "account": record.account,
        "plan": record.plan,
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
