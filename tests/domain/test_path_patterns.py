"""Patterns as sets of paths, against regular expressions."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.path_patterns import (
    ANY,
    ONE,
    OTHER,
    Matcher,
    Pattern,
    lies_within,
    normal,
    samples,
    shared,
)
from tests.domain.route_rules import as_text, no_deadline, path_of

#: Every path that tells two short patterns over the words a and b apart.
PATHS = [path for length in range(8) for path in product(("a", "b", "other"), repeat=length)]


def is_short(words: list[str]) -> bool:
    return words.count(ANY) <= 2 and len(words) - words.count(ANY) <= 2


written = st.lists(st.sampled_from(["a", "b", ONE, ANY]), max_size=4).filter(is_short).map(tuple)
patterns = written.map(normal)


@cache
def matched(pattern: Pattern) -> frozenset[Pattern]:
    expression = path_of(pattern, ignores_case=False)
    return frozenset(one for one in PATHS if expression.fullmatch(as_text(one)))


@given(written)
def test_the_normal_form_matches_the_same_paths(words: Pattern) -> None:
    """In it no "**" is before another wildcard."""
    pattern = normal(words)
    assert matched(pattern) == matched(words)
    assert not {(ANY, ANY), (ANY, ONE)} & {*pairwise(pattern)}


@no_deadline
@given(patterns, patterns)
def test_one_pattern_lies_within_another(inner: Pattern, outer: Pattern) -> None:
    """If it matches a subset of the paths; in normal form both are equal if the paths are."""
    assert lies_within(inner, outer) is (matched(inner) <= matched(outer))
    assert (inner == outer) is (matched(inner) == matched(outer))


@no_deadline
@given(patterns, patterns)
def test_what_two_patterns_share(first: Pattern, second: Pattern) -> None:
    """The patterns of what both match together match just that."""
    found = [matched(normal(one)) for one in shared(first, second)]
    assert frozenset().union(*found) == matched(first) & matched(second)


def test_what_is_shared_has_the_spelling_of_the_first() -> None:
    """Literals that are equal after folding are those of the first pattern."""
    assert [*shared(("A", ONE, "c"), ("a", "B", ANY), str.lower)] == [("A", "B", "c")]
    assert [*shared(("A",), ("a",))] == []


@no_deadline
@given(st.lists(patterns, max_size=5), st.lists(st.sampled_from(["a", "b", "other"]), max_size=7))
def test_a_matcher_matches_all_patterns_at_once(several: list[Pattern], path: list[str]) -> None:
    """It finds exactly the patterns that match, of all of them or of some."""
    expected = [index for index, one in enumerate(several) if tuple(path) in matched(one)]
    matcher = Matcher(several)
    assert matcher.matching(path) == expected
    every_other = sum(matcher.starts[::2])
    assert matcher.matching(path, every_other) == [one for one in expected if one % 2 == 0]


@no_deadline
@given(st.lists(patterns, max_size=5), patterns)
def test_a_matcher_finds_what_overlaps(several: list[Pattern], pattern: Pattern) -> None:
    """It finds exactly the patterns that share a path with another one."""
    matcher = Matcher(several)
    ends = [
        end
        for end, one in zip(matcher.ends, several, strict=True)
        if matched(one) & matched(pattern)
    ]
    assert matcher.sharing(pattern) == sum(ends)


def test_samples() -> None:
    """A sample has other segments for wildcards, up to a number of them for each "**"."""
    assert [*samples(("a", ONE), 3)] == [("a", OTHER)]
    assert [*samples((ANY, "a", ANY), 1)] == [
        ("a",),
        ("a", OTHER),
        (OTHER, "a"),
        (OTHER, "a", OTHER),
    ]


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("a/**/b", "a/**", True),
        ("a/**/b", "a/*/**", True),  # it has two segments at least
        ("a/**/b", "a/*/*/**", False),
        ("a/**/b", "**/b", True),
        ("a/**/b", "**/a/**/b", True),
        ("a/**/a", "**/a/*/**", True),
        ("a/b", "a/**/b", True),
        ("a/*/c/b", "a/**/b", True),
        ("a/**", "a/**/b", False),
        ("a/**/b/**", "a/**/b", False),
        ("a/**/c/b", "a/**/c/**/b", True),
        ("a/a/**/b", "**/a/*/b", False),  # not with two segments or more in the gap
    ],
)
def test_patterns_within_others(inner: str, outer: str, expected: bool) -> None:
    """A pattern with a "**" in the middle may lie within one with none, and the other way."""
    one, other = (normal(text.split("/")) for text in (inner, outer))
    assert lies_within(one, other) is expected


@pytest.mark.parametrize("path", [("a",) * 127 + ("b",), ("a", "b") * 64, ("x",) * 128])
def test_no_path_is_tried_in_several_ways(path: Pattern) -> None:
    """The matcher takes one step for each segment, where backtracking would take millions."""
    asked = 0

    class Counted(dict[str, int]):
        def get(self, *arguments: object) -> int:  # type: ignore[override]
            nonlocal asked
            asked += 1
            return super().get(*arguments)  # type: ignore[call-overload,no-any-return]

    matcher = Matcher([(ANY, *("a",) * 20, ANY, *("a",) * 20, "c"), (ANY, "a", ANY, "a"), (ANY,)])
    matcher._literals = Counted(matcher._literals)
    assert 2 in matcher.matching(path)
    assert asked == len(path)
