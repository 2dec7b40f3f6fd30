"""`gateway keys list`: filters, sorts and pages keys, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli import keyforms, terminal
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.domain.ports import KeyFilter
from gateway.manage.keys import Keys, KeyView
from gateway.manage.reading import read_before_us
from gateway.manage.views import key_as_json, moment, status_words
from gateway.observe.colours import Colour
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

#: Keys per request to the store.
_PAGE: Final = 500
#: Keys on a page of --page, without --limit.
_SHOWN: Final = 50
#: An expiry within this time is marked.
_SOON_US: Final = 7 * 86_400_000_000
_HEAD: Final = ("ID", "NAME", "ACCOUNT", "PLAN", "ENVIRONMENT", "STATUS", "LAST USED", "EXPIRES")
#: Values of --sort. Keys that were never used come first, and keys that never expire last.
_ORDERS: Final[Mapping[str, Callable[[KeyView], Any]]] = {
    "created": lambda view: (view.record.created_us, view.record.id),
    "name": lambda view: (view.record.name.casefold(), view.record.name, view.record.id),
    "last_used": lambda view: (view.used_us or 0, view.record.created_us, view.record.id),
    "expires": lambda view: (
        view.record.expires_us is None,
        view.record.expires_us or 0,
        view.record.id,
    ),
}


@click.command("list", epilog="Example: gateway keys list --plan pro --expires-before 30d")
@click.option(
    "--status",
    type=click.Choice(["valid", "suspended", "revoked", "expired"]),
    help="Only keys of this status.",
)
@click.option("--plan", help="Only keys of this plan.")
@click.option("--account", help="Only keys of this account.")
@click.option("--environment", help="Only keys of this environment.")
@click.option("--scope", help="Only keys with this scope.")
@click.option(
    "--expires-before",
    metavar="DATE|DURATION",
    help="Only keys that expire before 2026-12-31 (UTC), or within 30d; expired ones too.",
)
@click.option(
    "--search", "text", metavar="TEXT", help="Only keys with this in id, name or account."
)
@click.option(
    "--sort",
    type=click.Choice(list(_ORDERS)),
    default="created",
    show_default=True,
    help="The oldest, the first name, the longest unused, or the soonest to expire first.",
)
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option(
    *("--limit", "--count", "count"),
    type=click.IntRange(1),
    metavar="NUMBER",
    envvar="GATEWAY_COUNT",
    help="At most this many keys. Default: all.",
)
@click.option(
    "--page",
    type=click.IntRange(1),
    metavar="NUMBER",
    help=f"This page, from 1, of as many keys as --limit says. Default of --limit: {_SHOWN}.",
)
@click.option(
    "--after",
    metavar="ID",
    callback=lambda ctx, option, text: text and keyforms.read_key_id(ctx, option, text),
    help="Only keys that come after this one.",
)
@keyforms.policies_option("that have earlier names of the plan")
@store_options
@keyforms.shown_option
def list_keys(
    sort: str,
    reverse: bool,
    count: int | None,
    page: int | None,
    after: str | None,
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
    **filters: Any,
) -> None:
    """List keys, oldest first.

    A terminal gets colours and relative times, a pipe or a file JSON; with --text, times in UTC.
    """
    if page is not None and after is not None:
        raise click.UsageError("--page and --after cannot be combined")
    policy = None if filters["plan"] is None else keyforms.load_policy(policies)

    async def read(stores: ManagedStores) -> tuple[int, list[KeyView]]:
        now_us = stores.clock_us()
        wanted = _filter(now_us, **filters)
        managed = Keys(stores.keys, stores.audit, lambda: policy, lambda: now_us)
        found: list[KeyView] = []
        last: str | None = None
        while True:
            some = await managed.page(wanted, last, _PAGE)
            found += some.keys
            if (last := some.next) is None:
                return now_us, found

    now_us, found = with_managed(StoreChoice(store, data), read)
    found.sort(key=_ORDERS[sort], reverse=reverse)
    shown, more = cut(found, count, page, after)
    if as_json:
        records = [key_as_json(view.record, now_us, view.used_us) for view in shown]
        click.echo(json.dumps(records, indent=2, ensure_ascii=False))
        return
    relative = terminal.is_terminal()
    rows = [_row(view, now_us, relative) for view in shown]
    click.echo(terminal.table(_HEAD, rows, terminal.in_colours()))
    if more:
        last_id = shown[-1].record.id
        click.echo(f"{len(shown)} of {len(found)} keys; the next: --after {last_id}", err=True)


def cut(
    found: Sequence[KeyView], count: int | None, page: int | None, after: str | None
) -> tuple[list[KeyView], bool]:
    """The keys of a page, and whether more follow. Raises UsageError."""
    start = 0
    if after is not None:
        ids = [view.record.id for view in found]
        if after not in ids:
            raise click.UsageError(
                f"--after: key {after} is not in this list; give the filters and the order of the "
                "page before"
            )
        start = ids.index(after) + 1
    if page is not None:
        count = _SHOWN if count is None else count
        start = (page - 1) * count
    end = len(found) if count is None else start + count
    shown = list(found[start:end])
    return shown, bool(shown) and end < len(found)


def _filter(
    now_us: int,
    *,
    status: str | None,
    plan: str | None,
    account: str | None,
    environment: str | None,
    scope: str | None,
    expires_before: str | None,
    text: str | None,
) -> KeyFilter:
    return KeyFilter(
        text=text,
        status=status,
        plans=None if plan is None else frozenset({plan}),
        account=account,
        environment=environment,
        scope=scope,
        expires_before_us=(
            None if expires_before is None else read_before_us(now_us, expires_before)
        ),
    )


def _row(view: KeyView, now_us: int, relative: bool) -> list[terminal.Cell]:
    record, status = view.record, status_words(view.record, now_us)
    soon = record.expires_us is not None and now_us < record.expires_us < now_us + _SOON_US
    expiry_colour: Colour | None = "yellow" if soon else None
    return [
        *((text, None) for text in (record.id, record.name, record.account, view.plan)),
        (record.environment, None),
        (status, terminal.STATUS_COLOURS.get(status)),
        _time(view.used_us, now_us, relative, None),
        _time(record.expires_us, now_us, relative, expiry_colour),
    ]


def _time(at_us: int | None, now_us: int, relative: bool, colour: Colour | None) -> terminal.Cell:
    if at_us is None:
        return "never", "dim"
    return terminal.time_words(at_us, now_us) if relative else (moment(at_us) or ""), colour
