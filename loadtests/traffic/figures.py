"""Which limits a request meets, by the policies that the gateway is assumed to have.

The checks of a run get the limits only from here, never from the gateway that they check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from gateway.domain.limits import Limit
from gateway.domain.meets import limits_for
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.domain.routes import VERIFY, is_own

_NO_FIGURES: Final[Mapping[str, Limit]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Met:
    """What a request meets.

    limits: those that are enforced and counted per key, which a client can count itself
    told:   the possible amounts in X-RateLimit-Limit
    shared: those of them whose limits other clients may have used as well
    cost:   how much one admission counts in each
    scopes: the scopes that the key must have
    waits:  waiting Retry-After is certainly enough: no limit is shared or a concurrency limit
    """

    limits: tuple[Limit, ...] = ()
    told: frozenset[int] = frozenset()
    shared: frozenset[int] = frozenset()
    cost: int = 1
    scopes: frozenset[str] = frozenset()
    waits: bool = False


@dataclass(slots=True)
class Figures:
    """The policies for one plan. Results are cached, as a run has few paths."""

    policy: Policy
    plan: str
    _known: dict[tuple[str, str], Met] = field(default_factory=dict)

    def meets(self, method: str, path: str) -> Met:
        """path: plain, without a query: "/api/search/x". Without a route, the result is empty.

        Limits that are counted per address or header are left out: others may share them.
        """
        found = self._known.get((method, path))
        if found is None:
            found = self._known[method, path] = self._met(method, tuple(path.strip("/").split("/")))
        return found

    def _met(self, method: str, segments: tuple[str, ...]) -> Met:
        plan = self.policy.plans[self.plan]
        route = self.policy.table.match(method, segments)
        if not isinstance(route, Route):
            return Met()
        if is_own(route):
            return self._met_by_own(plan.limit, route)
        if route.auth == "none":
            return Met()
        limits = limits_for(plan, route, _NO_FIGURES)
        enforced = [limit for limit in limits if not limit.shadow]
        own = [limit for limit in enforced if limit.per == "key"]
        return Met(
            tuple(own),
            # If every limit is in shadow mode, the first one is reported.
            frozenset(limit.amount for limit in enforced or limits),
            frozenset(limit.amount for limit in enforced if limit.per != "key"),
            route.cost,
            frozenset(route.scopes),
            own == enforced and all(not limit.is_leased for limit in own),
        )

    def _met_by_own(self, plan_limit: Limit, route: Route) -> Met:
        """The gateway's own answers cost nothing, and report the plan's limit.

        /v1/auth/verify has its own limit, which its refusals report. It is not counted here, as the
        clients of one key share it and an answer does not say which limit is meant.
        """
        is_verify = route is VERIFY
        amounts = {self.policy.auth_verify.amount} if is_verify else set()
        return Met(
            (plan_limit,),
            frozenset({plan_limit.amount, *amounts}),
            frozenset(amounts),
            cost=0,
        )
