"""Conversion of form fields to values, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.console import forms
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import UNITS_US, Limit
from gateway.domain.networks import parse_network
from gateway.manage.forms import read_key_change
from gateway.manage.problems import Fault
from gateway.policies.load import load
from tests.kit.policies import write_policies

S = 1_000_000
RECORD = KeyRecord(
    id="7h3k9m2p4q6r",
    digest=b"",
    name="ci",
    account="acme",
    plan="pro",
    environment="production",
    lineage="7h3k9m2p4q6r",
    created_us=0,
    scopes=("a:read", "b,c"),
    permissions=MappingProxyType({"ticketing": ("read", "write")}),
    networks=(parse_network("10.0.0.0/8"), parse_network("2001:db8::/32")),
    expires_us=1_782_907_205 * S + 5,
    limits=MappingProxyType({"plan": Limit("plan", "rate", 300, UNITS_US["minute"], 500)}),
)


def test_a_new_key_is_read_from_lines_and_words() -> None:
    """Lists are separated by lines, blanks and commas; an empty field is no value."""
    given = forms.new_key(
        {
            "name": "ci",
            "plan": "",
            "account": "acme",
            "scopes": "a:read\nb,c  d",
            "permissions": "ticketing:read, ticketing:write\nscm:read",
            "ip_ranges": "10.0.0.0/8,\n2001:db8::/32",
            "limits.plan": "300/minute, burst=500",
            "limits.search": "",
            "csrf": "secret",
        }
    )
    assert given == {
        "name": "ci",
        "account": "acme",
        "scopes": ["a:read", "b,c", "d"],
        "permissions": {"ticketing": ["read", "write"], "scm": ["read"]},
        "ip_ranges": ["10.0.0.0/8", "2001:db8::/32"],
        "limits": {"plan": "300/minute,burst=500"},
    }


def test_a_form_left_as_it_is_changes_nothing() -> None:
    """The fields shown for a key are parsed as the same key; a past expiry is not sent."""
    change = read_key_change(forms.key_change(forms.of_key(RECORD), RECORD), None, 2**52)
    changed = {
        name: value for name, value in change.values.items() if getattr(RECORD, name) != value
    }
    assert changed == {}
    assert "expires_us" not in change.values


def test_emptied_fields_are_removed() -> None:
    """An emptied plan or expiry is removed; lists become empty."""
    given = forms.key_change({"name": "ci", "plan": "", "expires": ""}, RECORD)
    assert given == {
        "name": "ci",
        "plan": None,
        "expires": None,
        "scopes": [],
        "permissions": {},
        "ip_ranges": [],
        "limits": {},
    }


def test_a_key_that_never_expires_stays_so() -> None:
    """Without a typed expiry, the change has none."""
    forever = replace(RECORD, expires_us=None)
    assert "expires" not in forms.key_change(forms.of_key(forever), forever)


def test_an_account_is_read_back_as_it_was_shown() -> None:
    """The form of an account has all its fields."""
    account = Account("acme", ("billing", "scm"), "pro", RECORD.limits, 31)
    assert forms.account_change(forms.of_account(account)) == {
        "plan": "pro",
        "services": ["billing", "scm"],
        "limits": {"plan": "300/minute,burst=500"},
        "billing_day": 31,
    }
    assert forms.account_change({})["plan"] is None
    assert forms.account_change({})["billing_day"] == 1
    assert forms.account_change({"billing_day": "x"})["billing_day"] == "x"


def test_faults_are_at_their_fields() -> None:
    """A fault in a list is at the list's field and names the entry; one of no field is on top."""
    form = forms.form(
        {"name": ""},
        [
            Fault("name", "nothing", "a name"),
            Fault("ip_ranges[1]", "'10.0.0.1/8'", "a range"),
            Fault("limits.my.limit", "'x'", "a rate"),
            Fault("surprise", "a field", "none"),
        ],
        ("name", "ip_ranges", "limits.my.limit"),
    )
    assert form.faults_of("name") == ("Found nothing, expected a name.",)
    assert form.faults_of("ip_ranges") == ("Entry 2: found '10.0.0.1/8', expected a range.",)
    assert form.faults_of("limits.my.limit") == ("Found 'x', expected a rate.",)
    assert form.faults_of("") == ("Found a field, expected none.",)
    assert form.faults_of("plan") == ()
    assert form.value("plan") == ""


def test_limit_overrides_are_shown() -> None:
    """The form shows the limit overrides if one is typed or faulty, not for empty fields."""
    assert not forms.has_limit_overrides(forms.form({"limits.plan": "", "name": "x"}))
    assert forms.has_limit_overrides(forms.form({"limits.plan": "5/minute"}))
    assert forms.has_limit_overrides(
        forms.form({}, [Fault("limits.plan", "x", "y")], ["limits.plan"])
    )


def test_limits_that_can_be_overridden(tmp_path: Path) -> None:
    """The plan's, those of routes, and those that the record already has."""
    routes = """
routes:
  mcp: {match: "* /mcp/**", upstream: api, limits: [{name: mcp, rate: 5/minute},
        {name: at-once, concurrency: 5}, {name: daily, quota: 5/day}]}
  api: {match: "* /**", upstream: api}
"""
    policy = load(write_policies(tmp_path, "http://127.0.0.1:9", routes=routes))
    assert forms.limit_names(policy, ["gone"]) == ("plan", "mcp", "at-once", "daily", "gone")
    assert forms.limit_names(None) == ("plan",)


NAMES = st.sampled_from(["name", "plan", "expires", "scopes", "services", "billing_day", "limit:x"])


@given(st.dictionaries(NAMES | st.text(), st.text()))
def test_anything_may_be_typed(fields: dict[str, str]) -> None:
    """Any form data is parsed without an exception, and texts stay as they were typed."""
    assert forms.new_key(fields)["name"] == fields.get("name", "")
    assert forms.key_change(fields, RECORD)["name"] == fields.get("name", "")
    assert forms.account_change(fields)["plan"] == (fields.get("plan") or None)
