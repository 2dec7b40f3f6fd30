"""What a caller may do on a route: decided once, remembered as a `Grant`, asked for each request.

Nothing here knows a clock or a store. Whether a key is good now is `keylife`'s affair, how much is
left the limiter's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Final

from gateway.domain.counters import counter_names
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Check, Limit
from gateway.domain.plans import limits_for
from gateway.domain.policy import Policy, Route
from gateway.domain.ports import Identity
from gateway.domain.usage import Tally
from gateway.errors import (
    INSUFFICIENT_PERMISSION,
    INSUFFICIENT_SCOPE,
    PLAN_UNKNOWN,
    SERVICE_NOT_ENABLED,
    Refusal,
)

#: Grants that are looked through for one with the same limits: most routes have only the plan's, so
#: with a thousand of them a thousand questions would be kept that are all the same.
MOST_LIKE: Final = 8
#: Addresses of which a grant keeps the question. A flood of different ones only empties the memory.
MOST_ADDRESSES: Final = 4_096


@lru_cache(maxsize=4_096)
def _same(limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """One object for all callers with equal limits: less memory, and less of it cold."""
    return limits


@dataclass(slots=True, eq=False)
class Grant:
    """What a key may do on a route, until the key, its account or the policy changes.

    refusal:   why it may not use the route at all; None: it may
    plan:      the plan's name, for metrics and the access log
    limits:    what a request meets, in order
    check:     the question to the limiter; None where a limit is counted per address or header,
               so that the question is another one for each request: `check_for` makes it
    ask:       the same at cost 0: how things stand
    leases:    one of the limits is on concurrency, so that a request holds a lease while it lasts
    tally:     where the last admitted request was counted
    identity:  the lines that tell the upstream who asks
    """

    refusal: Refusal | None
    plan: str
    limits: tuple[Limit, ...]
    cost: int
    account: str
    lineage: str
    identity: bytes
    check: Check | None = None
    ask: Check | None = None
    leases: bool = field(init=False)
    tally: Tally | None = field(init=False, default=None, repr=False)
    #: By address and cost, where nothing but the address tells one question from another.
    _asked: dict[tuple[str, int], Check] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self.leases = any(limit.kind == "concurrency" for limit in self.limits)
        if all(limit.per == "ip" for limit in self.limits):
            self._asked = {}

    def check_for(self, ip: str, header: Callable[[str], str], cost: int) -> Check:
        """The question for a request from this address with these headers."""
        if self.check is not None and self.ask is not None:
            return self.check if cost else self.ask
        known = None if self._asked is None else self._asked.get((ip, cost))
        if known is not None:
            return known
        names = counter_names(
            self.limits, account=self.account, lineage=self.lineage, ip=ip, header=header
        )
        check = Check(self.limits, names, cost)
        if self._asked is not None:
            if len(self._asked) >= MOST_ADDRESSES:
                self._asked.clear()
            self._asked[ip, cost] = check
        return check


def grant(policy: Policy, route: Route, identity: Identity) -> Grant:
    """Judge a key on a route: plan, scopes, permission, service, limits.

    A route on which nothing limits the key still tells how its plan stands, at cost 0.
    """
    record = identity.record
    plan = policy.plans.get(record.plan)
    limits = limits_for(plan, route, record.limits)
    cost = route.cost
    if not limits:
        limits = (plan.limit if plan else policy.failed_auth,)
        cost = 0
    limits = _same(limits)
    for other in islice(identity.grants.values(), MOST_LIKE):
        if other.limits == limits and other.cost == cost:
            limits, check, ask = other.limits, other.check, other.ask
            break
    else:
        check, ask = _checks(record, limits, cost)
    lines = next((other.identity for other in identity.grants.values()), None)
    return Grant(
        refusal=PLAN_UNKNOWN if plan is None else access_refusal(route, record, identity.account),
        plan=record.plan,
        limits=limits,
        cost=cost,
        account=record.account,
        lineage=record.lineage,
        identity=lines or _identity_lines(record),
        check=check,
        ask=ask,
    )


def _checks(
    record: KeyRecord, limits: tuple[Limit, ...], cost: int
) -> tuple[Check | None, Check | None]:
    """The question at its cost and at none; None where it is another one for each request."""
    if any(limit.per not in {"key", "account"} for limit in limits):
        return None, None
    names = counter_names(
        limits, account=record.account, lineage=record.lineage, ip="", header=_no_header
    )
    return Check(limits, names, cost), Check(limits, names, 0)


def open_grant(policy: Policy, route: Route) -> Grant:
    """The grant of a route that asks for no key: its own limits, per address or header.

    Where it has none, the limit on the address's failed attempts tells how things stand.
    """
    limits = limits_for(None, route, {})
    return Grant(
        refusal=None,
        plan="",
        limits=limits or (policy.failed_auth,),
        cost=route.cost if limits else 0,
        account="",
        lineage="",
        identity=b"",
    )


def failed_grant(policy: Policy) -> Grant:
    """That of callers who are not known: the limit on their address's failed attempts."""
    return Grant(
        refusal=None,
        plan="",
        limits=(policy.failed_auth,),
        cost=1,
        account="",
        lineage="",
        identity=b"",
    )


def access_refusal(route: Route, record: KeyRecord, account: Account) -> Refusal | None:
    """Why the key may not use the route: scopes, permission, service, in this order."""
    if not set(route.scopes) <= set(record.scopes):
        return INSUFFICIENT_SCOPE
    if route.permission is not None:
        area, action = route.permission
        if action not in record.permissions.get(area, ()):
            return INSUFFICIENT_PERMISSION
    if route.service is not None and route.service not in account.services:
        return SERVICE_NOT_ENABLED
    return None


def _identity_lines(record: KeyRecord) -> bytes:
    return (
        f"X-Gateway-Key-Id: {record.id}\r\nX-Gateway-Account: {record.account}\r\n"
        f"X-Gateway-Plan: {record.plan}\r\nX-Gateway-Scopes: {' '.join(record.scopes)}\r\n"
    ).encode("ascii")


def _no_header(_name: str) -> str:
    return ""
