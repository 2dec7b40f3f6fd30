"""Draws the dashboard's panels with the data of a Prometheus, as one SVG, without Grafana.

    python helm/scripts/panels.py --prometheus http://127.0.0.1:9090 --minutes 60 > panels.svg

It draws the panels of dashboard.json in their positions: lines, areas, single values and tables,
each in its simplest form.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

FILE: Final = Path(__file__).parents[1] / "files" / "dashboard.json"
#: Pixels of one cell of Grafana's grid, the gap between panels, and a plot's margins.
_CELL: Final = (50, 27)
_GAP: Final = 6
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 28, 34
_POINTS: Final = 90
#: The most lines, and names under them, that such a small picture can show.
_LINES: Final = 8
_COLOURS: Final = (
    *("#2f7ed8", "#e8833a", "#3aa655", "#c0392b", "#8e5bc7", "#8d6e4a", "#d667a8", "#5f6b73"),
)
_PREFIXES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_SUFFIXES: Final = {"s": "s", "bytes": "B", "reqps": "/s", "ops": "/s"}

Json = dict[str, Any]
Points = list[tuple[float, float]]
#: A query from one time to another: labels and points of each series.
Ask = Callable[[str], list[tuple[dict[str, str], Points]]]


@dataclass(frozen=True, slots=True)
class Line:
    """A series in a picture. points: time in seconds and value, numbers only"""

    name: str
    points: Points


@dataclass(frozen=True, slots=True)
class Frame:
    """A plot's position in the picture, and the times and values of its edges."""

    x: float
    y: float
    width: float
    height: float
    start_s: float
    end_s: float
    top: float

    def place(self, time_s: float, value: float) -> str:
        """Return a point's coordinates, in whole pixels."""
        across = (time_s - self.start_s) / max(self.end_s - self.start_s, 1e-9)
        down = 1 - value / self.top
        return f"{self.x + across * self.width:.0f},{self.y + down * self.height:.0f}"


def draw(dashboard: Json, ask: Ask, start_s: float, end_s: float) -> str:
    """Return the whole dashboard as an SVG document."""
    parts, bottom = [], 0
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        x, y = place["x"] * _CELL[0], place["y"] * _CELL[1]
        width, height = place["w"] * _CELL[0], place["h"] * _CELL[1]
        bottom = max(bottom, y + height)
        if panel["type"] == "row":
            parts.append(
                f'<text x="{x + 4}" y="{y + 20}" class="r">{escape(panel["title"])}</text>'
            )
        else:
            box = (x + _GAP / 2, y + _GAP / 2, width - _GAP, height - _GAP)
            parts += _panel(panel, ask, box, (start_s, end_s))
    return _document(24 * _CELL[0], bottom, parts)


def _document(width: int, height: int, parts: Sequence[str]) -> str:
    style = (
        "text{font:11px sans-serif;fill:#333}.t{font-weight:600}.r{font-size:15px;font-weight:600}"
        ".a{fill:#777;font-size:10px}.b{fill:#fff;stroke:#ddd}.g{stroke:#eee}.l{fill:none;"
        "stroke-width:1.4}.n{font-size:34px;font-weight:600}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{style}</style>'
        f'<rect width="{width}" height="{height}" fill="#f6f7f8"/>' + "\n".join(parts) + "</svg>\n"
    )


def _panel(
    panel: Json, ask: Ask, box: tuple[float, float, float, float], times: tuple[float, float]
) -> Iterator[str]:
    x, y, width, height = box
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" class="b"/>'
    yield f'<text x="{x + 10}" y="{y + 18}" class="t">{escape(panel["title"])}</text>'
    lines = [
        Line(_name(target["legendFormat"], labels), points)
        for target in panel["targets"]
        for labels, points in ask(target["expr"])
        if panel["type"] != "table" or points[-1][0] >= times[1] - 5
    ]
    defaults = panel["fieldConfig"]["defaults"]
    unit = defaults["unit"]
    if not lines:
        yield f'<text x="{x + width / 2 - 24}" y="{y + height / 2}" class="a">No data</text>'
    elif panel["type"] == "stat":
        value = lines[0].points[-1][1]
        colour = _colour(value, defaults["thresholds"]["steps"])
        words = f'fill="{colour}" style="fill:{colour}" text-anchor="middle"'
        yield (
            f'<text x="{x + width / 2}" y="{y + height / 2 + 22}" class="n" {words}>'
            f"{_figure(value, unit)}</text>"
        )
    elif panel["type"] == "table":
        for row, line in enumerate(lines):
            text = f"{line.name}: {_figure(line.points[-1][1], unit)}"
            yield f'<text x="{x + 10}" y="{y + 44 + row * 18}">{escape(text)}</text>'
    else:
        is_stacked = defaults["custom"]["stacking"]["mode"] == "normal"
        yield from _plot(lines, unit, is_stacked, box, times)


