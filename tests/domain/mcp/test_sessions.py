"""Session ids are sealed: only those that were given to a key on a route are opened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.limits import MOST_LEASE
from gateway.domain.mcp.sessions import Seals, Session, server_tag

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
SERVER = server_tag("127.0.0.1:9000")
IDS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=80)


@given(IDS, st.text(max_size=20), st.text(max_size=20))
def test_an_id_is_opened_again(text: str, lineage: str, route: str) -> None:
    """Any visible ASCII comes back, dots included."""
    seals = Seals((NEW,))
    sealed = seals.seal(Session(text, SERVER), lineage, route)
    assert sealed is not None
    assert sealed.startswith(f"{text}.{SERVER}.")
    assert seals.open(sealed, lineage, route) == Session(text, SERVER)


@given(IDS, st.integers(0, 200), st.characters(min_codepoint=0x21, max_codepoint=0x7E))
def test_a_changed_id_is_not_opened(text: str, at: int, other: str) -> None:
    """Each character counts."""
    seals = Seals((NEW,))
    sealed = seals.seal(Session(text, SERVER), "key", "mcp")
    assert sealed is not None
    at %= len(sealed)
    changed = sealed[:at] + other + sealed[at + 1 :]
    assert seals.open(changed, "key", "mcp") == (
        Session(text, SERVER) if changed == sealed else None
    )


def test_for_one_key_and_route() -> None:
    """Another key's, another route's, and one sealed by another secret are not opened."""
    seals = Seals((NEW,))
    sealed = seals.seal(Session("abc", SERVER), "key", "mcp")
    assert sealed is not None
    assert seals.open(sealed, "other", "mcp") is None
    assert seals.open(sealed, "key", "other") is None
    assert seals.open(sealed, "keym", "cp") is None
    assert Seals((OTHER,)).open(sealed, "key", "mcp") is None


def test_secrets_are_rotated() -> None:
    """The first secret seals, and the one before still opens."""
    before = Seals((OLD,)).seal(Session("abc", SERVER), "key", "mcp")
    both = Seals((NEW, OLD))
    assert before is not None
    assert both.open(before, "key", "mcp") == Session("abc", SERVER)
    after = both.seal(Session("abc", SERVER), "key", "mcp")
    assert after is not None
    assert Seals((NEW,)).open(after, "key", "mcp") == Session("abc", SERVER)
    assert Seals((NEW,)).open(before, "key", "mcp") is None


@pytest.mark.parametrize("text", ["", "a b", "a\r\nb", "é", "\x7f", "x" * 513])
def test_an_invalid_id_is_not_sealed(text: str) -> None:
    """The specification allows visible ASCII only."""
    assert Seals((NEW,)).seal(Session(text, SERVER), "key", "mcp") is None


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.b", "a.b.c.d", "é.b.c", "a" * 9_000, "a.é.c", "a.b.é"]
)
def test_anything_else_is_not_opened(text: str) -> None:
    """Whatever a client sends."""
    assert Seals((NEW,)).open(text, "key", "mcp") is None


@given(IDS)
def test_tags(text: str) -> None:
    """A tag fits into a number of the store, and differs by server."""
    tag = Session(text, SERVER).tag
    assert 1 <= tag <= MOST_LEASE
    assert tag != Session(text, server_tag("127.0.0.1:9001")).tag
    assert "9000" not in SERVER
