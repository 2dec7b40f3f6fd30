"""The span of time whose usage a page shows, and the files that it offers of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin.console.render import now_us
from gateway.admin.console.wording import WINDOWS
from gateway.domain import usage
from gateway.domain.usage import Window
from gateway.manage.problems import Invalid
from gateway.manage.usage_export import as_csv, rows
from gateway.manage.usage_reports import read_span, read_window
from gateway.manage.usage_sums import UsageReport

_DEFAULT: Final = "24h"
_TYPES: Final = {"csv": "text/csv", "json": "application/json"}
#: Reports, each with what it is about: the columns of its rows.
Parts = Iterable[tuple[Mapping[str, str], UsageReport]]


@dataclass(frozen=True, slots=True)
class Span:
    """What a page shows.

    start, end: the dates as they were given; "": none
    words:      "last 24 hours", "2026-07-01 to 2026-08-01"
    query:      the part of an address that asks for it again
    fault:      why the dates or the window cannot be read; "": they can, or there are none
    """

    window: Window
    start: str
    end: str
    words: str
    query: str
    fault: str


def span_of(request: web.Request) -> Span:
    """The dates in ?from= and ?to=, or the window in ?window=; by default a day."""
    start, end = request.query.get("from", ""), request.query.get("to", "")
    fault = ""
    if start or end:
        try:
            window = read_span(None, start or None, end or None, now_us(request))
        except Invalid as invalid:
            fault = str(invalid)
        else:
            words = f"{start} to {end}" if end else f"from {start}"
            given = {"from": start, "to": end} if end else {"from": start}
            return Span(window, start, end, words, urlencode(given), "")
    name = request.query.get("window", _DEFAULT)
    try:
        read_window(name)
    except Invalid as invalid:
        name, fault = _DEFAULT, fault or str(invalid)
    words, query = f"last {WINDOWS[name]}", urlencode({"window": name})
    return Span(usage.WINDOWS[name], start, end, words, query, fault)


def format_of(request: web.Request, span: Span) -> str | None:
    """The format in ?format= of the file that is wanted; None: the page is.

    Dates that cannot be read have no file: one of other dates would be taken for what was asked.
    """
    form = request.query.get("format")
    return form if form in _TYPES and not span.fault else None


def file_of(
    request: web.Request, span: Span, parts: Parts, as_json: Callable[[], object]
) -> web.Response | None:
    """The file that is wanted; None: the page is."""
    form = format_of(request, span)
    if form == "csv":
        return a_file("csv", as_csv(row for about, report in parts for row in rows(report, about)))
    return None if form is None else a_file("json", as_json())


def a_file(form: str, content: object) -> web.Response:
    """A file. form: csv, and the content is its text; or json, and it is a value"""
    body = content if form == "csv" else json.dumps(content, indent=2) + "\n"
    headers = {"Content-Disposition": f'attachment; filename="usage.{form}"'}
    return web.Response(text=str(body), content_type=_TYPES[form], charset="utf-8", headers=headers)
