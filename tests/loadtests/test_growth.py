"""The growth measurement: its pairs, and how their rounds are compared."""

from __future__ import annotations

import pytest

from loadtests.compare import growth
from loadtests.compare.growth import more_percent
from loadtests.compare.keys import make_key
from tests.kit.rows import each_row


def test_too_few_descriptors_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this process may not hold that many connections, there is no value."""
    monkeypatch.setattr(growth.resource, "getrlimit", lambda _: (100, 100))
    found = growth._idle(growth.Running(1, 1), make_key())
    assert found.found is None
    assert "100 descriptors" in found.note


def test_the_pairs_have_the_documented_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times ten to a thousand routes, ten to 100,000 keys, one range to twenty, two workers."""
    monkeypatch.setattr(growth, "make_many", lambda count: [make_key()] * count)
    sizes = {
        title.partition(": ")[2]: [
            (len(site.paths), len(site.keys), len(site.keys[0].networks), site.workers)
            for site in sites
        ]
        for title, _, sites in growth._pairs()
    }
    assert sizes == {
        "1,000 routes instead of 10": [(10, 1, 1, 1), (1000, 1, 1, 1)],
        "100,000 keys instead of 10": [(1, 10, 1, 1), (1, 100_000, 1, 1)],
        "20 IP ranges on a key instead of one": [(1, 1, 1, 1), (1, 1, 20, 1)],
        "two workers instead of one": [(1, 1, 1, 1), (1, 1, 1, 2)],
    }


def test_both_of_a_pair_get_the_same_kind_of_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what grows differs: the lines have the same form, paths and keys the same number."""
    monkeypatch.setattr(growth, "make_many", lambda count: [make_key()] * count)
    pairs = list(growth._pairs())
    assert pairs
    for _, _, (small, grown) in pairs:
        assert small.lines == grown.lines
        assert len(small.paths) == len(grown.paths) or small.paths == grown.paths[:10]
        assert len(small.keys) == len(grown.keys) or small.lines == "key"


@each_row(
    ("small", "grown", "percent"),
    [
        ([50.0], [52.5], 5),
        ([50.0, 100.0, 50.0], [51.0, 102.0, 90.0], 2),  # a slow minute affects both, a hiccup one
        ([100.0], [90.0], -10),
    ],
)
def test_rounds_are_compared_one_by_one(
    small: list[float], grown: list[float], percent: float
) -> None:
    """Growth is the median, over the rounds, of the difference within a round."""
    assert more_percent(small, grown).middle == pytest.approx(percent)
