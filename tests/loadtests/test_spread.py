"""Ranges over rounds, and which verdicts they allow."""

from __future__ import annotations

import pytest

from loadtests.compare.spread import Spread, Verdict, ratios
from tests.kit.rows import each_row


@each_row(
    ("values", "text"),
    [
        ([2.0, 1.0, 4.0], "2.0 (1.0 to 4.0)"),
        ([1000.0, 3000.0], "2,000.0 (1,000.0 to 3,000.0)"),
        ([5.0], "5.0"),
    ],
)
def test_text(values: list[float], text: str) -> None:
    """Median, least and most; a single value has no range."""
    assert Spread.of(values).text(1) == text


def test_ratios_are_of_the_same_round() -> None:
    """A minute in which all cost twice as much has no effect on a ratio."""
    assert ratios([10, 20, 11], [20, 40, 20]) == Spread(0.5, 0.5, 0.55, 3)
    with pytest.raises(ValueError, match="shorter"):
        ratios([1, 2], [1])


@each_row(
    ("values", "word"),
    [
        ([0.4, 0.45, 0.5, 0.5, 0.5], "pass"),
        ([0.51, 0.6, 0.6, 0.6, 0.6], "FAIL"),
        ([0.5, 0.5, 0.5, 0.5, 0.51], "undecided"),
        ([0.49, 0.6, 0.6, 0.6, 0.6], "undecided"),
        ([0.1, 0.1, 0.1, 0.1], "too few rounds"),
    ],
)
def test_verdicts(values: list[float], word: str) -> None:
    """A verdict needs five rounds that agree; a value exactly at its objective reaches it."""
    assert Verdict("a ratio", Spread.of(values), 0.5).word == word


def test_other_verdicts() -> None:
    """What was not measured does not pass; what does not vary is measured once."""
    assert Verdict("a ratio", None, 0.5).word == "not measured"
    assert Verdict("memory", Spread.of([59]), 60, "MB", rounds=1).word == "pass"
    assert Verdict("memory", Spread.of([61]), 60, "MB", rounds=1).word == "FAIL"
