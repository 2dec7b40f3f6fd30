"""Forms of keys and accounts: valid input, and every fault of invalid input."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain import key_format
from gateway.domain.keys import Account
from gateway.domain.limits import Limit
from gateway.domain.networks import parse_network
from gateway.manage.forms import (
    KeyChange,
    NewKey,
    read_account,
    read_key_change,
    read_new_key,
    read_overlap_us,
)
from gateway.manage.problems import Fault, Invalid
from gateway.manage.views import account_as_json, key_as_json, moment
from gateway.policies.load import load
from tests.kit.proxy import policy_of
from tests.suites.keys import plain_key

NOW = 1_800_000_000_000_000
DAY = 86_400_000_000
POLICY = load(Path(__file__).parents[2] / "policies")
KEY, _ = key_format.mint("dev", lambda below: 7 % below)


def faults(read, *arguments) -> dict[str, tuple[str, str]]:
    """The faults of a form: place -> found, expected."""
    with pytest.raises(Invalid) as caught:
        read(*arguments)
    assert len({fault.at for fault in caught.value.faults}) == len(caught.value.faults)
    return {fault.at: (fault.found, fault.expected) for fault in caught.value.faults}


def of_new(**given):
    return faults(read_new_key, {"name": "ci", **given}, None, NOW)


def test_a_plain_key():
    """A name is enough; the default environment is the policies', else production."""
    assert read_new_key({"name": " ci "}, None, NOW) == NewKey("ci", "production")
    nothing = dict.fromkeys(("plan", "account", "environment", "expires"))
    assert read_new_key({"name": "ci", **nothing}, POLICY, NOW) == NewKey("ci", POLICY.environment)


def test_a_key_with_everything():
    """Every field is read; duplicates are removed."""
    given = {
        "name": "Ünï",
        "plan": "pro",
        "account": "acme",
        "environment": "staging",
        "scopes": ["b:read", "a:read", "b:read"],
        "permissions": {"edr": ["write", "read", "write"], "scm": []},
        "ip_ranges": ["10.0.0.0/8", "::ffff:192.0.2.1", "192.0.2.1/32"],
        "expires": "2h",
        "limits": {"plan": "300/minute,burst=500", "mcp-daily": "20/day", "search": "5/second"},
    }
    new = read_new_key(given, POLICY, NOW)
    assert new == NewKey(
        name="Ünï",
        environment="staging",
        plan="pro",
        account="acme",
        scopes=("b:read", "a:read"),
        permissions={"edr": ("write", "read")},
        networks=(parse_network("10.0.0.0/8"), parse_network("192.0.2.1")),
        expires_us=NOW + 7_200_000_000,
        limits={
            "plan": Limit("plan", "rate", 300, 60_000_000, 500),
            "mcp-daily": Limit("mcp-daily", "quota", 20, DAY),
            "search": Limit("search", "rate", 5, 1_000_000),
        },
    )
    with pytest.raises(TypeError):
        new.permissions["edr"] = ()


def test_the_limit_of_a_tool():
    """A key has its own values for it as for any limit."""
    given = {"name": "x", "plan": "pro", "limits": {"mcp/search_code": "60/minute"}}
    (limit,) = read_new_key(given, POLICY, NOW).limits.values()
    assert (limit.name, limit.amount) == ("mcp/search_code", 60)
    for wrong in ("mcp/", "/search_code", "mcp/a b"):
        told = faults(read_new_key, {**given, "limits": {wrong: "60/minute"}}, POLICY, NOW)
        assert len(told) == 1


