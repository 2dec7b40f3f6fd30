"""Plots for a terminal, as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.plot import HEIGHT, SHADES, Column, draw


def column(label="00:00", **counts):
    return Column(label, counts)


def test_a_plot():
    """Each column's height is its share of the highest, with outcomes stacked in order."""
    columns = [
        column("08:00", admitted=8),
        column("08:01", admitted=4, limited=2, refused=2),
        column("08:02"),
        column("08:03", failed=1),
    ]
    assert draw(columns, 16) == [
        "8 │███░░░",
        "  │███░░░",
        "  │███▒▒▒",
        "  │███▒▒▒",
        "  │██████",
        "  │██████",
        "  │██████",
        "0 │██████   ▓▓▓▓",
        "   08:00",
        "   █ admitted  ▒ limited  ░ refused  ▓ failed",
    ]


def test_plain_letters():
    """Without Unicode the same is shown in ASCII."""
    lines = draw([column(admitted=8), column(admitted=3, limited=1)], 9, ascii_only=True)
    assert lines == [
        "8 |###",
        "  |###",
        "  |###",
        "  |###",
        "  |###+++",
        "  |######",
        "  |######",
        "0 |######",
        "   00:00",
        "   # admitted  + limited",
    ]
    assert "".join(lines).isascii()


def test_small_values_are_visible():
    """Any value above 0 is visible, even beside one a thousand times as large; halves are exact."""
    lines = draw([column(admitted=1000), column(admitted=1), column(limited=1)], 16)
    assert lines[HEIGHT - 1].endswith("│███▁▁▁▒▒▒")
    columns = [column(admitted=16), column(admitted=3), column(admitted=1)]
    halves = draw(columns, 16, ascii_only=True)
    assert halves[HEIGHT - 3 : HEIGHT] == ["   |####", "   |########", " 0 |############"]


def test_colours_are_the_callers():
    """The caller's function colours each piece by its group."""
    painted = draw([column(admitted=1)], 8, paint=lambda text, group: f"<{group}:{text}>")
    assert painted[0] == "1 │<admitted:█████>"
    assert painted[-1] == "   <admitted:█> admitted"


@pytest.mark.parametrize("width", [1, 2, 20, 57, 100, 200])
def test_as_wide_as_there_is_room(width):
    """The plot fills the width; columns that do not fit are merged with their neighbours."""
    columns = [column(f"{at:05}", admitted=5) for at in range(60)]
    lines = draw(columns, width)
    assert max(map(len, lines[: HEIGHT + 1])) == max(width, 6)
    assert lines[0].split()[0] == ("5" if width > 60 else {57: "10", 20: "20"}.get(width, "300"))


@given(
    st.lists(st.fixed_dictionaries({group: st.integers(0, 10**9) for group in SHADES}), min_size=1),
    st.integers(1, 250),
    st.booleans(),
)
def test_any_values(counts, width, ascii_only):
    """Any values can be drawn, and only with the shades of their groups."""
    columns = [Column("00:00", each) for each in counts]
    lines = draw(columns, width, ascii_only=ascii_only)
    assert len(lines) == HEIGHT + 2
    for line in lines[:HEIGHT]:
        drawn = line.partition("|" if ascii_only else "│")[2]
        assert set(drawn) <= set(" ▁▂▃▄▅▆▇█▒░▓#+-x")
    assert any(sum(each.values()) for each in counts) == bool(lines[HEIGHT + 1].strip())
