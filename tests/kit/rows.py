"""Tables within one test: all rows are tried, and the failure names each that failed.

`pytest.mark.parametrize` makes a test of each row. To collect one in every process, to set its
fixtures up and to report it takes about two milliseconds, which is more than most rows do.
`each_row` is for tables of such rows, and for rules about many files of the checkout:

    @each_row(("text", "expected"), [("1s", 1.0), ("2m", 120.0)])
    def test_durations(text: str, expected: float) -> None:
        assert read_duration(text) == expected

The rows share the test's fixtures, except `tmp_path`, which is another folder for each row. Rows
that take long, such as those that start a process, remain tests of their own: these can be shared
among processes, and run alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

#: The most that is shown of a row, in characters.
MOST_SHOWN = 300

Test = Callable[..., Any]


class _Failures:
    """The failures of the rows so far."""

    def __init__(self) -> None:
        self.found: list[tuple[Mapping[str, Any], BaseException]] = []

    @contextmanager
    def note(self, row: Mapping[str, Any]) -> Iterator[None]:
        try:
            yield
        # pytest.raises fails with an exception that is no Exception.
        except (Exception, pytest.fail.Exception) as failure:
            self.found.append((row, failure))

    def report(self, count: int) -> None:
        """Raise AssertionError, caused by the first failure, if there is one."""
        __tracebackhide__ = True
        if self.found:
            lines = [f"{len(self.found)} of {count} rows failed:"]
            lines += [f"- {_shown(row)}: {_told(failure)}" for row, failure in self.found]
            raise AssertionError("\n".join(lines)) from self.found[0][1]


def each_row(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """A decorator: the test is called with each row, and fails after the last if any failed.

    names, rows: as for pytest.mark.parametrize, a name with values, or names with tuples of values.
    """
    table = [
        {names: row} if isinstance(names, str) else dict(zip(names, row, strict=True))
        for row in rows
    ]
    assert table, "a table without rows tests nothing"

    def decorate(test: Test) -> Test:
        def named(at: int, fixtures: dict[str, Any]) -> dict[str, Any]:
            if "tmp_path" not in fixtures:
                return {**fixtures, **table[at]}
            folder = fixtures["tmp_path"] / f"row-{at}"
            folder.mkdir()
            return {**fixtures, **table[at], "tmp_path": folder}

        @functools.wraps(test)
        def run(*arguments: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            failures = _Failures()
            for at, row in enumerate(table):
                with failures.note(row):
                    test(*arguments, **named(at, fixtures))
            failures.report(len(table))

        @functools.wraps(test)
        async def run_coroutine(*arguments: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            failures = _Failures()
            for at, row in enumerate(table):
                with failures.note(row):
                    await test(*arguments, **named(at, fixtures))
            failures.report(len(table))

        made = run_coroutine if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        assert table[0].keys() <= signature.parameters.keys(), (
            "the test lacks arguments of the rows"
        )
        fixtures = [each for name, each in signature.parameters.items() if name not in table[0]]
        # pytest takes the names of fixtures from it.
        made.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return made

    return decorate


def _shown(row: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in row.items())
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _told(failure: BaseException) -> str:
    """The failure as pytest's summary shows it."""
    return f"{type(failure).__name__}: {failure}"
