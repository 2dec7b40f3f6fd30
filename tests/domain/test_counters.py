"""Names of counters: one for each subject, and none that a client could forge."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.counters import counter_names, subject_tag
from gateway.domain.limits import Limit


def names(
    per: str,
    account: str = "acme",
    lineage: str = "k1",
    ip: str = "192.0.2.1",
    home: str = "",
) -> str:
    headers = {"x-tenant": "t1"}
    (name,) = counter_names(
        [Limit("plan", "rate", 5, 60_000_000, per=per)],
        account=account,
        home=home or account,
        lineage=lineage,
        ip=ip,
        header=lambda header: headers.get(header, ""),
    )
    return name


@pytest.mark.parametrize(
    ("per", "name"),
    [
        ("key", r"gw:limit:\{acme\}:key:k1:plan:rate:60000000"),
        ("account", r"gw:limit:\{acme\}:account:plan:rate:60000000"),
        ("ip", r"gw:limit:\{192\.0\.2\.1\}:ip:plan:rate:60000000"),
        ("header:x-tenant", r"gw:limit:\{~[0-9a-f]{32}\}:header-x-tenant:plan:rate:60000000"),
        ("header:x-absent", r"gw:limit:\{~[0-9a-f]{32}\}:header-x-absent:plan:rate:60000000"),
    ],
)
def test_names(per: str, name: str) -> None:
    """A name has its subject as the hash tag, then what is counted, but no text of a header."""
    assert re.fullmatch(name, names(per))


def test_a_key_that_moved() -> None:
    """Its own counters keep their names; those of accounts are its new account's."""
    assert names("key", "globex", home="acme") == names("key", "acme")
    assert names("account", "globex", home="acme") == names("account", "globex")


def test_order() -> None:
    """One name for each limit, in order, all with the account's hash tag."""
    limits = [Limit(name, "quota", 5, 86_400_000_000) for name in ("b", "a")]
    found = counter_names(
        limits, account="acme", home="acme", lineage="k", ip="::1", header=lambda _: ""
    )
    assert found == tuple(f"gw:limit:{{acme}}:key:k:{n}:quota:86400000000" for n in "ba")


@pytest.mark.parametrize("text", ["a", "A-z.0_9", "x" * 64, "192.0.2.1"])
def test_plain_subjects(text: str) -> None:
    """Short plain texts are used as they are."""
    assert subject_tag(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "::1",
        "a:b",
        "{a}",
        "a*",
        "a\r\nb",
        "a b",
        "a\n",
        "x" * 65,
        "ä",
        "٣",
        "~" + "0" * 32,
        "\udcff",
    ],
)
def test_other_subjects(text: str) -> None:
    """All others become a digest of fixed length, and no two share one."""
    assert re.fullmatch("~[0-9a-f]{32}", subject_tag(text))


@given(st.text(), st.text())
def test_subjects_stay_apart(first: str, second: str) -> None:
    """Different texts have different tags, and no tag can end early."""
    assert (subject_tag(first) == subject_tag(second)) == (first == second)
    assert re.fullmatch(r"[A-Za-z0-9._~-]{1,64}", subject_tag(first))


def test_kinds_of_subject_stay_apart() -> None:
    """A key, an account and an address with the same text have separate counters."""
    same = {names(per, account="x", lineage="x", ip="x") for per in ("key", "account", "ip")}
    assert len(same) == 3
