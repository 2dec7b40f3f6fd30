"""All rows of a table are tried, and the failure names those that failed."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from tests.kit.rows import MOST_SHOWN, each_row


def test_every_row_is_tried() -> None:
    """A failure says how many rows failed, and what each of them found; others are not named."""
    tried: list[int] = []

    @each_row(("number", "square"), [(2, 5), (3, 9), (4, 17)])
    def check(number: int, square: int) -> None:
        tried.append(number)
        if number * number != square:
            raise ValueError(f"it is {number * number}")

    with pytest.raises(AssertionError) as failed:
        check()
    assert tried == [2, 3, 4]
    assert str(failed.value).splitlines() == [
        "2 of 3 rows failed:",
        "- number=2, square=5: ValueError: it is 4",
        "- number=4, square=17: ValueError: it is 16",
    ]
    assert str(failed.value.__cause__) == "it is 4"


def test_an_exception_that_is_missing_is_a_failure() -> None:
    """pytest.raises fails with an exception of its own kind."""

    @each_row("text", ["x", "1"])
    def check(text: str) -> None:
        with pytest.raises(ValueError):
            int(text)

    with pytest.raises(AssertionError, match=r"1 of 2 rows failed:\n- text='1': .*DID NOT RAISE"):
        check()


def test_a_long_row_is_cut() -> None:
    """What is shown of it has a bound."""

    @each_row("text", ["x" * 10_000])
    def check(text: str) -> None:
        assert len(text) < 9

    with pytest.raises(AssertionError) as failed:
        check()
    assert len(str(failed.value).splitlines()[1]) < MOST_SHOWN + 200


@pytest.mark.parametrize(("names", "rows"), [("text", []), ("texts", ["a"]), (("text", "b"), "a")])
def test_a_table_that_tests_nothing(names: str, rows: list[str]) -> None:
    """A table without rows, or whose names are not those of the test, is a mistake."""
    with pytest.raises((AssertionError, ValueError)):

        @each_row(names, rows)
        def check(text: str) -> None: ...


def test_other_arguments_are_fixtures() -> None:
    """pytest sees the arguments that no row has."""

    @each_row("text", ["a"])
    def check(tmp_path: Path, text: str, port: int) -> None: ...

    assert list(inspect.signature(check).parameters) == ["tmp_path", "port"]


@each_row("name", ["a", "b"])
def test_rows_have_folders_of_their_own(tmp_path: Path, name: str) -> None:
    """What a row writes is not there for the next."""
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).touch()


@each_row("delay_s", [0, 1])
async def test_coroutines(delay_s: float, delays: list[float]) -> None:
    """Coroutines are awaited, in the event loop of the test."""
    await asyncio.sleep(delay_s)
    assert delays


async def test_a_coroutine_fails() -> None:
    @each_row("number", [1, 2])
    async def check(number: int) -> None:
        await asyncio.sleep(0)
        assert number == 1

    with pytest.raises(AssertionError, match="1 of 2 rows failed:\n- number=2"):
        await check()
