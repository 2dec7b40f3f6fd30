"""A memory curve as an SVG: lines over time, with axes and a legend, without other packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

_WIDTH: Final = 900
_HEIGHT: Final = 420
_LEFT: Final = 60
_RIGHT: Final = 230
_TOP: Final = 40
_BOTTOM: Final = 40
#: Distinguishable for colour-blind people (Okabe and Ito).
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MIB: Final = 1024 * 1024
_STEPS: Final = 5

Samples = Sequence[tuple[float, int]]


def draw(title: str, series: Mapping[str, Samples]) -> str:
    """An SVG of values in bytes over seconds. The scale begins at zero: a flat line looks flat."""
    seconds = max((samples[-1][0] for samples in series.values() if samples), default=0.0) or 1.0
    most = max((value for samples in series.values() for _, value in samples), default=0)
    top_mib = _round_up(most / _MIB)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">{escape(title)}</text>',
        *_axes(seconds, top_mib),
    ]
    for number, (name, samples) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_x(at_s, seconds):.1f},{_y(value / _MIB, top_mib):.1f}" for at_s, value in samples
        )
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        y = _TOP + 10 + 16 * number
        x = _WIDTH - _RIGHT + 15
        lines.append(f'<text x="{x}" y="{y}" fill="{colour}">{escape(name)}</text>')
    return "\n".join((*lines, "</svg>", ""))


def _axes(seconds: float, top_mib: float) -> Iterator[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for step in range(_STEPS + 1):
        mib, at_s = top_mib * step / _STEPS, seconds * step / _STEPS
        x, y = _x(at_s, seconds), _y(mib, top_mib)
        yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#dddddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{mib:g}</text>'
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{at_s:.0f}</text>'
    yield f'<text x="{_LEFT - 6}" y="{_TOP - 8}" text-anchor="end">MiB</text>'
    yield f'<text x="{right}" y="{bottom + 34}" text-anchor="end">seconds</text>'


def _x(at_s: float, seconds: float) -> float:
    return _LEFT + at_s / seconds * (_WIDTH - _RIGHT - _LEFT)


def _y(mib: float, top_mib: float) -> float:
    return _HEIGHT - _BOTTOM - mib / top_mib * (_HEIGHT - _BOTTOM - _TOP)


def _round_up(mib: float) -> float:
    """The next multiple of 10, so that the grid lines have round numbers."""
    return max(10.0, -(-mib // 10) * 10.0)