def test_every_fault_is_reported_at_once():
    """Each faulty field is reported with the place in it, what was found and what was expected."""
    told = faults(
        read_new_key,
        {
            "plan": 5,
            "account": "a:b",
            "environment": "Prod",
            "scopes": ["a:read", "b c", None],
            "permissions": {"edr": ["read", "no!"], "x y": ["read"], "scm": "read"},
            "ip_ranges": ["10.0.0.0/33", "10.0.0.1/8", {}],
            "expires": "tomorrow",
            "limits": {"plan": "300", "a b": "1/day", "search": True},
            "colour": "blue",
        },
        None,
        NOW,
    )
    assert set(told) == {
        *("name", "plan", "account", "environment", "scopes[1]", "scopes[2]"),
        *("permissions.edr[1]", "permissions.'x y'", "permissions.scm"),
        *("ip_ranges[0]", "ip_ranges[1]", "ip_ranges[2]", "expires"),
        *("limits.plan", "limits.'a b'", "limits.search", "colour"),
    }
    assert told["name"] == ("nothing", "a value, it is required")
    assert told["plan"][0] == "a number"
    assert told["scopes[2]"][0] == "nothing"
    assert told["ip_ranges[0]"][0] == "'10.0.0.0/33'"
    assert told["ip_ranges[2]"][0] == "an object"
    assert told["limits.search"][0] == "true"
    assert told["colour"][0] == "an unknown field"
    assert "scopes" in told["colour"][1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", " "),
        ("name", "a\nb"),
        ("name", "\x1b[31m"),
        ("name", "x" * 101),
        ("name", "\ud800"),
        ("name", None),
        ("name", ["ci"]),
        ("plan", ""),
        ("plan", "x" * 65),
        ("account", "-acme"),
        ("environment", "a" * 33),
        ("environment", ""),
        ("scopes", "a:read"),
        ("scopes", {"a": 1}),
        ("scopes", None),
        ("scopes", ["s"] * 257),
        ("permissions", ["edr:read"]),
        ("permissions", {f"a{i}": [] for i in range(257)}),
        ("permissions", {f"a{i}": ["read", "write"] for i in range(129)}),
        ("ip_ranges", "10.0.0.0/8"),
        ("expires", 5),
        ("expires", "0s"),
        ("expires", "2020-01-01"),
        ("expires", "2027-01-15T08:00:00Z"),  # now
        ("expires", "2099-01-01T00:00:00"),
        ("expires", "9999-12-31T23:59:59-01:00"),
        ("expires", "99999999d"),
        ("limits", []),
    ],
)
def test_invalid_fields(field, value):
    """An invalid value is one fault, of its field."""
    assert list(of_new(**{field: value})) == [field]


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ("300", "a rate such as"),
        ("300/minute,burst=1", "a burst of at least"),
        ("300/minute,burst=x", "burst=500"),
        ("300/minute,burst=", "burst=500"),
        ("300/minute,burst=٣٠٠", "burst=500"),
        ("0/day", "an amount"),
        (7, "burst=500"),
    ],
)
def test_impossible_values(figures, words):
    """A limit's values are written as in policies, and the fault has an example."""
    assert words in of_new(limits={"plan": figures})["limits.plan"][1]


@pytest.mark.parametrize(
    ("given", "at", "words"),
    [
        ({"plan": "huge"}, "plan", "a plan of the policies: one of enterprise, free, pro"),
        ({"limits": {"x": "1/day"}}, "limits.x", "a limit of the policies"),
        ({"limits": {"mcp-daily": "9/day,burst=9"}}, "limits.mcp-daily", "quota"),
        (
            {"limits": {"mcp-connections": "9/day"}},
            "limits.mcp-connections",
            "connections, 1 to 1000",
        ),
        ({"limits": {"mcp-connections": "0"}}, "limits.mcp-connections", "1 to 1000"),
        ({"limits": {"plan": "20"}}, "limits.plan", "a rate such as 30/minute"),
        ({"limits": {"plan": "20/month"}}, "limits.plan", "a rate per second, minute, hour or day"),
    ],
)
def test_plans_and_limits_of_the_policies(given, at, words):
    """Plans and limits must be in the policies, if there are any."""
    assert words in faults(read_new_key, {"name": "ci", **given}, POLICY, NOW)[at][1]
    assert words in faults(read_key_change, given, POLICY, NOW)[at][1]


COSTS = """
routes:
  dear:    {match: GET /dear, upstream: api, rate: 9/minute, cost: 5}
  batch:   {match: POST /batch, upstream: api, rate: 9/minute, cost: {json: ids, max: 9}}
  shadow:
    match: GET /shadow
    upstream: api
    cost: 5
    plan_limits: false
    limits: [{name: watched, rate: 9/minute, mode: shadow}]
  open:    {match: GET /open, upstream: api, auth: none, cost: 5}
  added:   {match: GET /added, upstream: api, plan_limits: false, cost: 5}
  shared:  {match: GET /a, upstream: api, cost: 5, limits: [{name: both, rate: 9/minute}]}
  sharing: {match: GET /b, upstream: api, cost: 2, limits: [{name: both, rate: 9/minute}]}
"""


