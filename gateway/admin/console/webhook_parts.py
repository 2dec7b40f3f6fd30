"""What the pages of webhooks share: whose they are, their addresses, and untrusted JSON as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from gateway.admin.console import forms
from gateway.admin.console.gate import management_of
from gateway.admin.refusals import NO_WEBHOOKS
from gateway.domain.json_text import read_json
from gateway.domain.webhooks.deliveries import ALL, Filter
from gateway.domain.webhooks.events import Integration
from gateway.manage.deliveries import FILTER_FIELDS, read_filter
from gateway.manage.problems import Invalid
from gateway.manage.refusals import Refused
from gateway.manage.watches import WatchView
from gateway.manage.webhooks import Webhooks

BASE: Final = "/console/integrations"
#: The most characters of an event that a page shows.
MOST_SHOWN: Final = 32 * 1024
_MOST_DIGITS: Final = 16
_ENCODER: Final = json.JSONEncoder(indent=2, ensure_ascii=False)


def webhooks_of(request: web.Request) -> Webhooks:
    """The management of webhooks. Raises Refused: this gateway has none."""
    webhooks = management_of(request).webhooks
    if webhooks is None:
        raise Refused(NO_WEBHOOKS)
    return webhooks


async def integration_of(request: web.Request) -> Integration:
    """The integration of the path. Raises NotThere, Refused."""
    return await webhooks_of(request).integrations.get(request.match_info["id"])


async def watch_of(request: web.Request) -> tuple[Integration, tuple[str, str, str]]:
    """The integration of the path; and the account, integration and watch, as `Watches` takes them.

    Raises NotThere, Refused.
    """
    its = await integration_of(request)
    return its, (its.account, its.id, request.match_info["watch"])


def address_of(integration: str, watch: str = "", delivery: str = "") -> str:
    """The address of the page of an integration, one of its watches, or one of its deliveries."""
    parts = [BASE, integration]
    if watch:
        parts += ["watches", watch]
    if delivery:
        parts += ["deliveries", delivery]
    return "/".join(parts)


def hosts_of(watches: Iterable[WatchView]) -> dict[str, str]:
    """The hosts of watches, by id: the rest of a URL may be long, and have a secret."""
    return {each.watch.id: urlsplit(each.watch.url).netloc for each in watches}


def trail_to(its: Integration, watch: str = "") -> list[tuple[str, str]]:
    """The breadcrumbs of a page below that of an integration, or of one of its watches."""
    trail = [(BASE, "Webhooks"), (address_of(its.id), its.name)]
    if watch:
        trail.append((address_of(its.id, watch), "Watch"))
    return trail


def see(address: str, done: str) -> web.HTTPSeeOther:
    """To be raised: shows this page, with the message about what was done."""
    return web.HTTPSeeOther(f"{address}?done={done}")


def time_in(request: web.Request, name: str) -> int:
    """The Unix microseconds of a parameter; 0: it has none, or another text."""
    text = request.query.get(name, "")
    is_time = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_time else 0


def filter_in(request: web.Request) -> tuple[Filter, forms.Form]:
    """The filter of a list in the query, and its form. With faults, nothing is to be listed."""
    typed = {name: request.query.get(name, "").strip() for name in FILTER_FIELDS}
    given = {name: text for name, text in typed.items() if text}
    try:
        return read_filter(given), forms.form(given)
    except Invalid as problem:
        return ALL, forms.form(given, problem.faults, FILTER_FIELDS)


def link(address: str, query: Mapping[str, object]) -> str:
    """An address with a query, if there is any."""
    return f"{address}?{urlencode(query)}" if query else address


def json_text(content: bytes) -> tuple[str, bool]:
    """JSON in lines, for a page; and whether it was cut.

    What is not printable is escaped as in JSON; what is not JSON is shown as it is.
    """
    try:
        value = read_json(content)
        # In parts: deep structures become much longer by indentation.
        text, is_cut = _cut(_ENCODER.iterencode(value))
    except ValueError:
        text, is_cut = _cut([content[: 4 * MOST_SHOWN + 4].decode("utf-8", "replace")])
    return "".join(char if char == "\n" else _visible(char) for char in text), is_cut


def _cut(parts: Iterable[str]) -> tuple[str, bool]:
    kept: list[str] = []
    room = MOST_SHOWN
    for part in parts:
        if len(part) > room:
            return "".join([*kept, part[:room]]), True
        kept.append(part)
        room -= len(part)
    return "".join(kept), False


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    return json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"
