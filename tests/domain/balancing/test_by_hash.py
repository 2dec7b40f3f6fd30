"""The same server for the same subject, whatever happens to the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.balancing.by_hash import build
from tests.domain.balancing.candidates import Request, below, counted, servers

SUBJECTS = [f"key-{at}" for at in range(2_000)]


@pytest.mark.parametrize(
    ("subject", "expected"), [("", 1), ("initech", 0), ("globex", 2), ("\udcff", 1), ("é", 1)]
)
def test_the_choice_is_the_same_everywhere(subject: str, expected: int) -> None:
    """A worker, a gateway or a later version that chose differently would empty all caches."""
    candidates = servers(1, 1, 1)
    for order in (candidates, candidates[::-1]):
        assert build(order, "key", below())(Request(subject)) is candidates[expected]


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 3, 6), (1_000, 1_000)])
def test_shares(weights: tuple[int, ...]) -> None:
    """Subjects are spread by weight: 10,000 of them, within 2 % of all."""
    candidates = servers(*weights)
    shares = counted(build(candidates, "key", below()), candidates, 10_000)
    expected = [10_000 * each / sum(weights) for each in weights]
    assert shares == pytest.approx(expected, abs=200)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=6), st.data())
def test_a_removed_server_moves_only_its_own(weights: list[int], data: st.DataObject) -> None:
    """Every subject of another server stays where it was."""
    candidates = servers(*weights)
    gone = data.draw(st.sampled_from(candidates))
    before = build(candidates, "key", below())
    after = build([each for each in candidates if each is not gone], "key", below())
    for subject in SUBJECTS[:50]:
        was = before(Request(subject))
        assert was is gone or after(Request(subject)) is was


def test_what_is_asked() -> None:
    """The subject that the policy names; with one server, nothing is asked."""
    asked = []

    class Spy:
        def subject_of(self, by: str) -> str:
            asked.append(by)
            return "acme"

    build(servers(1, 1), "header:x-session", below())(Spy())
    build(servers(1), "header:x-session", below())(Spy())
    assert asked == ["header:x-session"]
