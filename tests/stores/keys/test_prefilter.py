"""Filtering records by their bytes, before parsing."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.keylife import is_wanted, status_at
from gateway.domain.ports import KeyFilter
from gateway.stores.keys.prefilter import Owner, Prefilter, owner_of
from gateway.stores.keys.records import write_record
from tests.kit.reach import reached, reaches
from tests.kit.rows import each_row
from tests.suites.keys import FULL, NOW, plain_key

WORDS = st.sampled_from(["a", "B", "é", "É", "ß", "İ", "\u212a", '"', "\\", "\n", "\x7f", "pro"])
TEXTS = st.lists(WORDS, max_size=3).map("".join)
LIMITS = st.sampled_from(
    [{}, FULL.limits, {"name": FULL.limits["plan"], "id": FULL.limits["plan"]}]
)
RECORDS = st.builds(
    plain_key,
    TEXTS,
    name=TEXTS,
    account=TEXTS,
    plan=TEXTS,
    environment=TEXTS,
    status=st.sampled_from(["valid", "suspended", "revoked"]),
    expires_us=st.sampled_from([None, 0, NOW - 1, NOW, NOW + 1]),
    limits=LIMITS,
    scopes=st.lists(TEXTS, max_size=2).map(tuple),
)
FILTERS = st.builds(
    KeyFilter,
    text=st.none() | TEXTS,
    status=st.sampled_from([None, "valid", "suspended", "revoked", "expired"]),
    plans=st.none() | st.frozensets(TEXTS),
    other_plans=st.none() | st.frozensets(TEXTS, max_size=3),
    account=st.none() | TEXTS,
    environment=st.none() | TEXTS,
    now_us=st.just(NOW),
    scope=st.none() | TEXTS,
    expires_before_us=st.sampled_from([None, NOW, NOW + 1]),
)


@st.composite
def filters_of(draw, record, plan):
    """Filters that ask for what the record has, in any combination."""
    text = draw(st.sampled_from([record.id, record.name, record.account]))
    start, end = (draw(st.integers(0, len(text))) for _ in range(2))
    fields = {
        "text": draw(st.sampled_from([str, str.upper, str.lower]))(text[start:end]),
        "status": status_at(record, NOW),
        "plans": draw(st.frozensets(TEXTS)) | {plan},
        "other_plans": draw(st.frozensets(TEXTS, max_size=3)) - {plan},
        "account": record.account,
        "environment": record.environment,
        "scope": draw(st.sampled_from(record.scopes or [None])),
        "expires_before_us": None if record.expires_us is None else record.expires_us + 1,
    }
    asked = draw(st.sets(st.sampled_from([*fields])))
    return KeyFilter(now_us=NOW, **{name: fields[name] for name in asked})


@reaches(0.05)
@given(RECORDS, TEXTS, st.data())
def test_matching_records_pass(record, account_plan, data):
    """No record that matches is filtered out, whatever its texts are."""
    plan = record.plan or account_plan
    wanted = data.draw(filters_of(record, plan) | FILTERS)
    if is_wanted(record, plan, wanted):
        reached()
        assert Prefilter(wanted).may_pass(write_record(record))


@given(
    RECORDS,
    st.sampled_from(["acme", "a.b-c_d", "7h3k9m2p4q6r"]),
    st.sampled_from([{}, {"lineage": ("read",), "status": ("read",)}]),
)
def test_the_owner_of_a_record(record, account, permissions):
    """It is found in the bytes, whatever the other texts are, as in the parsed record."""
    fields = {"account": account, "permissions": permissions, "lineage": "7h3k9m2p4q6r"}
    record = replace(record, **fields)
    assert owner_of(write_record(record)) == Owner.of(record)


def test_records_in_another_format_have_no_known_owner():
    """Their owner is found by parsing them."""
    written = json.dumps(json.loads(write_record(plain_key())), indent=2).encode()
    assert owner_of(written) is None
    assert owner_of(b"of another type") is None


@each_row(
    ("wanted", "passes"),
    [
        (KeyFilter(), True),
        (KeyFilter(text=""), True),
        (KeyFilter(text="ffff"), False),  # it is in its digest, which is not searched
        (KeyFilter(text="free"), False),  # its plan
        (KeyFilter(text="acm"), True),
        (KeyFilter(status="revoked"), False),
        (KeyFilter(status="valid", now_us=NOW), False),
        (KeyFilter(status="valid", now_us=NOW - 1), True),
        (KeyFilter(status="expired", now_us=NOW - 1), False),
        (KeyFilter(plans=frozenset({"pro"})), False),
        (KeyFilter(other_plans=frozenset({"free"})), False),
        (KeyFilter(other_plans=frozenset({"", "pro"})), True),
        (KeyFilter(account="acm"), False),
        (KeyFilter(environment="produc"), False),
    ],
)
def test_other_records_are_filtered_out(wanted, passes):
    """A record that does not match is recognised by its bytes."""
    content = write_record(plain_key(expires_us=NOW))
    assert Prefilter(wanted).may_pass(content) is passes


def test_an_empty_filter_is_not_selective():
    """An empty filter is not selective, so a page can be read at once."""
    assert not Prefilter(KeyFilter()).is_selective
    assert not Prefilter(KeyFilter(text="")).is_selective
    for wanted in (
        KeyFilter(text="a"),
        KeyFilter(plans=frozenset({""})),
        KeyFilter(status="valid"),
    ):
        assert Prefilter(wanted).is_selective


def test_texts_of_another_form_pass():
    """A record in another JSON form passes, as its bytes prove nothing."""
    found = json.loads(write_record(FULL))
    assert Prefilter(KeyFilter(text="x")).may_pass(json.dumps(found).encode())


@each_row(
    ("digits", "status"),
    product([b"9" * 21, b"9" * 5_000, b"-" + b"9" * 5_000], ["valid", "expired"]),
)
def test_an_expiry_of_any_length_is_looked_at(status, digits):
    """An invalid expiry of any length raises nothing."""
    content = write_record(plain_key(expires_us=NOW)).replace(str(NOW).encode(), digits)
    may_pass = Prefilter(KeyFilter(status=status, now_us=NOW)).may_pass(content)
    assert isinstance(may_pass, bool)
