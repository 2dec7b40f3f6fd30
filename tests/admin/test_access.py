"""Valid tokens and guesses; the time is a number."""

from __future__ import annotations

import pytest

from gateway.admin import access
from gateway.admin.access import WRONG_PER_ADDRESS, Access, Retry, is_actor_name

TOKEN = "correct-horse-battery-staple"
HERE, THERE = "127.0.0.1", "192.0.2.7"


def guess(deps: Access, times: int, address: str = THERE, now_s: float = 0.0) -> list[object]:
    return [deps.admit(f"wrong-{index}", address, now_s) for index in range(times)]


def test_the_token_opens() -> None:
    """No prefix of it does, nor the token with a space or in another letter case."""
    deps = Access(TOKEN)
    assert deps.admit(TOKEN, HERE, 0.0) is True
    for wrong in ("", TOKEN[:-1], f"{TOKEN} ", TOKEN.upper(), "\udcff", "\ud800"):
        assert deps.admit(wrong, HERE, 0.0) is False


def test_tokens_of_any_bytes_are_compared() -> None:
    """Bytes that are not UTF-8 arrive as surrogates, and raise no exception."""
    assert Access("\udcff" * 16).admit("\udcfe" * 16, HERE, 0.0) is False


def test_the_right_token_always_passes() -> None:
    """However many wrong ones came before it, from the same address or from all."""
    deps = Access(TOKEN)
    guess(deps, 10_000)
    assert deps.admit(TOKEN, THERE, 0.0) is True
    for number in range(access.MOST_ADDRESSES + 1):
        deps.admit("wrong", f"192.0.{number // 256}.{number % 256}", 1.0)
    assert deps.admit(TOKEN, THERE, 1.0) is True
    assert deps.admit(TOKEN, "198.51.100.1", 1.0) is True


def test_wrong_ones_must_wait() -> None:
    """After ten in a minute, until the minute is over; other addresses need not wait."""
    deps = Access(TOKEN)
    assert guess(deps, WRONG_PER_ADDRESS, now_s=30.0) == [False] * WRONG_PER_ADDRESS
    assert deps.admit("wrong", THERE, 30.5) == Retry(30)
    assert deps.admit("wrong", THERE, 59.9) == Retry(1)
    assert deps.admit("wrong", HERE, 59.9) is False
    assert deps.admit("wrong", THERE, 60.0) is False


def test_the_right_token_clears_nothing() -> None:
    """Another client behind the same proxy may have it: guesses are still counted."""
    deps = Access(TOKEN)
    guess(deps, WRONG_PER_ADDRESS)
    deps.admit(TOKEN, THERE, 0.0)
    assert guess(deps, 1) == [Retry(60)]


def test_a_network_of_ipv6_is_one_address() -> None:
    """A client with one IPv6 address usually has 2**64."""
    deps = Access(TOKEN)
    for number in range(WRONG_PER_ADDRESS):
        assert deps.admit("wrong", f"2001:db8:1:2::{number}", 0.0) is False
    assert deps.admit("wrong", "2001:db8:1:2:ffff::1", 0.0) == Retry(60)
    assert deps.admit("wrong", "2001:db8:1:3::1", 0.0) is False


def test_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further addresses must wait, and nothing is stored for them."""
    monkeypatch.setattr(access, "MOST_ADDRESSES", 2)
    deps = Access(TOKEN)
    answers = [deps.admit("wrong", f"192.0.2.{number}", 0.0) for number in range(4)]
    assert answers == [False, False, Retry(60), Retry(60)]
    assert deps.admit("wrong", "192.0.2.0", 0.0) is False


def test_a_connection_without_an_address_is_counted_too() -> None:
    """A connection that has already closed has no address."""
    deps = Access(TOKEN)
    assert guess(deps, WRONG_PER_ADDRESS + 1, "")[-1] == Retry(60)


def test_a_wait_is_no_admission() -> None:
    """`Retry` is false, so code that ignores it admits nothing."""
    assert not Retry(1)


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
def test_names_of_actors(text: str, is_one: bool) -> None:
    """No name that could be mistaken for the address that the audit log appends to a name."""
    assert is_actor_name(text) is is_one
