"""How many examples of a property reach its assertions.

A property whose assertions are under a condition, or in a loop, also passes where no example gets
there. `reaches` counts the examples, and those that call `reached`; the property fails if their
share is too small:

    @reaches(0.4)
    @given(st.binary())
    def test_whatever_is_counted(body: bytes) -> None:
        found = count_elements(body, ())
        if isinstance(found, int):
            reached()
            assert len(json.loads(body)) == found

It stands above `given`, `settings` and `example`, which must all see the property itself. A share
is a third of what is measured or less, as a run may try 25 examples, which depend on each other.
Where that would be little, the strategies need a change (see `mostly`). What is measured is printed
with `--hypothesis-show-statistics`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


@dataclass
class _Count:
    """Of one run of a property. is_reached: of the current example"""

    examples: int = 0
    reached: int = 0
    is_reached: bool = False


#: Of the properties that run now; hypothesis runs all examples in this thread.
_running: list[_Count] = []


def reached() -> None:
    """Note that this example reaches the assertions; several calls count once."""
    assert _running, "reached() is for properties with @reaches"
    if not _running[-1].is_reached:
        _running[-1].is_reached = True
        hypothesis.event("reaches the assertions")


def reaches(share: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator of a property: at least this share of its examples calls `reached`."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*arguments: Any, **named: Any) -> None:
            # What runs an example is known only now: for a coroutine function, pytest has put an
            # ordinary function there.
            handle: Any = test.hypothesis  # type: ignore[attr-defined]
            example, count = handle.inner_test, _Count()
            handle.inner_test = _counted(example, count)
            _running.append(count)
            try:
                test(*arguments, **named)
            finally:
                _running.pop()
                handle.inner_test = example
            if count.reached < share * count.examples:
                pytest.fail(
                    f"{count.reached} of {count.examples} examples reached the assertions, "
                    f"expected at least {share:.0%}"
                )

        return run

    return decorate


def mostly(usual: SearchStrategy[T], *others: SearchStrategy[T]) -> SearchStrategy[T]:
    """Three of four values are usual ones: `|` has as many of each, however often one is named."""
    return st.sampled_from([usual] * 3 * len(others) + [*others]).flatmap(lambda chosen: chosen)


def _counted(example: Callable[..., None], count: _Count) -> Callable[..., None]:
    """Counts an example that ends; one that fails ends the property, one of `assume` is none."""

    @functools.wraps(example)
    def counted(*arguments: Any, **named: Any) -> None:
        count.is_reached = False
        example(*arguments, **named)
        count.examples += 1
        count.reached += count.is_reached

    return counted
