"""Colours on a terminal."""

from __future__ import annotations

import io

import pytest

from gateway.observe.colours import has_colours, paint


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "expected"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"TERM": "xterm-256color", "NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": "0"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_where_colours_are_written(
    stream: io.StringIO, environ: dict[str, str], expected: bool
) -> None:
    """On a terminal that has them, unless NO_COLOR has a value."""
    assert has_colours(stream, environ) is expected


def test_a_colour_ends_with_its_text() -> None:
    """What follows is as before; a text without a colour, or an empty one, is as it is."""
    assert paint("revoked", "red") == "\x1b[31mrevoked\x1b[0m"
    assert paint("revoked", None) == "revoked"
    assert paint("", "red") == ""
