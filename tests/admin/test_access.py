"""Who may come in: the token, attempts at it, and sessions; the time is a number."""

from __future__ import annotations

import pytest

from gateway.admin import access
from gateway.admin.access import Access, Retry, Sessions, is_actor_name

TOKEN = "correct-horse-battery-staple"
HERE, THERE = "127.0.0.1", "192.0.2.7"


def guess(desk: Access, times: int, address: str = THERE, now_s: float = 0.0) -> list[object]:
    return [desk.admit(f"wrong-{index}", address, now_s) for index in range(times)]


def test_the_token_opens() -> None:
    """And nothing else does: not what it begins with, not with a space, not in other letters."""
    desk = Access(TOKEN)
    assert desk.admit(TOKEN, HERE, 0.0) is True
    for wrong in ("", TOKEN[:-1], f"{TOKEN} ", TOKEN.upper(), "\udcff", "\ud800"):
        assert desk.admit(wrong, HERE, 0.0) is False


def test_tokens_are_told_apart_whatever_is_in_them() -> None:
    """Bytes that are no UTF-8 come as surrogates, and are no fault of ours."""
    assert Access("\udcff" * 16).admit("\udcfe" * 16, HERE, 0.0) is False


def test_whoever_guesses_waits() -> None:
    """Ten wrong ones a minute; then even the right one is not looked at until it is over."""
    desk = Access(TOKEN)
    assert guess(desk, 10, now_s=30.0) == [False] * 10
    assert desk.admit(TOKEN, THERE, 30.5) == Retry(30)
    assert desk.admit("wrong", THERE, 59.9) == Retry(1)
    assert desk.admit(TOKEN, HERE, 59.9) is True
    assert desk.admit(TOKEN, THERE, 60.0) is True


def test_a_wait_is_no_admission() -> None:
    """Whoever forgets that there are three answers lets nobody in by it."""
    assert not Retry(1)


def test_what_is_refused_unseen_is_no_attempt() -> None:
    """Somebody who goes on is not shut out for longer by it."""
    desk = Access(TOKEN)
    guess(desk, 1_000)
    assert desk.admit(TOKEN, HERE, 1.0) is True
    assert guess(desk, 1, now_s=60.0) == [False]


def test_many_addresses_together_are_held_back() -> None:
    """A hundred a minute in all; but not those who had the token before."""
    desk = Access(TOKEN)
    assert desk.admit(TOKEN, HERE, 0.0) is True
    for number in range(access.ATTEMPTS_IN_ALL):
        desk.admit("wrong", f"192.0.2.{number}", 1.0)
    assert desk.admit(TOKEN, "198.51.100.1", 2.0) == Retry(58)
    assert desk.admit(TOKEN, HERE, 2.0) is True


def test_those_who_had_the_token_are_few() -> None:
    """The oldest are forgotten, so that the memory for them is bounded."""
    desk = Access(TOKEN)
    for number in range(access.FRIENDS + 1):
        desk.admit(TOKEN, f"friend-{number}", 0.0)
    for number in range(access.ATTEMPTS_IN_ALL):
        desk.admit("wrong", f"stranger-{number}", 0.0)
    assert desk.admit(TOKEN, "friend-0", 0.0) == Retry(60)
    assert desk.admit(TOKEN, "friend-1", 0.0) is True


def test_a_session_lives_while_it_is_used() -> None:
    """Half an hour after its last use it has ended."""
    sessions = Sessions()
    session = sessions.open("anna", HERE, 0.0)
    assert sessions.find(session.cookie, 1_799.9) is session
    assert sessions.find(session.cookie, 3_599.8) is session
    assert sessions.find(session.cookie, 5_399.8) is None
    assert sessions.find(session.cookie, 0.0) is None


def test_a_session_ends_after_half_a_day() -> None:
    """However much it is used."""
    sessions = Sessions()
    session = sessions.open("anna", HERE, 0.0)
    for minute in range(0, 12 * 60, 20):
        assert sessions.find(session.cookie, minute * 60.0) is session
    assert sessions.find(session.cookie, access.LONGEST_S) is None


def test_a_closed_session_is_gone() -> None:
    """At once, and a second time does nothing; others stay."""
    sessions = Sessions()
    one, other = (sessions.open(name, HERE, 0.0) for name in ("anna", "ben"))
    for _ in range(2):
        sessions.close(one.cookie)
    assert sessions.find(one.cookie, 0.0) is None
    assert sessions.find(other.cookie, 0.0) is other


def test_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was not used for longest makes room."""
    monkeypatch.setattr(access, "MOST_SESSIONS", 2)
    sessions = Sessions()
    one, two = (sessions.open(name, HERE, 0.0) for name in ("one", "two"))
    sessions.find(one.cookie, 1.0)
    three = sessions.open("three", HERE, 2.0)
    found = [sessions.find(each.cookie, 3.0) for each in (one, two, three)]
    assert found == [one, None, three]


def test_a_sessions_secrets_are_secret() -> None:
    """They are long, differ, and do not show when a session is printed."""
    sessions = Sessions()
    session, other = (sessions.open("anna", HERE, 0.0) for _ in range(2))
    secrets = {session.cookie, session.csrf, other.cookie, other.csrf}
    assert len(secrets) == 4
    assert all(len(secret) >= 43 and secret not in repr(session) for secret in secrets)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("anna", True),
        ("Anna O'Neill", True),
        ("zoë", True),
        ("a", True),
        ("ci+deploy@example.org", True),
        ("x" * 64, True),
        ("x" * 65, False),
        ("", False),
        (" anna", False),
        ("anna ", False),
        ("anna (console, 127.0.0.1)", False),
        ("anna\nben", False),
        ("anna\n", False),
        ("<b>", False),
        ("\ud800", False),
    ],
)
def test_what_people_may_call_themselves(text: str, is_one: bool) -> None:
    """Nothing that could look like what the audit log puts behind a name."""
    assert is_actor_name(text) is is_one
