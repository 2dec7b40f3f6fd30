"""`gateway events`: what was captured or published."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Final

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, store_options
from gateway.cli.webhooks import (
    before_option,
    count_option,
    event_argument,
    filter_options,
    integration_argument,
    paged,
    with_webhooks,
)
from gateway.domain.webhooks.deliveries import Filter
from gateway.manage.deliveries import EventView, event_as_json, event_view_as_json
from gateway.manage.views import moment
from gateway.manage.webhooks import Webhooks
from gateway.stores.redis.address import StoreAddress
from gateway.stores.webhooks.queue import KeptEvent

_HEAD: Final = ("ID", "TYPE", "ACCEPTED", "OPEN DELIVERIES")
_DELIVERIES: Final = ("DELIVERY", "STATE", "ATTEMPTS", "REASON")


@click.group(epilog="Example: gateway events list int_5f1c8a60d3b2479e01c4a7b3")
def events() -> None:
    """Show the events of an integration."""


@events.command("list", epilog="Example: gateway events list int_5f1c8a60d3b2479e01c4a7b3")
@integration_argument
@filter_options
@count_option
@before_option
@store_options
@keyforms.shown_option
def list_events(
    integration: str,
    wanted: Filter,
    count: int,
    before_us: int,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """List the events of an integration that are still kept, the newest first."""

    async def read(webhooks: Webhooks) -> list[KeptEvent]:
        page_of = partial(webhooks.deliveries.events, None, integration, wanted=wanted)
        return await paged(page_of, count, before_us)

    found = with_webhooks(StoreChoice(store, data), read)
    if as_json:
        click.echo(json.dumps(list(map(event_as_json, found)), indent=2))
        return
    rows = [(each.id, each.type, moment(each.at_us) or "", str(each.left)) for each in found]
    click.echo(keyforms.as_table(_HEAD, rows))


@events.command(
    epilog="Example: gateway events describe int_5f1c8a60d3b2479e01c4a7b3 "
    "evt_0123456789abcdef0123456789abcdef"
)
@integration_argument
@event_argument
@store_options
@keyforms.shown_option
def describe(
    integration: str, event: str, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Show an event as it is delivered, and what became of it."""

    async def read(webhooks: Webhooks) -> EventView:
        return await webhooks.deliveries.event(None, integration, event)

    view = with_webhooks(StoreChoice(store, data), read)
    shown = event_view_as_json(view)
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    body = json.dumps(shown.pop("event"), indent=2)
    del shown["deliveries"]
    click.echo(keyforms.as_lines(shown))
    rows = [(each.id, each.state, str(len(each.attempts)), each.reason) for each in view.deliveries]
    click.echo(f"\n{keyforms.as_table(_DELIVERIES, rows)}\n\n{body}")
