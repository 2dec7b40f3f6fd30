"""Reads the fields of a JSON body, a form or a command's options into values, or raises all faults.

Fields have the names under which keys and accounts are shown. An unknown field is a fault, and so
is a value of another JSON type. `reading` reads each field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from gateway.domain.keys import Account
from gateway.domain.limits import Limit
from gateway.domain.networks import Network
from gateway.domain.policy import Policy
from gateway.manage.problems import Fault, Invalid
from gateway.manage.reading import (
    Reader,
    found,
    or_none,
    read_billing_day,
    read_environment,
    read_expiry_us,
    read_fields,
    read_limits,
    read_name,
    read_networks,
    read_permissions,
    read_plan,
    read_scopes,
    read_services,
    read_word,
)
from gateway.policies import fields

#: Fields that have another name in a key's record.
_IN_RECORD: Final = {"ip_ranges": "networks", "expires": "expires_us"}


@dataclass(frozen=True, slots=True)
class NewKey:
    """The fields of a new key. plan: "": its account's; account: "": one of its own"""

    name: str
    environment: str
    plan: str = ""
    account: str = ""
    scopes: tuple[str, ...] = ()
    permissions: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    networks: tuple[Network, ...] = ()
    expires_us: int | None = None
    limits: Mapping[str, Limit] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class KeyChange:
    """New values for some fields of a key's record: {"plan": "pro", "expires_us": None}"""

    values: Mapping[str, Any]


def read_new_key(given: Mapping[str, object], policy: Policy | None, now_us: int) -> NewKey:
    """The key that these fields describe; null is the same as no field. Raises Invalid.

    policy: plan and limits are checked against it; None: they are not checked
    """
    readers = {
        **_key_readers(policy, now_us),
        "account": or_none(partial(read_word, "account")),
        "environment": or_none(read_environment),
    }
    values = read_fields(given, readers, "name")
    given_values = {name: value for name, value in values.items() if value is not None}
    given_values.setdefault("environment", policy.environment if policy else "production")
    return NewKey(**_for_record(given_values))


def read_key_change(given: Mapping[str, object], policy: Policy | None, now_us: int) -> KeyChange:
    """The change that these fields describe; other fields stay. Raises Invalid.

    null clears the expiry, or the plan: the account's is used then.
    """
    if "environment" in given:
        expected = "no change of it: the environment is part of the key, create another key"
        raise Invalid(Fault("environment", "a value", expected))
    values = read_fields(given, _key_readers(policy, now_us))
    if values.get("plan", "") is None:
        values["plan"] = ""
    return KeyChange(MappingProxyType(_for_record(values)))


def read_account(name: str, given: Mapping[str, object], policy: Policy | None) -> Account:
    """The account that the fields describe; fields that are not given are empty. Raises Invalid."""
    read_word("name", name)
    return replace(Account(name), **read_account_change(given, policy))


def read_account_change(given: Mapping[str, object], policy: Policy | None) -> dict[str, Any]:
    """The fields of `Account` that these fields change; null clears the plan. Raises Invalid."""
    readers: dict[str, Reader] = {
        "plan": or_none(partial(read_plan, policy)),
        "services": read_services,
        "limits": partial(read_limits, policy),
        "billing_day": read_billing_day,
    }
    values = read_fields(given, readers)
    if values.get("plan", "") is None:
        values["plan"] = ""
    return values


def read_overlap_us(text: str) -> int:
    """How long a rotated key stays valid: "24h", "0s". Raises Invalid."""
    try:
        return round(fields.read_duration(text) * 1e6)
    except ValueError as error:
        raise Invalid(Fault("overlap", found(text), str(error))) from error


def _key_readers(policy: Policy | None, now_us: int) -> dict[str, Reader]:
    return {
        "name": read_name,
        "plan": or_none(partial(read_plan, policy)),
        "account": partial(read_word, "account"),
        "scopes": read_scopes,
        "permissions": read_permissions,
        "ip_ranges": read_networks,
        "expires": or_none(partial(read_expiry_us, now_us)),
        "limits": partial(read_limits, policy),
    }


def _for_record(values: Mapping[str, Any]) -> dict[str, Any]:
    return {_IN_RECORD.get(name, name): value for name, value in values.items()}
