"""How a header field is handled, by its name and its value."""

from __future__ import annotations

import pytest

from gateway.domain.cookies import SECURE_SESSION, SESSION
from gateway.domain.headers import (
    MOST_SESSIONS,
    SESSION_MARK,
    TRUSTED_ONLY,
    Handling,
    HeaderRules,
    is_forwarded,
    sets_session,
    without_session,
)
from gateway.policies import fields

RULES = HeaderRules(100, counted=("x-tenant", "my_team"))


@pytest.mark.parametrize(
    ("name", "handling"),
    [
        (b"Accept", Handling.FORWARDED),
        (b"X_Any", Handling.FORWARDED),
        (b"Host", Handling.READ),
        (b"VIA", Handling.READ),
        (b"X-Forwarded-For", Handling.READ),
        (b"X_Forwarded_For", Handling.DROPPED),
        (b"X-Gateway-Plan", Handling.DROPPED),
        (b"proxy-anything", Handling.DROPPED),
        (b"X-Real-IP", Handling.FROM_TRUSTED),
        (b"X-Forwarded", Handling.FROM_TRUSTED),
        (b"X-Forwarded-Anything", Handling.FROM_TRUSTED),
        (b"CF-Connecting-IP", Handling.FROM_TRUSTED),
        (b"True-Client-IP", Handling.FROM_TRUSTED),
        (b"X-Envoy-External-Address", Handling.FROM_TRUSTED),
        (b"X-Original-Host", Handling.FROM_TRUSTED),
        (b"Remote-User", Handling.FROM_TRUSTED),
        (b"Client-Cert", Handling.FROM_TRUSTED),
        (b"CF_Connecting_IP", Handling.DROPPED),
        (b"X_Envoy-External-Address", Handling.DROPPED),
        (b"X-Envoy-External_Address", Handling.DROPPED),
        # A client must not set another path than the checked one.
        (b"X-Original-URL", Handling.READ),
        (b"X-Rewrite-URL", Handling.READ),
        # What counts, only by its own name.
        (b"X-Tenant", Handling.FORWARDED),
        (b"X_Tenant", Handling.DROPPED),
        (b"X.Tenant", Handling.DROPPED),
        (b"My_Team", Handling.FORWARDED),
        (b"My-Team", Handling.DROPPED),
        (b"MyTeam", Handling.FORWARDED),
    ],
)
def test_handling(name: bytes, handling: Handling) -> None:
    """By its name in any case; a synonym of a significant name is dropped."""
    assert RULES.handling(name) == (name.lower(), handling)


def test_the_policies_list_replaces_the_default() -> None:
    """The given names and prefixes replace it; X-Forwarded-* is given in any case."""
    rules = HeaderRules(100, trusted_only=("X-Any", "X-Some-*"))
    for name in (b"X-Any", b"X-Some-Thing", b"X-Forwarded-Host", b"X-Real-IP"):
        assert rules.handling(name)[1] is Handling.FROM_TRUSTED
    for name in (b"X-Any-Other", b"X-Some", b"CF-Connecting-IP"):
        assert rules.handling(name)[1] is Handling.FORWARDED
    assert rules.handling(b"X_Any")[1] is Handling.DROPPED


def test_the_default_could_be_written_in_a_policy() -> None:
    """Each of its names is unique, and valid in a policy."""
    assert [fields.read_trusted_only(name) for name in TRUSTED_ONLY] == list(TRUSTED_ONLY)
    assert len({name.lower() for name in TRUSTED_ONLY}) == len(TRUSTED_ONLY)


@pytest.mark.parametrize("dash", "!#$%&'*+.^_`|~")
@pytest.mark.parametrize("name", ["Transfer-Encoding", "X-Gateway-Plan", "X-Client-IP", "X-Tenant"])
def test_no_synonym_is_forwarded(name: str, dash: str) -> None:
    """Whatever character replaces a dash, the header is not forwarded."""
    spelled = name.replace("-", dash)
    assert RULES.handling(spelled.encode()) == (spelled.lower().encode(), Handling.DROPPED)


def test_what_can_be_forwarded() -> None:
    """Headers that the gateway reads or sets itself cannot be counted by, or listed."""
    for name in ("Host", "via", "X_Forwarded_For", "X-Gateway-Plan", "Content.Length"):
        assert not is_forwarded(name)
    for name in ("X-Tenant", "X-Real-IP", "Accept"):
        assert is_forwarded(name)


# -- the console's session, which is forwarded in neither direction -------------------------------


def test_both_names_are_found_by_one_mark() -> None:
    """So that a line without it needs no parsing."""
    assert all(SESSION_MARK in name.encode() for name in (SESSION, SECURE_SESSION))


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (b"Cookie: gateway_session=x", b""),
        (b"Cookie: __Host-gateway_session=x", b""),
        (b"Cookie: gateway_session", b""),
        (b"Cookie:gateway_session=x;a=b", b"Cookie: a=b\r\n"),
        (b"Cookie: a=b;\tgateway_session = x", b"Cookie: a=b\r\n"),
        (b"Cookie: a=b; gateway_session=x; gateway_session=y; c=d", b"Cookie: a=b; c=d\r\n"),
        (b"Cookie: my_gateway_session=x", b"Cookie: my_gateway_session=x\r\n"),
        (b"Cookie: gateway_sessions=x", b"Cookie: gateway_sessions=x\r\n"),
        (b"Cookie: a=gateway_session=x", b"Cookie: a=gateway_session=x\r\n"),
        (b"X-Cookie: gateway_session=x", b"X-Cookie: gateway_session=x\r\n"),
        (b"Cookie: a=b; " + b"gateway_session=x; " * (MOST_SESSIONS + 1), b""),
    ],
)
def test_what_is_left_of_a_request(line: bytes, left: bytes) -> None:
    """The session is removed; other cookies, and invalid fields, are left unchanged."""
    before, after = b"Host: a\r\n", b"X: y\r\n"
    assert without_session(before + line + b"\r\n" + after) == before + left + after


@pytest.mark.parametrize(
    ("value", "sets"),
    [
        (b"gateway_session=x", True),
        (b"gateway_session=x; Domain=a.example; Path=/", True),
        (b"__Host-gateway_session=; Secure; Path=/", True),
        (b"gateway_session", True),
        # Without a name, the browser sends it back as gateway_session=x.
        (b"=gateway_session=x", True),
        (b" = gateway_session=x", True),
        (b"a=b; gateway_session=x", False),
        (b"a=gateway_session", False),
        (b"gateway_session2=x", False),
    ],
)
def test_which_answers_set_it(value: bytes, sets: bool) -> None:
    """A pair of that name, or one without a name that a browser would send back as such."""
    assert sets_session(value) is sets
