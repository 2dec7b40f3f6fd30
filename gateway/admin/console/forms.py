"""What is typed into the forms on keys and accounts, into what `manage.forms` reads, and back.

A list is a text of several words or lines; the own figures of a limit have a field each, called
"limits." and the limit's name. A field that is empty says nothing, or takes away what was there.
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
#: Fields of which the form shows none of its own: what is wrong with them is said above all others.
ABOVE: Final = ""


@dataclass(frozen=True, slots=True)
class Form:
    """A form as it is shown: what is in its fields, and what is wrong with them, by name."""

    fields: Mapping[str, str]
    faults: Mapping[str, tuple[str, ...]]

    def value(self, name: str) -> str:
        return self.fields.get(name, "")

    def said(self, name: str) -> tuple[str, ...]:
        """What is wrong with a field; nothing, where it can be taken."""
        return self.faults.get(name, ())


def form(
    fields: Mapping[str, str], faults: Iterable[Fault] = (), shown: Iterable[str] = ()
) -> Form:
    """A form with what was typed; a fault of a field that is not shown goes above."""
    places = set(shown)
    said: dict[str, list[str]] = {}
    for fault in faults:
        place = place_of(fault.at)
        said.setdefault(place if place in places else ABOVE, []).append(_words(fault, place))
    return Form(fields, {name: tuple(texts) for name, texts in said.items()})


def has_own_limits(shown: Form) -> bool:
    """Is any figure of its own typed, or found wrong?"""
    typed = (name for name, text in shown.fields.items() if text)
    return any(name.startswith(LIMIT) for name in (*typed, *shown.faults))


def place_of(at: str) -> str:
    """The field that a fault is about: "ip_ranges[1]" is in ip_ranges, "limits.a.b" in itself."""
    return at if at.startswith(LIMIT) else re.split(r"[.\[]", at, maxsplit=1)[0]


def _words(fault: Fault, place: str) -> str:
    numbered = re.fullmatch(r"\w+\[(\d+)\]", fault.at)
    entry = f"Entry {int(numbered[1]) + 1}: found" if numbered else "Found"
    return f"{entry} {fault.found}, expected {fault.expected}."


# -- keys ------------------------------------------------------------------------------------------

KEY_FIELDS: Final = ("name", "plan", "scopes", "permissions", "ip_ranges", "expires")
NEW_KEY_FIELDS: Final = (*KEY_FIELDS, "account", "environment")


def limit_names(policy: Policy | None, own: Iterable[str] = ()) -> tuple[str, ...]:
    """The limits that can have figures of their own: the plan's, then the routes'; and `own`."""
    names = dict.fromkeys(("plan",))
    for route in policy.routes.values() if policy else ():
        names.update(dict.fromkeys(limit.name for limit in route.limits if not limit.is_leased))
    names.update(dict.fromkeys(own))
    return tuple(names)


def new_key(fields: Mapping[str, str]) -> dict[str, object]:
    """What the form for a new key gives."""
    given: dict[str, object] = {"name": fields.get("name", ""), **_lists(fields)}
    for name in ("account", "plan", "environment", "expires"):
        if fields.get(name):
            given[name] = fields[name]
    return {**given, "limits": _limits(fields)}


def key_change(fields: Mapping[str, str], record: KeyRecord) -> dict[str, object]:
    """What the form for a key that exists gives. An expiry left as it is may be past."""
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
    """What the form for a key shows before anybody types."""
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
    """To the second: what is below stays as it is where nobody changes it."""
    return "" if record.expires_us is None else moment(record.expires_us)


def ranges(text: str) -> list[str]:
    """The ranges in a text, one a line or parted by commas."""
    return re.findall(r"[^\s,]+", text)


def _lists(fields: Mapping[str, str]) -> dict[str, object]:
    permissions: dict[str, list[str]] = {}
    for text in re.findall(r"[^\s,]+", fields.get("permissions", "")):
        area, _, action = text.partition(":")
        permissions.setdefault(area, []).append(action)
    return {
        # A scope may have a comma in it.
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

ACCOUNT_FIELDS: Final = ("plan", "services")


def account_change(fields: Mapping[str, str]) -> dict[str, object]:
    """What the form for an account gives: all of it."""
    return {
        "plan": fields.get("plan") or None,
        "services": re.findall(r"[^\s,]+", fields.get("services", "")),
        "limits": _limits(fields),
    }


def of_account(account: Account) -> dict[str, str]:
    """What the form for an account shows before anybody types."""
    return {
        "plan": account.plan,
        "services": "\n".join(account.services),
        **{f"{LIMIT}{name}": rate_words(limit) for name, limit in account.limits.items()},
    }
