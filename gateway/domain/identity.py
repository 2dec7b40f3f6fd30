"""Identities: keys as a worker caches them, with their accounts and their grants on each route.

`admission` creates the grants. An identity has its grants, so that a request finds the grant of its
route at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from gateway.domain.costs import Costing
from gateway.domain.counters import counter_names
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Check, Limit
from gateway.domain.mcp.demands import Demand
from gateway.domain.policy import Policy
from gateway.domain.usage import Tally
from gateway.errors import Refusal

#: The most addresses whose checks a grant caches. Beyond it, the cache is emptied.
MOST_ADDRESSES: Final = 4_096


class Absent(Enum):
    """Why a look-up found no identity."""

    UNKNOWN = "no key has this id"
    UNAVAILABLE = "store unavailable"


@dataclass(slots=True, eq=False)
class Grant:
    """What a key may do on a route, until the key, its account or the policy changes.

    refusal:   why it may not use the route; None: it may
    plan:      the plan's name, for metrics and the access log
    limits:    those of a request, in order
    cost:      how many units a request counts; with `costing`, if nothing else is known of it;
               0: no limit counts it
    costing:   how the cost depends on the request; None: it does not
    check:     for the limiter; None where a limit is counted per address or header, or the cost
               depends on the request: then `check_for` builds one for each request
    ask:       the same at cost 0: it reports the counters and counts nothing
    leases:    one of the limits is a concurrency limit, so each request holds a lease
    candidates: the indices of limits that are the candidate of the limit before them
    verifies:  its requests are webhooks, whose signatures are verified first
    reads:     its requests are MCP messages: what they count is read in their bodies
    tally:     where the last admitted request was counted
    ahead:     its checks may be counted ahead: see `Check`
    identity:  the header lines that tell the upstream the key, account, plan and scopes
    """

    refusal: Refusal | None
    plan: str
    limits: tuple[Limit, ...]
    cost: int
    account: str = ""
    home: str = ""
    lineage: str = ""
    identity: bytes = b""
    costing: Costing | None = None
    check: Check | None = None
    ask: Check | None = None
    reads: bool = False
    verifies: bool = False
    ahead: bool = False
    leases: bool = field(init=False)
    candidates: tuple[int, ...] = field(init=False)
    tally: Tally | None = field(init=False, default=None, repr=False)
    #: By address and cost, where checks differ in nothing else.
    _asked: dict[tuple[str, int], Check] | None = field(init=False, default=None, repr=False)
    #: By what messages ask for, where their counters are always the same.
    demanded: dict[Demand, Check] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self.leases = any(limit.is_leased for limit in self.limits)
        self.candidates = tuple(
            index for index, limit in enumerate(self.limits) if limit.is_candidate
        )
        if all(limit.per == "ip" for limit in self.limits):
            self._asked = {}

    def check_for(self, ip: str, header: Callable[[str], str], cost: int) -> Check:
        """The check for a request from this address with these headers.

        ip: as `networks.limit_subject` returns it
        """
        if self.ask is not None:
            return (self.check or self.ask.at_cost(cost)) if cost else self.ask
        known = None if self._asked is None else self._asked.get((ip, cost))
        if known is not None:
            return known
        names = counter_names(
            self.limits,
            account=self.account,
            home=self.home,
            lineage=self.lineage,
            ip=ip,
            header=header,
        )
        check = Check(self.limits, names, cost, ahead=self.ahead and cost > 0)
        if self._asked is not None:
            if len(self._asked) >= MOST_ADDRESSES:
                self._asked.clear()
            self._asked[ip, cost] = check
        return check


@dataclass(slots=True, eq=False)
class Identity:
    """A key and its account as a worker caches them; replaced as a whole when either changes.

    current: False once the key or account has changed; code that keeps an identity across an await
             checks this before it uses it
    grants:  by route name, under the policy `granted_under`
    digest:  that of the record, so that a request need not touch the record's memory
    valid_under, valid_until_us, valid_at: the policy under which it was found valid last, until
             when it is by the store's time, and the client's address; see `is_valid`
    referenced: it was used since the cache last searched for one to evict
    quiet_until: when its use is reported next, in heartbeats of the directory
    """

    record: KeyRecord
    account: Account
    current: bool = True
    grants: dict[str, Grant] = field(default_factory=dict, repr=False)
    granted_under: Policy | None = field(default=None, repr=False)
    digest: bytes = field(init=False, repr=False)
    valid_under: Policy | None = field(default=None, repr=False)
    valid_until_us: float = field(default=0, repr=False)
    valid_at: str = field(default="", repr=False)
    referenced: bool = field(default=False, repr=False)
    quiet_until: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self.digest = self.record.digest

    def is_valid(self, policy: Policy, now_us: int, client_ip: str) -> bool:
        """Was it found valid for this, and is still? False: ask `judge.key_refusal`.

        Status and ranges are those of the record, which never changes; only the time passes.
        """
        return (
            self.valid_under is policy
            and self.valid_at == client_ip
            and now_us < self.valid_until_us
        )

    def note_valid(self, policy: Policy, client_ip: str) -> None:
        """It was found valid under this policy, from this address."""
        expires_us = self.record.expires_us
        self.valid_until_us = inf if expires_us is None else expires_us
        self.valid_under, self.valid_at = policy, client_ip
