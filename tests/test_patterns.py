"""Regular expressions mean the same on every Python 3.11 and later."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import gateway
from tests.kit.rows import each_row


def patterns() -> dict[str, re.Pattern[Any]]:
    """All that a module has compiled, by where: "gateway.http1.paths._PLAIN"."""
    found = {}
    for module in pkgutil.walk_packages(gateway.__path__, "gateway."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                compiled = getattr(value, "__self__", value)
                if isinstance(compiled, re.Pattern):
                    found[f"{module.name}.{name}"] = compiled
    return found


def possessive_groups(parsed: Any) -> Iterator[Any]:
    """The possessive repetitions of more than one character in a parsed pattern."""
    for code, argument in parsed:
        inner = [part for part in _flat(argument) if isinstance(part, _parser.SubPattern)]
        if code is _constants.POSSESSIVE_REPEAT:
            (repeated,) = inner
            if len(repeated) != 1 or repeated[0][0] in (
                *(_constants.SUBPATTERN, _constants.BRANCH, _constants.GROUPREF),
            ):
                yield repeated
        for part in inner:
            yield from possessive_groups(part)


def _flat(argument: Any) -> Iterator[Any]:
    if isinstance(argument, (list, tuple)) and not isinstance(argument, _parser.SubPattern):
        for part in argument:
            yield from _flat(part)
    else:
        yield argument


def test_no_possessive_groups() -> None:
    """Before Python 3.11.5 `(ab)*+` also takes an `a` at the end (CPython issue 106052).

    Only single characters and classes are repeated so: `[ab]*+`.
    """
    found = patterns()
    assert len(found) > 100
    assert "gateway.http1.framing._SIZE_LINE" in found
    faulty = {
        where: pattern.pattern
        for where, pattern in found.items()
        if list(possessive_groups(_parser.parse(pattern.pattern, pattern.flags)))
    }
    assert faulty == {}


@each_row(
    ("pattern", "count"),
    [
        (r"[ab]*+a++b?+", 0),
        (r"(?:ab)*+", 1),
        (r"x(?:[ab]++c)?+", 1),
        (r"(?:(a(?:b|cd)++))+", 1),
        (r"(?:ab)*(?:a[bc]*+)+|d", 0),
    ],
)
def test_they_are_found(pattern: str, count: int) -> None:
    assert len(list(possessive_groups(_parser.parse(pattern)))) == count
