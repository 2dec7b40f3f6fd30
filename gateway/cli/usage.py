"""`gateway keys usage`: a key's requests by time, outcome and route, as a plot and tables."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from gateway.cli import keyforms
from gateway.cli.plot import Column, draw
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.domain.keys import KeyRecord
from gateway.domain.usage import WINDOWS
from gateway.manage.problems import NotThere
from gateway.manage.usage_reports import (
    GROUPS,
    UsageBook,
    UsageReport,
    grouped,
    read_window,
    report_as_json,
)
from gateway.manage.views import moment, status_words
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

_COLOURS: Final[Mapping[str, str]] = {
    "admitted": "green",
    "limited": "yellow",
    "refused": "magenta",
    "failed": "red",
}
_DAY_S: Final = 86_400


@click.command(epilog="Example: gateway keys usage 7h3k9m2p4q6r --window 7d")
@click.argument("key_id", metavar="ID", callback=keyforms.read_key_id)
@click.option(
    "--window",
    "window_name",
    type=click.Choice(tuple(WINDOWS)),
    default="24h",
    show_default=True,
    help="How far to look back.",
)
@store_options
@keyforms.json_option
def usage(
    key_id: str, window_name: str, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Show a key's requests by time, outcome and route."""
    window = read_window(window_name)

    async def read(stores: ManagedStores) -> tuple[int, KeyRecord, int | None, UsageReport]:
        now_us = stores.clock_us()
        record = await stores.keys.get(key_id)
        if record is None:
            raise NotThere(f"there is no key with the id {key_id}")
        used = await stores.keys.last_used([key_id])
        book = UsageBook(stores.usage, stores.keys, lambda: now_us)
        return now_us, record, used.get(key_id), await book.of_key(key_id, window)

    now_us, record, used_us, report = with_managed(StoreChoice(store, data), read)
    status = status_words(record, now_us)
    if as_json:
        shown = {"id": key_id, "status": status, "last_used": moment(used_us)}
        click.echo(json.dumps({**shown, **report_as_json(report)}, indent=2))
        return
    head = {"id": key_id, "name": record.name, "status": status}
    click.echo(keyforms.as_lines({**head, "last_used": moment(used_us) or "never"}))
    click.echo()
    click.echo("\n".join(_words(report)))


def _words(report: UsageReport) -> list[str]:
    """The lines of the printed report, as wide as the terminal."""
    requests = sum(report.totals.values())
    if not requests:
        return [f"no requests in the last {report.window.name}"]
    plural = "" if requests == 1 else "s"
    outcomes = [
        (outcome, f"{count:,}", _share(count, requests))
        for outcome, count in sorted(report.totals.items(), key=lambda pair: (-pair[1], pair[0]))
    ]
    routes = [
        (route, f"{sum(counts.values()):,}", *(f"{count:,}" for count in grouped(counts).values()))
        for route, counts in report.routes.items()
    ]
    return [
        f"{requests:,} request{plural} in the last {report.window.name}, by time (UTC):",
        *_plot(report),
        "",
        keyforms.as_table(("OUTCOME", "REQUESTS", "SHARE"), outcomes),
        "",
        keyforms.as_table(("ROUTE", "REQUESTS", *map(str.upper, GROUPS)), routes),
    ]


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
