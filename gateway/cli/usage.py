"""`gateway keys usage`: a key's requests by time, outcome and route, as a plot and tables."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli import keyforms
from gateway.cli.plot import Column, draw
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.domain.keys import KeyRecord
from gateway.domain.latency import ACCURACY, QUANTILES
from gateway.domain.usage import STATUS_CLASSES, WINDOWS, Window
from gateway.manage.problems import NotThere
from gateway.manage.usage_export import about_key, as_csv, rows
from gateway.manage.usage_reports import UsageBook, read_span
from gateway.manage.usage_sums import GROUPS, Sum, UsageReport, grouped, report_as_json
from gateway.manage.views import moment, status_words
from gateway.manage.words import bytes_words, seconds_words
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

_COLOURS: Final[Mapping[str, str]] = {
    "admitted": "green",
    "limited": "yellow",
    "refused": "magenta",
    "failed": "red",
}
_DAY_S: Final = 86_400


Command = Callable[..., object]


def span_options(command: Command) -> Command:
    """--window, --from and --to, and the format; `read_choice` reads them."""
    for add in (
        click.option(
            "--json/--text", "as_json", default=None, help="The same as --format json, or table."
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(("table", "json", "csv")),
            help="csv: a row for each step and route. Default: table on a terminal, else json.",
        ),
        click.option(
            "--to", "end", metavar="DATE", help="The day after the last one.  [default: tomorrow]"
        ),
        click.option("--from", "start", metavar="DATE", help="The first day, UTC: 2026-07-01."),
        click.option(
            "--window",
            type=click.Choice(tuple(WINDOWS)),
            help="How far to look back, if there is no --from.  [default: 24h]",
        ),
    ):
        command = add(command)
    return command


@dataclass(frozen=True, slots=True)
class Choice:
    """What the options of `span_options` say."""

    window: str | None
    start: str | None
    end: str | None
    form: str

    def span(self, now_us: int) -> Window:
        """The window. Raises Invalid."""
        return read_span(self.window, self.start, self.end, now_us)


def read_choice(
    window: str | None,
    start: str | None,
    end: str | None,
    form: str | None,
    as_json: bool | None,
) -> Choice:
    """Raises UsageError for formats that differ."""
    wanted = "json" if keyforms.prefers_json(as_json) else "table"
    if form is not None and as_json is not None and form != wanted:
        option = "--json" if as_json else "--text"
        raise click.UsageError(f"{option} and --format {form} differ: give one of them")
    return Choice(window, start, end, form or wanted)


@click.command(epilog="Example: gateway keys usage 7h3k9m2p4q6r --window 7d")
@click.argument("key_id", metavar="ID", callback=keyforms.read_key_id)
@span_options
@store_options
def usage(key_id: str, store: StoreAddress | None, data: Path, **span: Any) -> None:
    """Show a key's requests by time, outcome and route, with latencies and bytes."""
    choice = read_choice(**span)

    async def read(stores: ManagedStores) -> tuple[int, KeyRecord, int | None, UsageReport]:
        now_us = stores.clock_us()
        record = await stores.keys.get(key_id)
        if record is None:
            raise NotThere(f"there is no key with the id {key_id}")
        used = await stores.keys.last_used([key_id])
        book = UsageBook(stores.usage, stores.keys, lambda: now_us)
        report = await book.of_key(key_id, choice.span(now_us))
        return now_us, record, used.get(key_id), report

    now_us, record, used_us, report = with_managed(StoreChoice(store, data), read)
    status = status_words(record, now_us)
    if choice.form == "json":
        shown = {"id": key_id, "status": status, "last_used": moment(used_us)}
        click.echo(json.dumps({**shown, **report_as_json(report)}, indent=2))
    elif choice.form == "csv":
        click.echo(as_csv(rows(report, about_key(record))), nl=False)
    else:
        head = {"id": key_id, "name": record.name, "status": status}
        click.echo(keyforms.as_lines({**head, "last_used": moment(used_us) or "never"}))
        click.echo()
        click.echo("\n".join(report_lines(report)))


def report_lines(report: UsageReport) -> list[str]:
    """The lines of the printed report, as wide as the terminal."""
    requests, span = report.total.requests, _span_words(report)
    if not requests:
        return [f"no requests {span}"]
    plural = "" if requests == 1 else "s"
    outcomes = [
        (outcome, f"{count:,}", _share(count, requests))
        for outcome, count in sorted(report.totals.items(), key=lambda pair: (-pair[1], pair[0]))
    ]
    routes = [
        (route, f"{one.requests:,}", *(f"{count:,}" for count in one.groups.values()))
        for route, one in sorted(report.routes.items())
    ]
    return [
        f"{requests:,} request{plural} {span}, by time (UTC):",
        *_plot(report),
        "",
        keyforms.as_table(("OUTCOME", "REQUESTS", "SHARE"), outcomes),
        "",
        keyforms.as_table(("ROUTE", "REQUESTS", *map(str.upper, GROUPS)), routes),
        *_measure_lines(report),
    ]


def _measure_lines(report: UsageReport) -> list[str]:
    """Statuses, latencies and bytes by route; nothing if none are known."""
    head = ("ROUTE", *STATUS_CLASSES[1:], "P50", "P95", "P99", "IN", "OUT")
    lines = [
        (route, *(f"{one.statuses.get(name, 0):,}" for name in STATUS_CLASSES[1:]), *_measures(one))
        for route, one in sorted(report.routes.items())
        if one.statuses or one.measures is not None
    ]
    if not lines:
        return []
    start, end = map(moment, (at_s * 1_000_000 for at_s in report.measured_s))
    return [
        "",
        keyforms.as_table(head, lines),
        f"Latencies (within {ACCURACY:.0%}) and bytes: {start} to {end}.",
    ]


def _measures(one: Sum) -> tuple[str, ...]:
    times = (seconds_words(one.latency(name)) for name in QUANTILES)
    measures = one.measures
    if measures is None:
        return (*times, "-", "-")
    return (*times, bytes_words(measures.bytes_in), bytes_words(measures.bytes_out))


def _span_words(report: UsageReport) -> str:
    if report.window.name:
        return f"in the last {report.window.name}"
    start, end = (
        datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d")
        for at_s in (report.start_s, report.end_s)
    )
    return f"from {start} to {end}"


def _plot(report: UsageReport) -> list[str]:
    columns = [
        Column(_label(point.start_s, report.window.span_s), grouped(point.counts))
        for point in report.points
    ]
    ascii_only = not _can_draw(getattr(sys.stdout, "encoding", None))
    # click omits colours if the output is not a terminal.
    return draw(
        columns,
        shutil.get_terminal_size().columns,
        ascii_only=ascii_only,
        paint=lambda text, group: click.style(text, fg=_COLOURS[group]),
    )


def _label(start_s: int, span_s: int) -> str:
    form = "%H:%M" if span_s <= _DAY_S else "%d %b"
    return datetime.fromtimestamp(start_s, UTC).strftime(form)


def _share(count: int, of: int) -> str:
    return f"{count / of:.1%}"


def _can_draw(encoding: str | None) -> bool:
    try:
        "█▁".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