@pytest.mark.parametrize(
    ("name", "values", "route"),
    [
        ("dear", "4/minute", "dear"),
        ("dear", "4/minute,burst=5", None),
        ("dear", "5/minute", None),
        ("batch", "1/minute", None),  # a request with one element is admitted
        ("plan", "1/minute", None),  # so is one of the route batch
        ("watched", "1/minute", None),
        ("open", "1/minute", None),
        ("added", "4/minute", "added"),
        ("both", "2/minute", None),
        ("both", "1/minute", "sharing"),
    ],
)
def test_values_below_every_cost(name, values, route):
    """Values that would refuse each request that meets the limit are a fault, which names both."""
    policy = policy_of(routes=COSTS, plans="plans: {pro: {rate: 9/minute}}")
    given = {"limits": {name: values}}
    if route is None:
        assert list(read_account("acme", given, policy).limits) == [name]
    else:
        found, expected = faults(read_account, "acme", given, policy)[f"limits.{name}"]
        cost = policy.routes[route].cost
        assert found == f"'{values}'"
        assert expected == (
            f"{cost} or more for the limit {name}, as a request of the route {route} costs {cost}"
        )


def test_the_shipped_policies_know_the_names_of_limits():
    """A key's own values can be for the plan, for a route's limits, or for a route."""
    given = {"limits": {"plan": "1/day", "mcp": "1/day", "api": "1/day"}}
    assert list(read_account("acme", given, POLICY).limits) == ["plan", "mcp", "api"]


def test_values_of_each_kind():
    """A key's own values have the kind of the policies' limit; its unit may be another."""
    given = {"plan": "9/hour,burst=20", "mcp-daily": "1000/month", "mcp-connections": "20"}
    limits = read_account("acme", {"limits": given}, POLICY).limits
    assert [(limit.kind, limit.amount) for limit in limits.values()] == [
        *(("rate", 9), ("quota", 1000), ("concurrency", 20)),
    ]
    # Without policies, a number of requests could replace a rate of the same name.
    without = faults(read_account, "acme", {"limits": {"mcp-connections": "20"}}, None)
    assert "a rate such as" in without["limits.mcp-connections"][1]
    assert read_account("acme", {"limits": {"m": "20/week"}}, None).limits["m"].kind == "quota"


@pytest.mark.parametrize("day", [0, 32, "1", True, None, 1.0])
def test_a_billing_day(day):
    """A day from 1 to 31, as a number."""
    assert read_account("acme", {"billing_day": 31}, None).billing_day == 31
    assert read_account("acme", {}, None).billing_day == 1
    given = faults(read_account, "acme", {"billing_day": day}, None)
    assert given["billing_day"][1] == "a day of the month from 1 to 31"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2027-01-16", 1_800_057_600_000_000),
        ("2027-01-16T00:00:00Z", 1_800_057_600_000_000),
        ("2027-01-16T01:00:00.000001+01:00", 1_800_057_600_000_001),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
        ("1d", NOW + DAY),
        ("1.5s", NOW + 1_500_000),
    ],
)
def test_when_a_key_expires(text, expected):
    """A date is its first moment in UTC, a time is exact, a duration counts from now."""
    change = read_key_change({"expires": text}, None, NOW)
    assert change == KeyChange({"expires_us": expected})
    assert read_key_change({"expires": moment(expected)}, None, NOW) == change


def test_changes():
    """A change has the given fields only; null removes plan and expiry."""
    assert read_key_change({}, POLICY, NOW) == KeyChange({})
    given = {"name": "x", "ip_ranges": ["::1"], "scopes": [], "account": "acme"}
    assert read_key_change(given, POLICY, NOW).values == {
        "name": "x",
        "networks": (parse_network("::1"),),
        "scopes": (),
        "account": "acme",
    }
    cleared = read_key_change({"plan": None, "expires": None}, POLICY, NOW)
    assert cleared.values == {"plan": "", "expires_us": None}


@pytest.mark.parametrize("field", ["environment", "status", "id", "digest", "lineage", "last_used"])
def test_fields_that_cannot_change(field):
    """Fixed fields, and those that other calls change, cannot be in a change."""
    assert list(faults(read_key_change, {field: "x"}, None, NOW)) == [field]


