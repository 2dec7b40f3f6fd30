"""The picture of the dashboard: complete, well-formed and with the right numbers."""

from __future__ import annotations

import json
import re
from html import escape
from xml.etree import ElementTree

import pytest

from helm.scripts import dashboard, panels
from tests.kit.rows import each_row

DASHBOARD = json.loads(dashboard.FILE.read_text(encoding="utf-8"))
START_S, END_S = 1000.0, 1090.0
LABELS = {"route": "api", "code": "200", "instance": "one", "hash": "abcdef"}


def ask(query: str) -> list[tuple[dict[str, str], panels.Points]]:
    """Two series for each query: a constant and a rising one."""
    times = [START_S + second for second in range(91)]
    level = [(time_s, 3.0) for time_s in times]
    rising = [(time_s, float(index)) for index, time_s in enumerate(times)]
    return [(LABELS, level), ({**LABELS, "route": "a<b>&c"}, rising)]


def test_every_panel_is_drawn() -> None:
    """The document is valid XML, has each title, and is small."""
    text = panels.draw(DASHBOARD, ask, START_S, END_S)
    ElementTree.fromstring(text)
    for panel in DASHBOARD["panels"]:
        assert f">{escape(panel['title'])}</text>" in text
    assert "No data" not in text
    assert "a&lt;b&gt;&amp;c" in text
    assert len(text) < 250_000


def test_missing_data_is_shown() -> None:
    """A query without a result is shown as "No data"."""
    text = panels.draw(DASHBOARD, lambda _: [], START_S, END_S)
    shown = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert text.count("No data") == len(shown)


@each_row(
    ("value", "unit", "text"),
    [
        (0.00123, "s", "1.23 ms"),
        (0.000045, "s", "45 µs"),
        (90.0, "s", "90 s"),
        (1500.0, "s", "1.5e+03 s"),
        (0.0, "s", "0 s"),
        (1234.0, "reqps", "1.23 k/s"),
        (0.2, "reqps", "0.2 /s"),
        (0.073, "percentunit", "7.3 %"),
        (146_000_000.0, "bytes", "146 MB"),
        (1.0, "bool_yes_no", "Yes"),
        (0.0, "bool_yes_no", "No"),
        (12.0, "short", "12"),
    ],
)
def test_numbers_are_readable(value: float, unit: str, text: str) -> None:
    """A number with its unit, to three digits."""
    assert panels._figure(value, unit) == text


@each_row(
    ("value", "top"),
    [(0.0, 1.0), (0.9, 1.0), (1.0, 1.0), (1.01, 2.0), (37.0, 40.0), (0.003, 0.004)],
)
def test_axes_end_at_round_numbers(value: float, top: float) -> None:
    """The top of a plot is the next round number, and 1 if all values are 0."""
    assert panels._nice(value) == pytest.approx(top)


def test_parts_of_a_whole_lie_on_each_other() -> None:
    """The edge of the last one is the sum; a missing value adds nothing."""
    lines = [panels.Line("a", [(1.0, 2.0), (2.0, 3.0)]), panels.Line("b", [(2.0, 4.0)])]
    (_, first), (below, above) = panels._stacked(lines)
    assert first == below == [(1.0, 2.0), (2.0, 3.0)]
    assert above == [(1.0, 2.0), (2.0, 7.0)]


def test_thresholds_colour_single_numbers() -> None:
    """Red from the dashboard's threshold on."""
    steps = [{"value": None, "color": "green"}, {"value": 0.05, "color": "red"}]
    colours = [panels._colour(value, steps) for value in (0.0, 0.049, 0.05, 1.0)]
    assert len(set(colours[:2])) == len(set(colours[2:])) == 1
    assert colours[0] != colours[2]


def test_lines_stay_in_their_panels() -> None:
    """No point of a plot is outside the document."""
    text = panels.draw(DASHBOARD, ask, START_S, END_S)
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', text)
    assert size
    for points in re.findall(r'points="([^"]+)"', text):
        for pair in points.split(" "):
            x, y = map(int, pair.split(","))
            assert 0 <= x <= int(size[1])
            assert 0 <= y <= int(size[2])
