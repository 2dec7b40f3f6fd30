"""API keys and accounts: their records.

A key is written PREFIX_ENVIRONMENT_ID_SECRETCHECKSUM, for example (not a real key)

    gwk_production_7h3k9m2p4q6r_<32 characters of secret><6 of checksum>

so that people and secret scanners recognise it. The id is public; the secret is 32 random base-62
characters, 190 bits; the checksum is the CRC-32 of all before it, in base 62, so that a mistyped
key is refused without asking the store. Only the SHA-256 of the whole text is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from gateway.domain.limits import Limit
from gateway.domain.networks import Network

Status = Literal["valid", "suspended", "revoked"]
AccountStatus = Literal["valid", "suspended"]


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key's record. Times are Unix microseconds.

    digest:      SHA-256 of the whole key text, 32 bytes
    permissions: service area -> actions: {"ticketing": ("read", "write")}
    networks:    the addresses that it may be used from; empty: any
    lineage:     the id of the first key of its rotations, which is in its counters' names
    moved_from:  its first account, if it has moved to another; "": it has not
    successor:   the id of the key that replaced it in a rotation
    plan:        "": that of its account
    limits:      overrides by limit name, before those of the account, the plan and the route
    billing_day, account_status: its account's, where it was read with the account; never stored
                 with the key
    """

    id: str
    digest: bytes
    name: str
    account: str
    plan: str
    environment: str
    lineage: str
    created_us: int
    scopes: tuple[str, ...] = ()
    permissions: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    networks: tuple[Network, ...] = ()
    status: Status = "valid"
    expires_us: int | None = None
    successor: str | None = None
    limits: Mapping[str, Limit] = field(default_factory=lambda: MappingProxyType({}))
    moved_from: str = ""
    billing_day: int = 1
    account_status: AccountStatus = "valid"

    @property
    def home(self) -> str:
        """The account that names what is counted per key: it stays when the key moves."""
        return self.moved_from or self.account


@dataclass(frozen=True, slots=True)
class Account:
    """The owner of keys.

    services: the service areas that are enabled for it
    plan:     the plan of its keys that have none themselves; "": none
    limits:   overrides for its keys by limit name, before those of the plan and the route
    billing_day: the day of the month, 1 to 31, on which months of `from: account` begin
    status:   "suspended": all of its keys are refused
    """

    name: str
    services: tuple[str, ...] = ()
    plan: str = ""
    limits: Mapping[str, Limit] = field(default_factory=lambda: MappingProxyType({}))
    billing_day: int = 1
    status: AccountStatus = "valid"


def with_account(record: KeyRecord, account: Account) -> KeyRecord:
    """The record with its account's status and billing day; plan and limits where it has none."""
    plan = record.plan or account.plan
    limits = {**account.limits, **record.limits} if account.limits else record.limits
    of_account = account.billing_day, account.status
    is_same = of_account == (record.billing_day, record.account_status)
    if plan == record.plan and limits is record.limits and is_same:
        return record
    return replace(
        record,
        plan=plan,
        limits=MappingProxyType(dict(limits)),
        billing_day=account.billing_day,
        account_status=account.status,
    )
