"""Converts the fields of the forms for keys and accounts into those of `manage.forms`, and back.

A list is a text of several words or lines; each limit override has a field "limits." and the
limit's name. An empty field has no value, or removes the existing one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.admin.console.wording import moment
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.policy import Policy
from gateway.manage.problems import Fault
from gateway.manage.views import rate_words

LIMIT: Final = "limits."
#: The place for faults of fields that the form does not show: above all fields.
ABOVE: Final = ""


@dataclass(frozen=True, slots=True)
class Form:
    """A form as it is shown: the values and the faults of its fields, by name."""

    fields: Mapping[str, str]
    faults: Mapping[str, tuple[str, ...]]

    def value(self, name: str) -> str:
        return self.fields.get(name, "")

    def faults_of(self, name: str) -> tuple[str, ...]:
        """The faults of a field."""
        return self.faults.get(name, ())


def form(
    fields: Mapping[str, str], faults: Iterable[Fault] = (), shown: Iterable[str] = ()
) -> Form:
    """A form with the user's input; a fault of a field that is not shown goes above all fields."""
    places = set(shown)
    by_place: dict[str, list[str]] = {}
    for fault in faults:
        place = place_of(fault.at)
        by_place.setdefault(place if place in places else ABOVE, []).append(_words(fault, place))
    return Form(fields, {name: tuple(texts) for name, texts in by_place.items()})


def has_limit_overrides(shown: Form) -> bool:
    """Does any limit override have a value or a fault?"""
    typed = (name for name, text in shown.fields.items() if text)
    return any(name.startswith(LIMIT) for name in (*typed, *shown.faults))


def place_of(at: str) -> str:
    """The field of a fault: of "ip_ranges[1]" it is ip_ranges, of "limits.a.b" itself."""
    return at if at.startswith(LIMIT) else re.split(r"[.\[]", at, maxsplit=1)[0]


def _words(fault: Fault, place: str) -> str:
    numbered = re.fullmatch(r"\w+\[(\d+)\]", fault.at)
    entry = f"Entry {int(numbered[1]) + 1}: found" if numbered else "Found"
    return f"{entry} {fault.found}, expected {fault.expected}."


# -- keys ------------------------------------------------------------------------------------------

KEY_FIELDS: Final = ("name", "plan", "scopes", "permissions", "ip_ranges", "expires")
NEW_KEY_FIELDS: Final = (*KEY_FIELDS, "account", "environment")


def limit_names(policy: Policy | None, own: Iterable[str] = ()) -> tuple[str, ...]:
    """The limits that can be overridden: the plans', then the routes'; and those in `own`."""
    names = dict.fromkeys(("plan",))
    for plan in policy.plans.values() if policy else ():
        names.update(dict.fromkeys(limit.name for limit in plan.more))
    for route in policy.routes.values() if policy else ():
        names.update(dict.fromkeys(limit.name for limit in route.every_limit))
    names.update(dict.fromkeys(own))
    return tuple(names)


def new_key(fields: Mapping[str, str]) -> dict[str, object]:
    """The fields of `manage.forms` from the form for a new key."""
    given: dict[str, object] = {"name": fields.get("name", ""), **_lists(fields)}
    for name in ("account", "plan", "environment", "expires"):
        if fields.get(name):
            given[name] = fields[name]
    return {**given, "limits": _limits(fields)}


def key_change(fields: Mapping[str, str], record: KeyRecord) -> dict[str, object]:
    """The fields of `manage.forms` from the form of a key. An unchanged expiry may be past."""
    given: dict[str, object] = {
        "name": fields.get("name", ""),
        "plan": fields.get("plan") or None,
        **_lists(fields),
        "limits": _limits(fields),
    }
    expires = fields.get("expires", "")
    if expires != _expiry(record):
        given["expires"] = expires or None
    return given


def of_key(record: KeyRecord) -> dict[str, str]:
    """The initial values of the form of a key."""
    permissions = (
        f"{area}:{action}" for area, actions in record.permissions.items() for action in actions
    )
    return {
        "name": record.name,
        "plan": record.plan,
        "scopes": "\n".join(record.scopes),
        "permissions": "\n".join(permissions),
        "ip_ranges": "\n".join(map(str, record.networks)),
        "expires": _expiry(record),
        **{f"{LIMIT}{name}": rate_words(limit) for name, limit in record.limits.items()},
    }


def _expiry(record: KeyRecord) -> str:
    """The expiry to the second; if the field is unchanged, the exact expiry stays."""
    return "" if record.expires_us is None else moment(record.expires_us)


def ranges(text: str) -> list[str]:
    """The ranges in a text, separated by white space or commas."""
    return re.findall(r"[^\s,]+", text)


def _lists(fields: Mapping[str, str]) -> dict[str, object]:
    permissions: dict[str, list[str]] = {}
    for text in re.findall(r"[^\s,]+", fields.get("permissions", "")):
        area, _, action = text.partition(":")
        permissions.setdefault(area, []).append(action)
    return {
        # A scope may contain a comma.
        "scopes": fields.get("scopes", "").split(),
        "permissions": permissions,
        "ip_ranges": ranges(fields.get("ip_ranges", "")),
    }


def _limits(fields: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(LIMIT): text.replace(" ", "")
        for name, text in fields.items()
        if name.startswith(LIMIT) and text
    }


# -- accounts --------------------------------------------------------------------------------------

ACCOUNT_FIELDS: Final = ("plan", "services", "billing_day")


def account_change(fields: Mapping[str, str]) -> dict[str, object]:
    """The fields of `manage.forms` from the form of an account."""
    return {
        "plan": fields.get("plan") or None,
        "services": re.findall(r"[^\s,]+", fields.get("services", "")),
        "limits": _limits(fields),
        "billing_day": _day(fields.get("billing_day", "")),
    }


def _day(text: str) -> object:
    """A number if the text is one; else the text, which is then refused. "": the first."""
    return int(text) if re.fullmatch("[0-9]{1,2}", text) else text or 1


def of_account(account: Account) -> dict[str, str]:
    """The initial values of the form of an account."""
    return {
        "plan": account.plan,
        "services": "\n".join(account.services),
        "billing_day": str(account.billing_day),
        **{f"{LIMIT}{name}": rate_words(limit) for name, limit in account.limits.items()},
    }