def test_accounts():
    """An account is given as a whole: a field that is missing is empty."""
    assert read_account("acme", {}, POLICY) == Account("acme")
    assert read_account("acme", {"plan": None}, POLICY) == Account("acme")
    given = {"plan": "pro", "services": ["scm", "edr", "scm"], "limits": {"plan": "9/second"}}
    account = read_account("acme", given, POLICY)
    limits = {"plan": Limit("plan", "rate", 9, 1_000_000)}
    assert account == Account("acme", ("edr", "scm"), "pro", limits)
    shown = account_as_json(account)
    del shown["status"]
    assert read_account(shown.pop("name"), shown, POLICY) == account
    told = faults(read_account, "acme", {"plan": "huge", "services": ["a b"], "scopes": []}, POLICY)
    assert set(told) == {"plan", "services[0]", "scopes"}
    assert list(faults(read_account, "a:b", {}, None)) == ["name"]


def test_overlaps():
    """An overlap is a duration, and may be 0."""
    assert read_overlap_us("24h") == DAY
    assert read_overlap_us("0s") == 0
    assert faults(read_overlap_us, "x")["overlap"][0] == "'x'"


FIELDS = ["name", "plan", "account", "environment", "scopes", "permissions", "ip_ranges", "limits"]
SECRETS = st.sampled_from([KEY, KEY[:-1], KEY.upper(), f" {KEY}\n"])


@given(
    st.sampled_from([*FIELDS, "expires"]), SECRETS, st.sampled_from(["", "[]", "{}", "{[]}", "k"])
)
def test_a_key_is_never_repeated(field, secret, shape):
    """A whole key in any field is a fault that does not repeat it."""
    value = {
        "": secret,
        "[]": [secret],
        "{}": {secret: "1/day"},
        "{[]}": {"edr": [secret], "plan": secret},
        "k": None,
    }[shape]
    given_fields = {secret: value} if shape == "k" else {field: value}
    for read in (
        lambda: read_new_key({"name": "ci", **given_fields}, None, NOW),
        lambda: read_key_change(given_fields, POLICY, NOW),
        lambda: read_account(secret, given_fields, POLICY),
    ):
        with pytest.raises(Invalid) as caught:
            read()
        assert KEY[12:30].lower() not in str(caught.value).lower()


def test_the_value_of_an_unknown_field_is_not_repeated():
    """The value of an unknown field may be a secret."""
    for field in ("key", "token", "password"):
        assert "hunter2" not in str(of_new(**{field: "hunter2"}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*FIELDS, "expires", "services"]) | st.text(), JSON))
def test_any_json_is_read_or_faulted(given_fields):
    """Any JSON is a value or faults, and each fault is one printable line."""
    for read in (
        lambda: read_new_key(given_fields, POLICY, NOW),
        lambda: read_key_change(given_fields, None, NOW),
        lambda: read_account("acme", given_fields, POLICY),
    ):
        told: tuple[Fault, ...] = ()
        try:
            read()
        except Invalid as invalid:
            told = invalid.faults or (Fault("\n", "", ""),)
        assert all(str(fault).isprintable() for fault in told)


@given(
    st.lists(st.sampled_from(["a:read", "b:write", "c"]), max_size=3),
    st.dictionaries(st.sampled_from(["edr", "scm"]), st.lists(st.just("read"), min_size=1)),
    st.lists(st.sampled_from(["10.0.0.0/8", "::/0", "192.0.2.7"])),
    st.dictionaries(st.sampled_from(["plan", "mcp"]), st.sampled_from(["5/day", "9/hour,burst=9"])),
    st.none() | st.integers(1, 10_000 * DAY),
)
def test_shown_values_are_valid_input(scopes, permissions, ip_ranges, limits, left):
    """The JSON that shows a key, given to the form again, changes nothing."""
    first = {
        **{"scopes": scopes, "permissions": permissions, "ip_ranges": ip_ranges, "limits": limits},
        "expires": None if left is None else moment(NOW + left),
    }
    values = read_key_change(first, POLICY, NOW).values
    shown = key_as_json(plain_key(**values), NOW, None)
    again = read_key_change({name: shown[name] for name in first}, POLICY, NOW)
    assert again.values == values


def test_many_unknown_fields_are_one_fault():
    """Each would be compared with all known ones, which for thousands would take long."""
    sent = {f"x{number}": 0 for number in range(257)}
    with pytest.raises(Invalid) as caught:
        read_new_key(sent, None, NOW)
    (fault,) = caught.value.faults
    assert (fault.at, fault.found) == ("fields", "257 of them")
