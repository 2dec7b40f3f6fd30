"""Which keys a change of the policy affects: they get other limits, or may use other routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from gateway.domain.judge import access_refusal, status_refusal
from gateway.domain.keys import Account, KeyRecord, with_account
from gateway.domain.limits import Limit
from gateway.domain.meets import limits_for
from gateway.domain.policy import Plan, Policy
from gateway.domain.ports import KeyStore
from gateway.domain.route import Route
from gateway.manage.policy_limits import differing, limit_changes
from gateway.manage.policy_requests import moved_requests, renamed_routes

#: How a key is affected: it may no longer, or may now, send some requests; its limits differ.
Effect = Literal["refused", "admitted", "limits"]
WORDS: Final[Mapping[Effect, str]] = {
    "refused": "may no longer send some requests",
    "admitted": "may send more requests",
    "limits": "get other limits",
}
#: How many ids of each row are kept.
_MOST_IDS: Final = 5


@dataclass(slots=True)
class Row:
    """The keys of one plan that are affected in one way. ids: some of them"""

    plan: str
    effect: Effect
    count: int = 0
    ids: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        more = self.count - len(self.ids)
        ids = ", ".join(self.ids) + (f" and {more} more" if more else "")
        return f"{self.count} of plan {self.plan or '(none)'} {WORDS[self.effect]}: {ids}"


@dataclass(frozen=True, slots=True)
class AffectedKeys:
    """count: all keys that are valid now. rows: by plan; a key may be in several"""

    count: int
    rows: tuple[Row, ...]


async def affected_keys(store: KeyStore, old: Policy, new: Policy, now_us: int) -> AffectedKeys:
    """The valid keys of a store that a change affects. Raises StoreDown."""
    accounts = {account.name: account for account in await store.accounts()}
    merged = (
        (with_account(record, account), account)
        for record in await store.records()
        for account in (accounts.get(record.account) or Account(record.account),)
    )
    valid = [
        (record, account)
        for record, account in merged
        if any(status_refusal(record, p.environment, now_us) is None for p in (old, new))
    ]
    return AffectedKeys(len(valid), affected(old, new, valid))


def affected(
    old: Policy, new: Policy, keys: Iterable[tuple[KeyRecord, Account]]
) -> tuple[Row, ...]:
    """The affected keys by plan and effect. keys: as returned by `with_account`, with accounts"""
    comparison = _Comparison(old, new)
    rows: dict[tuple[str, Effect], Row] = {}
    for record, account in keys:
        for effect in comparison.effects(record, account):
            row = rows.setdefault((record.plan, effect), Row(record.plan, effect))
            row.count += 1
            if len(row.ids) < _MOST_IDS:
                row.ids.append(record.id)
    order = list(WORDS)
    return tuple(sorted(rows.values(), key=lambda row: (order.index(row.effect), row.plan)))


class _Comparison:
    """Two policies, with what is the same for many keys."""

    def __init__(self, old: Policy, new: Policy) -> None:
        self._old, self._new = old, new
        self._moved = [
            (moved.old, moved.new) for moved in moved_requests(old, new) if _needs_key(moved.new)
        ]
        renamed = renamed_routes(old, new)
        differing = {use for change in limit_changes(old, new) for use in change.uses}
        #: By plan: the pairs of routes on which its limits differ.
        self._routes: dict[str | None, list[tuple[Route, Route]]] = {}
        for plan, name in sorted(differing, key=str):
            pair = old.routes[renamed.get(name, name)], new.routes[name]
            self._routes.setdefault(plan, []).append(pair)
        self._limited: dict[tuple[str, tuple[tuple[str, Limit], ...]], bool] = {}

    def effects(self, record: KeyRecord, account: Account) -> Iterator[Effect]:
        """How a key is affected."""
        plan = record.plan
        was_known, is_known = (
            policy.plan(plan) is not None and record.environment == policy.environment
            for policy in (self._old, self._new)
        )
        if was_known != is_known:
            yield "admitted" if is_known else "refused"
            return
        if not is_known:
            return
        uses = [(_may(a, record, account), _may(b, record, account)) for a, b in self._moved]
        if (True, False) in uses:
            yield "refused"
        if (False, True) in uses:
            yield "admitted"
        named = plan, tuple(sorted(record.limits.items()))
        if named not in self._limited:
            self._limited[named] = self._has_other_limits(plan, record.limits)
        if self._limited[named]:
            yield "limits"

    def _has_other_limits(self, name: str, own: Mapping[str, Limit]) -> bool:
        old, new = self._old.plan(name), self._new.plan(name)
        return new is not None and any(
            _has_other_values(*pair)
            for before, after in self._routes.get(new.name, ())
            for pair in differing(_enforced(old, before, own), _enforced(new, after, own))
        )


def _enforced(plan: Plan | None, route: Route, own: Mapping[str, Limit]) -> list[Limit]:
    """The limits of a key without their candidates, which change nothing for it."""
    limits = limits_for(plan, route, own)
    return [replace(limit, candidate=None) for limit in limits if not limit.is_candidate]


def _has_other_values(old: Limit | None, new: Limit | None) -> bool:
    """Do two limits differ in more than their names?"""
    return old is None or new is None or old != replace(new, name=old.name, was=old.was)


def _needs_key(route: Route | None) -> bool:
    """What becomes public is no longer about keys."""
    return route is None or route.auth == "key"


def _may(route: Route | None, record: KeyRecord, account: Account) -> bool:
    if route is None:
        return False
    return route.auth == "none" or access_refusal(route, record, account) is None