def _plot(
    lines: list[Line],
    unit: str,
    is_stacked: bool,
    box: tuple[float, float, float, float],
    times: tuple[float, float],
) -> Iterator[str]:
    x, y, width, height = box
    lines = sorted(lines, key=lambda line: -max(value for _, value in line.points))[:_LINES]
    stacks = list(_stacked(lines)) if is_stacked else [(None, line.points) for line in lines]
    top = _nice(max(value for _, points in stacks for _, value in points))
    frame = Frame(
        *(x + _LEFT, y + _TOP, width - _LEFT - _RIGHT, height - _TOP - _BOTTOM), *times, top
    )
    for part in range(5):
        value = top * part / 4
        left, level = frame.place(frame.start_s, value).split(",")
        across = frame.x + frame.width
        yield f'<path d="M{left},{level}H{across:.0f}" class="g"/>'
        yield (
            f'<text x="{frame.x - 5:.0f}" y="{int(level) + 4}" class="a" text-anchor="end">'
            f"{_figure(value, unit)}</text>"
        )
    for index, (below, points) in enumerate(stacks):
        colour = _COLOURS[index % len(_COLOURS)]
        upper = " ".join(frame.place(*point) for point in points)
        if below is not None:
            lower = " ".join(frame.place(*point) for point in reversed(below))
            yield f'<polygon points="{upper} {lower}" fill="{colour}" opacity=".3"/>'
        yield f'<polyline points="{upper}" stroke="{colour}" class="l"/>'
    yield from _legend([line.name for line in lines], x + 10, y + height - 8, width - 20)


def _legend(names: list[str], x: float, y: float, width: float) -> Iterator[str]:
    """The names of the lines in one row, as many as fit."""
    at = x
    for index, name in enumerate(names):
        needed = 18 + 6 * len(name)
        if at + needed > x + width:
            yield f'<text x="{at:.0f}" y="{y:.0f}" class="a">…</text>'
            return
        colour = _COLOURS[index % len(_COLOURS)]
        yield f'<rect x="{at:.0f}" y="{y - 7:.0f}" width="9" height="6" fill="{colour}"/>'
        yield f'<text x="{at + 12:.0f}" y="{y:.0f}" class="a">{escape(name)}</text>'
        at += needed


def _stacked(lines: list[Line]) -> Iterator[tuple[Points, Points]]:
    """The lower and the upper edge of each line, stacked on those before it."""
    times = sorted({time_s for line in lines for time_s, _ in line.points})
    below = dict.fromkeys(times, 0.0)
    for line in lines:
        own = dict(line.points)
        above = {time_s: below[time_s] + own.get(time_s, 0.0) for time_s in times}
        yield list(below.items()), list(above.items())
        below = above


def _name(legend: str, labels: dict[str, str]) -> str:
    """A series' name, made as Grafana does; that of a table is all of its labels."""
    if legend == "gateways":
        return " ".join(labels.values())[:16]
    named = re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), legend).strip()
    return named or "none"


def _figure(value: float, unit: str) -> str:
    """0.00123 as "1.23 ms"."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "bool_yes_no":
        return "Yes" if value else "No"
    suffix = _SUFFIXES.get(unit, "")
    size = abs(value)
    # Only times are that small: a tenth of a request is not shown as 100 millirequests.
    prefixes = _PREFIXES if unit == "s" else _PREFIXES[:4]
    factor, prefix = next((each for each in prefixes if size >= each[0]), (1.0, ""))
    if unit == "s" and factor > 1:
        factor, prefix = 1.0, ""
    gap = " " if prefix or suffix else ""
    return f"{value / factor:.3g}{gap}{prefix}{suffix}"


def _nice(value: float) -> float:
    """The next round number that is not below a value; 1 for values up to 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 2.5, 4, 5, 8, 10) if power * step >= value * 0.9999)


def _colour(value: float, steps: list[Json]) -> str:
    names = {"green": "#3aa655", "orange": "#e8833a", "red": "#c0392b", "blue": "#2f7ed8"}
    reached = [step for step in steps if step["value"] is None or value >= step["value"]]
    return names[reached[-1]["color"]]


def ask_prometheus(address: str, start_s: float, end_s: float) -> Ask:
    """Return queries to a Prometheus, over these times, of all namespaces and jobs."""
    step_s = max((end_s - start_s) / _POINTS, 1.0)
    window = f"{max(4 * step_s, 10):.0f}s"

    def ask(query: str) -> list[tuple[dict[str, str], Points]]:
        query = query.replace("$__rate_interval", window)
        query = query.replace("$namespace", ".*").replace("$job", ".*")
        times = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        url = f"{address}/api/v1/query_range?{urlencode({'query': query, **times})}"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - the user's own address
            found = json.load(answer)["data"]["result"]
        series = [(each["metric"], _numbers(each["values"])) for each in found]
        return [(labels, points) for labels, points in series if points]

    return ask


def _numbers(values: list[tuple[float, str]]) -> Points:
    points = [(float(time_s), float(value)) for time_s, value in values]
    return [point for point in points if math.isfinite(point[1])]


def main(arguments: list[str] | None = None) -> int:
    """Print the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--prometheus", metavar="URL", default="http://127.0.0.1:9090")
    parser.add_argument("--minutes", type=float, default=60)
    chosen = parser.parse_args(arguments)
    end_s = time.time()
    start_s = end_s - chosen.minutes * 60
    dashboard = json.loads(FILE.read_text(encoding="utf-8"))
    ask = ask_prometheus(chosen.prometheus, start_s, end_s)
    sys.stdout.write(draw(dashboard, ask, start_s, end_s))
    return 0


if __name__ == "__main__":
    sys.exit(main())
