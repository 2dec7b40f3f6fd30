"""SECURITY.md names tests that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TEXT = (TESTS.parent / "SECURITY.md").read_text()
#: `proxy/test_tls.py`, `proxy/test_tls.py::test_a`, `wire_cases/01-*`; `::test_b` is of the last
#: named file.
NAMED = re.compile(r"`([\w/]+\.py|wire_cases/\d\d-\*)?(?:::(test_\w+))?`")


def named() -> Iterator[tuple[str, str]]:
    """Each file, and the function in it, or ""."""
    file = ""
    for match in NAMED.finditer(TEXT):
        file = match[1] or file
        yield file, match[2] or ""


def test_the_text_is_read() -> None:
    """Both tables name tests."""
    files = {file for file, _ in named()}
    assert "wire_cases/56-*" in files
    assert "hostile/test_floods.py" in files


@pytest.mark.parametrize(("file", "function"), sorted(set(named())))
def test_a_test_is_there(file: str, function: str) -> None:
    """Each named file exists, with the named function."""
    found = list(TESTS.glob(file))
    assert found
    if function:
        assert re.search(rf"^ *(async )?def {function}\(", found[0].read_text(), re.M)
