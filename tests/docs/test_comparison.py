"""docs/comparison.md: each "yes" of this gateway links to a test that exists."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from tests.docs.pages import ROOT, page, rows
from tests.kit.rows import each_row

COMPARISON: Final = page("docs/comparison.md")
_YES = re.compile(r'\[yes\]\(\.\./(tests/[\w/]+\.py) "(test_\w+)"\)')
#: The tables below the one that says what was compared.
TABLES: Final = {
    heading: rows(COMPARISON.section(heading))
    for heading in re.findall(r"^## (.+)$", COMPARISON.text, re.MULTILINE)
}
CELLS: Final = [(row[0], row[1]) for table in TABLES.values() for row in table]


def is_there(file: str, name: str) -> bool:
    """Does a file of the checkout define this test?"""
    return name in functions(file)


@cache
def functions(file: str) -> set[str]:
    """The names of its functions; none if there is no such file."""
    path = ROOT / file
    text = path.read_text("utf-8") if path.is_file() else ""
    return set(re.findall(r"^(?:async )?def (\w+)\(", text, re.MULTILINE))


def test_all_tables_are_read() -> None:
    """Each has rows of five cells, none of them empty."""
    assert len(TABLES) > 5
    for heading, table in TABLES.items():
        assert table, heading
        assert all(len(row) == 5 and all(row) for row in table), heading
    assert len({feature for feature, _ in CELLS}) == len(CELLS)


@each_row(("feature", "cell"), CELLS)
def test_a_yes_has_its_test(feature: str, cell: str) -> None:
    """A yes is a link to a test; all else is a no."""
    found = _YES.fullmatch(cell)
    if found is None:
        assert re.match(r"\[?no\b", cell), f"{feature}: neither a no, nor a yes with its test"
    else:
        assert is_there(found[1], found[2]), f"{feature}: there is no {found[1]}::{found[2]}"


def test_what_is_left_out_says_why() -> None:
    """What is left out on purpose links to the reasons, which are there."""
    (linked,) = {
        link[1] for _, cell in CELLS if (link := re.fullmatch(r"\[no\]\(security\.md#(.+)\)", cell))
    }
    assert linked in page("docs/security.md").anchors()


@each_row(
    ("file", "name"),
    [
        ("tests/docs/test_comparison.py", "test_that_is_gone"),
        ("tests/docs/test_that_is_gone.py", "test_all_tables_are_read"),
        ("tests/docs/test_comparison.py", "test_all_tables_are"),
    ],
)
def test_a_test_that_is_gone_is_missed(file: str, name: str) -> None:
    """Another name, another file, and a part of a name are no test that exists."""
    assert is_there("tests/docs/test_comparison.py", "test_all_tables_are_read")
    assert not is_there(file, name)
