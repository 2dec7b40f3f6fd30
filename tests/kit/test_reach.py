"""Properties fail that reach their assertions too seldom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.kit.reach import mostly, reached, reaches
from tests.kit.rows import each_row

DIGITS = st.sampled_from(range(10))


def digits_below(bound: int, share: float) -> Any:
    """A property that all digits below a bound reach; hypothesis tries each digit once."""

    @reaches(share)
    @settings(database=None, max_examples=50)
    @given(DIGITS)
    def check(digit: int) -> None:
        if digit < bound:
            reached()
            reached()

    return check


@each_row(("bound", "share"), [(3, 0.3), (3, 0.2), (10, 1), (0, 0)])
def test_a_share_is_reached(bound: int, share: float) -> None:
    """An example that says so twice counts once."""
    assert digits_below(bound, share)() is None


@each_row(("bound", "share"), [(3, 0.31), (9, 1), (0, 0.01)])
def test_a_share_is_not_reached(bound: int, share: float) -> None:
    """The property fails, and says how many examples there were."""
    check = digits_below(bound, share)
    for _ in range(2):  # each run counts from 0
        with pytest.raises(
            pytest.fail.Exception, match=rf"^{bound} of 10 examples .* {share:.0%}$"
        ):
            check()


def test_what_is_not_assumed_is_no_example() -> None:
    """The share is one of the examples that the property is about."""

    @reaches(1)
    @given(DIGITS)
    def check(digit: int) -> None:
        assume(digit < 3)
        reached()

    assert check() is None


def test_a_property_that_fails() -> None:
    """Its own failure is shown, in the simplest example, and not what it reaches."""
    seen: list[int] = []

    @reaches(1)
    @settings(database=None)
    @given(st.integers(0, 1_000))
    def check(number: int) -> None:
        seen.append(number)
        assert number < 500

    with pytest.raises(AssertionError, match="assert 500 < 500"):
        check()
    assert seen[-1] == 500


def test_it_is_for_properties_that_count() -> None:
    """A call that nothing counts is a mistake."""
    with pytest.raises(AssertionError, match="with @reaches"):
        reached()


@pytest.mark.parametrize("bound", [5, 9])
@reaches(0.5)
@settings(database=None, max_examples=50)
@given(digit=DIGITS)
@example(digit=3)
def test_with_parameters_and_fixtures(
    tmp_path_factory: pytest.TempPathFactory, bound: int, digit: int
) -> None:
    """Fixtures and parameters are passed to it, and examples are tried."""
    assert tmp_path_factory is not None
    if digit < bound:
        reached()


@reaches(0.5)
@settings(max_examples=50)
@given(DIGITS)
async def test_a_coroutine(digit: int) -> None:
    await asyncio.sleep(0)
    if digit >= 5:
        reached()
        assert digit > 4


class TestOfAClass:
    @reaches(0.5)
    @settings(max_examples=50)
    @given(DIGITS)
    def test_a_method(self, digit: int) -> None:
        if digit >= 5:
            reached()
            assert isinstance(self, TestOfAClass)


@reaches(0.3)
@given(mostly(st.just("usual"), st.just("odd"), st.just("other")), st.integers())
def test_most_are_usual(value: str, number: int) -> None:
    """All are values of one of the strategies. number: makes more examples than three"""
    assert value in {"usual", "odd", "other"}, number
    if value == "usual":
        reached()
