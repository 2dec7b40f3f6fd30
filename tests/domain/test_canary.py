"""Which requests go to a canary."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.canary import Canary
from tests.kit.reach import reached, reaches

SUBJECTS = [f"key-{at}" for at in range(10_000)]


@dataclass(frozen=True, slots=True)
class Request:
    subject: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str:
        return self.headers.get(name, "")

    def subject_of(self, by: str) -> str:
        return self.subject


def taken(canary: Canary) -> set[str]:
    return {each for each in SUBJECTS if canary.takes(Request(each))}


@pytest.mark.parametrize("percent", [0.0, 0.5, 5.0, 50.0, 99.5, 100.0])
def test_the_share(percent: float) -> None:
    """Of 10,000 clients, within half a percent of all; none and all are exact."""
    number = len(taken(Canary("beta", percent)))
    assert number == pytest.approx(percent * 100, abs=100)
    if percent in {0.0, 100.0}:
        assert number == percent * 100


@reaches(0.1)
@given(st.floats(0, 100), st.floats(0, 100))
def test_who_had_it_keeps_it(one: float, other: float) -> None:
    """A larger share has all clients of a smaller one, whatever the route."""
    smaller, larger = sorted((one, other))
    for subject in SUBJECTS[:100]:
        if Canary("beta", smaller).takes(Request(subject)):
            reached()
            assert Canary("beta", larger).takes(Request(subject))


def test_canaries_are_independent() -> None:
    """The clients of one are not those of another: nobody gets all experiments."""
    both = taken(Canary("beta", 10.0)) & taken(Canary("gamma", 10.0))
    assert len(both) == pytest.approx(100, abs=50)


@pytest.mark.parametrize(
    ("canary", "headers", "expected"),
    [
        (Canary("beta", header="x-canary", value="always"), {"x-canary": "always"}, True),
        (Canary("beta", header="x-canary", value="always"), {"x-canary": "Always"}, False),
        (Canary("beta", header="x-canary", value="always"), {}, False),
        (Canary("beta", header="x-canary"), {"x-canary": "no"}, True),
        (Canary("beta", header="x-canary"), {"x-canary": ""}, False),
        (Canary("beta", header="x-canary"), {}, False),
        (Canary("beta", 100.0, header="x-canary", value="a"), {"x-canary": "b"}, True),
        (Canary("beta", header="x-canary", value="a"), {"x-canary": "\udcff"}, False),
    ],
)
def test_headers(canary: Canary, headers: dict[str, str], expected: bool) -> None:
    """The header decides first; without it, the share."""
    assert canary.takes(Request("key", headers)) is expected


@pytest.mark.parametrize(
    ("canary", "words", "headers"),
    [
        (Canary("beta", 5.0), "5% by key to beta", ()),
        (
            Canary("beta", 0.125, "header:x-s", "x-canary", "yes"),
            "0.125% by header:x-s and those with the header x-canary: yes to beta",
            ("x-canary", "x-s"),
        ),
        (Canary("beta", header="x-c"), "those with the header x-c to beta", ("x-c",)),
    ],
)
def test_words(canary: Canary, words: str, headers: tuple[str, ...]) -> None:
    """As `explain` and `diff` show it; the headers that have to be kept of a request."""
    assert canary.words == words
    assert canary.headers == headers
    assert replace(canary, upstream="other").words.endswith("to other")
