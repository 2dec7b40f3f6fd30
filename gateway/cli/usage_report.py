"""`gateway usage`: the usage of all requests, of an account, a key or a route."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.cli.usage import read_choice, report_lines, span_options
from gateway.domain.keys import KeyRecord
from gateway.domain.usage import Window
from gateway.manage.problems import NotThere
from gateway.manage.usage_export import about_key, account_as_csv, as_csv, rows
from gateway.manage.usage_reports import UsageBook
from gateway.manage.usage_sums import Sum, UsageReport, account_usage_as_json, report_as_json
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

#: Reports, each with what it is about: the columns of its rows.
_Parts = list[tuple[Mapping[str, str], UsageReport]]


@click.command(epilog="Example: gateway usage --account acme --from 2026-07-01 --format csv")
@click.option("--account", metavar="NAME", help="Only the keys of this account.")
@click.option(
    *("--key", "key_id"), metavar="ID", callback=keyforms.read_key_id, help="Only this key."
)
@click.option("--route", metavar="NAME", help="Only this route.")
@span_options
@store_options
def usage(
    account: str | None,
    key_id: str | None,
    route: str | None,
    store: StoreAddress | None,
    data: Path,
    **span: Any,
) -> None:
    """Show requests by time, outcome and route, with latencies and bytes."""
    if account is not None and key_id is not None:
        raise click.UsageError("--account and --key: give one of them")
    choice = read_choice(**span)

    async def read(stores: ManagedStores) -> str | tuple[list[tuple[KeyRecord, Sum]], UsageReport]:
        now_us = stores.clock_us()
        window = choice.span(now_us)
        book = UsageBook(stores.usage, stores.keys, lambda: now_us)
        if account is not None:
            if choice.form == "csv":
                return await account_as_csv(book, account, window, route)
            return await book.of_account(account, window, route)
        parts = await _parts(book, stores, key_id, window)
        if route is not None:
            parts = [(about, one.of_route(route)) for about, one in parts]
        if choice.form == "csv":
            return as_csv(row for about, one in parts for row in rows(one, about))
        return [], book.added((one for _, one in parts), window)

    found = with_managed(StoreChoice(store, data), read)
    if isinstance(found, str):
        click.echo(found, nl=False)
        return
    keys, whole = found
    if choice.form == "json":
        of = {"key": key_id, "route": route}
        shown = (
            report_as_json(whole)
            if account is None
            else account_usage_as_json(account, keys, whole)
        )
        click.echo(json.dumps({**of, **shown}, indent=2))
        return
    click.echo("\n".join(report_lines(whole)))
    if account is not None and whole.total.counts:
        head = ("KEY", "NAME", "REQUESTS", "5xx")
        busy = sorted(keys, key=lambda part: -part[1].requests)
        lines = [
            (key.id, key.name, f"{one.requests:,}", f"{one.statuses.get('5xx', 0):,}")
            for key, one in busy
            if one.counts
        ]
        click.echo("\n" + keyforms.as_table(head, lines))


async def _parts(
    book: UsageBook, stores: ManagedStores, key_id: str | None, window: Window
) -> _Parts:
    if key_id is not None:
        record = await stores.keys.get(key_id)
        if record is None:
            raise NotThere(f"there is no key with the id {key_id}")
        return [(about_key(record), await book.of_key(key_id, window))]
    return [({"plan": plan}, one) for plan, one in (await book.overview(window)).items()]
