"""The loaded policies in words, and whether those on disk are the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.domain.policy import Plan, Policy
from gateway.domain.route import Route
from gateway.manage.candidates import compared
from gateway.manage.views import moment
from gateway.manage.words import access_words, cost_words, limit_words, upstream_words
from gateway.observe.registry import Snapshot
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load


@dataclass(frozen=True, slots=True)
class Loaded:
    """The policy in use. at_us: when it was loaded, Unix microseconds; folder: its folder"""

    policy: Policy
    at_us: int
    folder: Path


class Policies:
    """Shows the policies.

    loaded:   returns the policy in use
    snapshot: returns the metrics of this gateway
    """

    def __init__(
        self, loaded: Callable[[], Loaded], snapshot: Callable[[], Snapshot] = Snapshot
    ) -> None:
        self.loaded = loaded
        self._snapshot = snapshot

    def candidates(self) -> list[dict[str, object]]:
        """The limits with a candidate, compared since the gateway's start, up to a second ago."""
        return compared(self.loaded().policy, self._snapshot)

    def shown(self) -> dict[str, object]:
        """The policy in use, and the state of the files on disk.

        Reads the folder, which takes some milliseconds: in an event loop, call it in a thread.
        """
        loaded = self.loaded()
        policy = loaded.policy
        return {
            "hash": policy.hash,
            "loaded": moment(loaded.at_us),
            "folder": str(loaded.folder),
            "files": list(policy.files),
            "environment": policy.environment,
            "on_store_failure": policy.on_store_failure,
            "plans": [plan_as_json(plan) for plan in policy.plans.values()],
            "routes": [route_as_json(policy, route) for route in policy.routes.values()],
            "disk": _on_disk(loaded.folder),
        }


def plan_as_json(plan: Plan) -> dict[str, object]:
    """A plan: its limits in words, and its overrides of routes' limits."""
    return {
        "name": plan.name,
        "limit": limit_words(plan.limit),
        "limits": [f"{limit.name}: {limit_words(limit)}" for limit in plan.more],
        "routes": {name: limit_words(limit) for name, limit in plan.overrides.items()},
    }


def route_as_json(policy: Policy, route: Route) -> dict[str, object]:
    """A route: what it matches, its upstream, access rules and limits."""
    return {
        "name": route.name,
        "match": route.pattern,
        "case_sensitive": route.case_sensitive,
        "encoded_slash": "keep" if route.keeps_slashes else "refuse",
        "hosts": list(route.hosts),
        "where": route.where,
        "upstream": upstream_words(policy, route),
        "access": access_words(route),
        "cost": cost_words(route),
        "plan_limits": route.plan_limits and route.auth == "key",
        "limits": [f"{limit.name}: {limit_words(limit)}" for limit in route.every_limit],
    }


def _on_disk(folder: Path) -> Mapping[str, object]:
    """What a reload would find: a policy's hash, or what is wrong with it."""
    try:
        return {"hash": load(folder).hash, "faults": []}
    except PolicyFaults as error:
        return {"hash": None, "faults": [str(fault) for fault in error.faults]}
