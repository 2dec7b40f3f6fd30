"""SECURITY.md names tests that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
TEXT = (TESTS.parent / "SECURITY.md").read_text()
#: `proxy/test_tls.py`, `proxy/test_tls.py::test_a`, `wire_cases/01-*`; `::test_b` is of the last
#: named file.
NAMED = re.compile(r"`([\w/]+\.py|wire_cases/\d\d-\*)?(?:::(test_\w+))?`")


def named() -> Iterator[tuple[int, str, str]]:
    """The line of each, its file, and the function in it, or ""."""
    file = ""
    for match in NAMED.finditer(TEXT):
        file = match[1] or file
        yield TEXT.count("\n", 0, match.start()) + 1, file, match[2] or ""


@cache
def functions(file: str) -> set[str] | None:
    """The functions of the first file of this name or pattern; None: there is no such file."""
    found = next(TESTS.glob(file), None)
    if found is None:
        return None
    return set(re.findall(r"^ *(?:async )?def (\w+)\(", found.read_text("utf-8"), re.MULTILINE))


def test_the_text_is_read() -> None:
    """Both tables name tests."""
    files = {file for _, file, _ in named()}
    assert "wire_cases/56-*" in files
    assert "hostile/test_floods.py" in files


def test_the_tests_are_there() -> None:
    """Each named file exists, with the named function."""
    missing = []
    for line, file, function in named():
        there = functions(file)
        if there is None:
            missing.append(f"SECURITY.md:{line}: found {file}, expected a file of tests/")
        elif function and function not in there:
            missing.append(f"SECURITY.md:{line}: found {function}, expected a test of {file}")
    assert missing == [], "\n".join(missing)
