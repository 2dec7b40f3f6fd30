"""Tables and times for people."""

from __future__ import annotations

import re

import pytest

from gateway.cli import terminal

NOW = 1_800_000_000_000_000
MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000


@pytest.mark.parametrize(
    ("after_us", "words"),
    [
        (0, "just now"),
        (-59_999_999, "just now"),
        (1, "in less than a minute"),
        (MINUTE, "in 1 minute"),
        (-MINUTE, "1 minute ago"),
        (-59 * MINUTE, "59 minutes ago"),
        (HOUR, "in 1 hour"),
        (47 * HOUR, "in 47 hours"),
        (3 * DAY + HOUR, "in 3 days"),
        (-59 * DAY, "59 days ago"),
        (90 * DAY, "in 2 months"),
        (-800 * DAY, "2 years ago"),
        (100_000 * DAY, "in 273 years"),
    ],
)
def test_times(after_us: int, words: str) -> None:
    """A time is in the largest unit that still says enough, and is not rounded up."""
    assert terminal.time_words(NOW + after_us, NOW) == words


def test_columns_align_with_and_without_colours() -> None:
    """A colour takes no room; there are no spaces at the end of a line."""
    rows: list[list[terminal.Cell]] = [
        [("a", None), ("valid", "green"), ("x", None)],
        [("long", "dim"), ("suspended", "yellow"), ("", None)],
        [("", None), ("", None), ("", None)],
    ]
    plain = terminal.table(("N", "STATUS", "Z"), rows, colours=False)
    assert plain.split("\n") == ["N     STATUS     Z", "a     valid      x", "long  suspended", ""]
    coloured = terminal.table(("N", "STATUS", "Z"), rows, colours=True)
    assert "\x1b[32mvalid\x1b[0m      x" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_cells_cannot_control_the_terminal() -> None:
    """Escape sequences and line ends in a name are replaced."""
    shown = terminal.table(("N",), [[("a\x1b[2J\nb\u202e", None)]], colours=False)
    assert shown.splitlines() == ["N", "a?[2J?b?"]
