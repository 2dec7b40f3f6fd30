"""Usage as a table for spreadsheets and billing: one row for each step and route, also as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Final

from gateway.domain.keys import KeyRecord
from gateway.domain.latency import QUANTILES
from gateway.domain.patterns import printable
from gateway.domain.usage import STATUS_CLASSES, Window
from gateway.manage.usage_reports import UsageBook
from gateway.manage.usage_sums import GROUPS, UsageReport, milliseconds, moment

Cell = str | int | float | None
COLUMNS: Final = (
    *("start", "account", "key_id", "key_name", "plan", "route", "requests"),
    *GROUPS,
    *(f"status_{name}" for name in STATUS_CLASSES),
    *("bytes_in", "bytes_out"),
    *(f"{name}_ms" for name in QUANTILES),
)
#: What a spreadsheet takes for the beginning of a formula; some take the full-width forms, too.
_FORMULA: Final = (*"=+-@", *"\uff1d\uff0b\uff0d\uff20")


def rows(report: UsageReport, about: Mapping[str, str]) -> list[dict[str, Cell]]:
    """The rows of a report, by time and route. about: its account, key and plan, by column"""
    found: list[dict[str, Cell]] = []
    for (at_s, route), cell in sorted(report.cells.items(), key=lambda pair: pair[0]):
        measures = cell.measures
        row: dict[str, Cell] = dict.fromkeys(COLUMNS)
        row |= {"start": moment(at_s), **about, "route": route, "requests": cell.requests}
        row |= cell.groups
        row |= {f"status_{name}": cell.statuses.get(name, 0) for name in STATUS_CLASSES}
        if measures is not None:
            row |= {"bytes_in": measures.bytes_in, "bytes_out": measures.bytes_out}
            row |= {f"{name}_ms": milliseconds(cell.latency(name)) for name in QUANTILES}
        found.append(row)
    return found


def about_key(record: KeyRecord) -> dict[str, str]:
    """What the rows of a key are about."""
    return {
        "account": record.account,
        "key_id": record.id,
        "key_name": record.name,
        "plan": record.plan,
    }


def as_csv(table: Iterable[Mapping[str, Cell]]) -> str:
    """Rows as CSV (RFC 4180), with their names on the first line; unknown values are empty."""
    whole = CsvTable()
    whole.add(table)
    return whole.text()


class CsvTable:
    """Rows that are written as they are known, as those of an account's keys would take 1 GB."""

    def __init__(self) -> None:
        self._text = StringIO()
        self._writer = csv.writer(self._text)
        self._writer.writerow(COLUMNS)

    def add(self, table: Iterable[Mapping[str, Cell]]) -> None:
        self._writer.writerows([_safe(row[name]) for name in COLUMNS] for row in table)

    def text(self) -> str:
        return self._text.getvalue()


async def account_as_csv(
    book: UsageBook, account: str, window: Window, route: str | None = None
) -> str:
    """The usage of each key of an account as CSV. Raises NotThere, Conflict."""
    table = CsvTable()
    async for record, report in book.each_key(account, window):
        part = report if route is None else report.of_route(route)
        table.add(rows(part, about_key(record)))
    return table.text()


def _safe(value: Cell) -> Cell:
    """A text that a spreadsheet would execute gets an apostrophe, as OWASP advises.

    Other programs may write to the store: what a terminal would execute is not printed.
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
