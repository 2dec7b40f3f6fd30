"""Limits with a candidate, and how many requests the two decided alike or differently."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.domain.limits import Limit
from gateway.domain.policy import Policy
from gateway.manage.words import values_words
from gateway.observe.metrics import CANDIDATES, COMPARISONS
from gateway.observe.registry import Labels, Snapshot


def compared(policy: Policy, snapshot: Callable[[], Snapshot]) -> list[dict[str, object]]:
    """Each limit with a candidate: its values and the candidate's, and the counts by outcome.

    A name that several plans or routes have is one entry, as its requests are counted together.
    snapshot: returns the metrics; it is called only if there is a candidate
    """
    values: dict[str, list[dict[str, str]]] = {}
    for where, limit in _limits(policy):
        if limit.candidate is not None:
            own, other = values_words(limit), values_words(limit.candidate)
            pair = {"where": where, "enforced": own, "candidate": other}
            values.setdefault(limit.name, []).append(pair)
    counts = _counts(snapshot()) if values else {}
    return [
        {"limit": name, "of": of, **{one: counts.get((name, one), 0) for one in COMPARISONS}}
        for name, of in values.items()
    ]


def _limits(policy: Policy) -> Iterator[tuple[str, Limit]]:
    """Every limit as written, with where it is: "plan free"."""
    for plan in policy.plans.values():
        for limit in plan.limits:
            yield f"plan {plan.name}", limit
    for route in policy.routes.values():
        for limit in route.limits:
            yield f"route {route.name}", limit


def _counts(snapshot: Snapshot) -> dict[Labels, int]:
    """By limit and outcome."""
    return {
        labels: int(number)
        for series in snapshot.series
        if series.family.name == CANDIDATES
        for labels, (number,) in series.values.items()
    }
