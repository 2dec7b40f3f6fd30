"""Formats measurements and results as Markdown tables, which also suit terminals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from loadtests.compare import model
from loadtests.compare.measure import Results, medians
from loadtests.compare.objectives import OURS
from loadtests.compare.peers import PEERS
from loadtests.compare.scenarios import LAYERS, Scenario
from loadtests.compare.spread import Spread, Verdict, ratios

#: The name of the marks around a report in a file.
MARK: Final = "report"

_FIGURE = re.compile(r"-?[\d.,]+( \(-?[\d.,]+ to -?[\d.,]+\))?( \S{1,2})?").fullmatch
_COLUMNS: Final = (
    *("", "CPU µs", "of it Redis", "ours to it", "requests/s", "p50 ms", "p99 ms", "memory MB"),
)


def write(
    results: Results, told: Sequence[Verdict], machine: Mapping[str, str], remarks: Sequence[str]
) -> str:
    """The whole report.

    told:    the objectives, met and missed
    remarks: what was left out and how it was measured, a line each
    """
    parts = ["## The machine", table(("", ""), list(machine.items()))]
    if remarks:
        parts.append("\n".join(f"- {remark}" for remark in remarks))
    if told:
        parts += ["## What it has to reach", _REACHED, _verdict_table(told)]
    if results.rounds or results.failures:
        parts += ["## Figures", _EXPLAINED, *_tables(results), "### What the layers are", _layers()]
        parts += _model(results)
    return "\n\n".join(parts) + "\n"


def put(path: Path, report: str, mark: str = MARK) -> None:
    """Write a report into a file: between its marks if it has them, else as the whole file."""
    first, last = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    block = f"{first}\n\n{report}\n{last}"
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    head, begin, rest = old.partition(first)
    _, end, tail = rest.partition(last)
    text = f"{head}{block}{tail}" if begin and end else f"{block}\n"
    path.write_text(text, encoding="utf-8")


_REACHED: Final = (
    "Medians of the rounds, with the least and the most: “pass” and “FAIL” only where all rounds "
    "agree, and “undecided” where the objective lies between them. Without a unit it is CPU time "
    "a request, divided round by round by that of the other."
)
_SUM: Final = (
    "What a small request of one key takes, and what each of these adds to it: differences of the "
    "scenarios above, round by round. Below, how far the sum is from scenarios that it does not "
    "come from."
)
_EXPLAINED: Final = (
    "CPU microseconds a request, of all processes of the gateway and of its Redis together; in "
    "the next column Redis alone. “Ours to it” is what the gateway takes, divided by that. "
    "Medians of the rounds; in parentheses the least and the most. Requests a second and "
    "latencies are those of a machine that runs wrk and the upstream as well. Memory is that of "
    "the gateway's processes, without Redis."
)


def _tables(results: Results) -> list[str]:
    """A table for each scenario, in the order of the run."""
    rows = list(dict.fromkeys(row for row, _ in [*results.rounds, *results.failures]))
    return [text for row in rows for text in (f"### {row.title}", _figures(results, row))]


def _figures(results: Results, row: Scenario) -> str:
    ours = results.values(row, OURS, "cpu_us")
    lines: list[tuple[str, ...]] = []
    for name, peer in PEERS.items():
        if (row, name) in results.failures:
            lines.append((peer.title, "failed", *("",) * (len(_COLUMNS) - 2)))
        elif rounds := results.rounds.get((row, name)):
            costs_us = [each.cpu_us for each in rounds]
            ratio = ratios(ours, costs_us).text() if ours else ""
            found = medians(rounds)
            lines.append(
                (
                    *(peer.title, Spread.of(costs_us).text(1), f"{found.store_us:.1f}", ratio),
                    *(f"{found.rate:,.0f}", f"{found.p50_ms:.2f}", f"{found.p99_ms:.2f}"),
                    f"{found.rss_mb:.0f}",
                )
            )
    reasons = [
        f"{PEERS[name].title}: {reason}"
        for (failed, name), reason in results.failures.items()
        if failed == row
    ]
    return "\n\n".join([table(_COLUMNS, lines), *reasons])


def _verdict_table(told: Sequence[Verdict]) -> str:
    return table(
        ("", "found", "at most", "", ""),
        [
            (
                each.title,
                "-" if each.found is None else f"{each.found.text()} {each.unit}".strip(),
                f"{each.at_most:g} {each.unit}".strip(),
                each.word,
                each.note,
            )
            for each in told
        ],
    )


def _model(results: Results) -> list[str]:
    """A request's cost as a sum, if its first part was measured."""
    found = model.parts(results)
    if found[0].us is None:
        return []
    rows = [(part.title, "-" if part.us is None else part.us.text(2)) for part in found]
    wrong = [(each.title, each.percent.text(0)) for each in model.deviations(results, found)]
    return [
        *("### A request's cost as a sum", _SUM, table(("", "CPU µs"), rows)),
        *([table(("the sum is wrong by", "%"), wrong)] if wrong else []),
    ]


def _layers() -> str:
    layers = ", ".join(f"“{title}”" for title in LAYERS.values())
    peers = "\n".join(f"- **{peer.title}**: {peer.remark}" for peer in PEERS.values())
    return (
        f"Each layer adds to the one before it: {layers}. All on: key, environment, expiry, IP "
        "range, scope, a plan's limit with a burst in Redis, the four headers, metrics.\n\n"
        f"{peers}"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its columns padded with spaces; numbers are right-aligned."""
    cells = [[_cell(text) for text in row] for row in (head, *rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(head))]
    lines = [
        "| " + " | ".join(_pad(text, width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])


def _pad(text: str, width: int) -> str:
    return text.rjust(width) if _FIGURE(text) else text.ljust(width)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
