"""`gateway warnings`: lists the limits of which 80 % or all was used, with their keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.domain.warnings import MOST_KEPT, KeptWarning
from gateway.manage.views import moment
from gateway.manage.warnings import WarningPage, Warnings, warning_as_json
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

_HEAD: Final = ("TIME", "KEY ID", "PLAN", "LIMIT", "LEVEL")


def _read_key_id(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    return None if text is None else keyforms.read_key_id(ctx, option, text)


@click.command(epilog="Example: gateway warnings --key 7h3k9m2p4q6r --count 20")
@click.option(
    "--count",
    type=click.IntRange(1, MOST_KEPT),
    default=50,
    show_default=True,
    help="How many of the newest warnings.",
)
@click.option(
    "--key",
    "key_id",
    metavar="ID",
    callback=_read_key_id,
    help="Only warnings of the key with this id.",
)
@store_options
@keyforms.shown_option
def warnings(
    count: int, key_id: str | None, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """List limits of which 80 % or all was used, the newest last.

    There is one warning per limit and window. The store keeps the newest 10,000 warnings, at most
    60 per minute; the metric gateway_limit_warnings_total counts all.
    """

    async def read(stores: ManagedStores) -> WarningPage:
        return await Warnings(stores.warnings).page(count=count, key_id=key_id)

    found = with_managed(StoreChoice(store, data), read).warnings[::-1]
    if as_json:
        click.echo(json.dumps([warning_as_json(warning) for warning in found], indent=2))
    else:
        click.echo(keyforms.as_table(_HEAD, list(map(_row, found))))


def _row(warning: KeptWarning) -> tuple[str, ...]:
    texts = warning.key_id, warning.plan, warning.limit
    return moment(warning.at_us) or "", *texts, f"{warning.level} %"
