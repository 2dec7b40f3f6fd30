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
from gateway.manage.usage_reports import read_span
from gateway.manage.usage_sums import UsageReport

_DEFAULT: Final = "24h"
#: Reports, each with what it is about: the columns of its rows.
Parts = Iterable[tuple[Mapping[str, str], UsageReport]]


@dataclass(frozen=True, slots=True)
class Span:
    """What a page shows.

    start, end: the dates as they were given; "": none
    words:      "last 24 hours", "2026-07-01 to 2026-08-01"
    query:      the part of an address that asks for it again
    fault:      why the dates cannot be read; "": they can, or there are none
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
    name = name if name in WINDOWS else _DEFAULT
    words, query = f"last {WINDOWS[name]}", urlencode({"window": name})
    return Span(usage.WINDOWS[name], start, end, words, query, fault)


def file_of(
    request: web.Request, parts: Parts, as_json: Callable[[], object]
) -> web.Response | None:
    """The file that ?format= asks for; None: it asks for none."""
    form = request.query.get("format")
    if form == "csv":
        body = as_csv(row for about, report in parts for row in rows(report, about))
        kind = "text/csv"
    elif form == "json":
        body, kind = json.dumps(as_json(), indent=2) + "\n", "application/json"
    else:
        return None
    headers = {"Content-Disposition": f'attachment; filename="usage.{form}"'}
    return web.Response(text=body, content_type=kind, charset="utf-8", headers=headers)
