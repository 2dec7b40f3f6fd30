"""The management of keys, usage, limits, policies and the audit log, as one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.policy import Policy
from gateway.domain.ports import (
    AuditStore,
    ConnectionStore,
    Counters,
    KeyStore,
    PolicyStore,
    UsageStore,
    WarningStore,
)
from gateway.manage.accounts import Accounts
from gateway.manage.audit_log import Audit
from gateway.manage.explain import Explain
from gateway.manage.keys import Keys
from gateway.manage.limits import Limits
from gateway.manage.mcp import Connections
from gateway.manage.policies import Loaded, Policies
from gateway.manage.policy_history import PolicyHistory
from gateway.manage.usage_reports import (
    UsageBook,
)
from gateway.manage.warnings import Warnings
from gateway.manage.webhooks import Webhooks
from gateway.observe.registry import Snapshot


@dataclass(frozen=True, slots=True)
class Management:
    """What the admin API and the console use.

    clock_us: the clock of all of it; webhooks: None: they need a Redis, and there is none
    """

    keys: Keys
    accounts: Accounts
    usage: UsageBook
    limits: Limits
    explain: Explain
    policies: Policies
    history: PolicyHistory
    warnings: Warnings
    audit: Audit
    connections: Connections
    clock_us: Callable[[], int]
    webhooks: Webhooks | None = None
    customers: Audit | None = None

    def audit_of(self, log: str) -> Audit:
        """The log of operators' changes, or of "customers"."""
        return self.customers if log == "customers" and self.customers else self.audit


def build_management(
    *,
    keys: KeyStore,
    usage: UsageStore,
    warnings: WarningStore,
    audit: AuditStore,
    counts: Counters,
    policies: PolicyStore,
    connections: ConnectionStore,
    loaded: Callable[[], Loaded],
    clock_us: Callable[[], int],
    snapshot: Callable[[], Snapshot] = Snapshot,
    webhooks: Webhooks | None = None,
    customers: AuditStore | None = None,
) -> Management:
    """Build it on these stores.

    loaded:   returns the current policy
    snapshot: returns the metrics of the gateway
    """

    def policy() -> Policy:
        return loaded().policy

    limits = Limits(keys, counts, audit, policy, clock_us)
    return Management(
        keys=Keys(keys, audit, policy, clock_us),
        accounts=Accounts(
            keys, audit, policy, clock_us, None if webhooks is None else webhooks.accounts
        ),
        usage=UsageBook(usage, keys, clock_us, lambda: policy().plans),
        limits=limits,
        explain=Explain(keys, counts, policy, clock_us),
        policies=Policies(loaded, snapshot),
        history=PolicyHistory(policies, audit, lambda: loaded().folder),
        warnings=Warnings(warnings),
        audit=Audit(audit),
        connections=Connections(connections, keys, limits),
        clock_us=clock_us,
        webhooks=webhooks,
        customers=None if customers is None else Audit(customers),
    )
