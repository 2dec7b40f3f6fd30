"""`gateway deliveries`: what became of events at the watches, and once more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, store_options
from gateway.cli.webhooks import (
    before_option,
    count_option,
    delivering_policies_option,
    delivery_argument,
    filter_options,
    integration_argument,
    paged,
    read_time,
    watch_argument,
    with_webhooks,
)
from gateway.domain.webhooks.deliveries import Filter
from gateway.manage.deliveries import (
    STATES,
    delivery_as_json,
    queued_words,
    replayed_as_json,
)
from gateway.manage.views import moment
from gateway.manage.webhooks import Webhooks
from gateway.stores.redis.address import StoreAddress
from gateway.stores.webhooks.queue import Delivery, Replayed

_HEAD: Final = ("DELIVERY", "STATE", "CREATED", "ATTEMPTS", "LAST ANSWER")
_ATTEMPTS: Final = ("AT", "STATUS", "MS", "ANSWER")
_IDS: Final = "int_5f1c8a60d3b2479e01c4a7b3 wat_5f1c8a60d3b2479e01c4a7b3"
_ID: Final = "evt_0123456789abcdef0123456789abcdef:wat_5f1c8a60d3b2479e01c4a7b3:1"


@click.group(epilog=f"Example: gateway deliveries list {_IDS} --state waiting")
def deliveries() -> None:
    """Show what became of events; deliver them again."""


@deliveries.command("list", epilog=f"Example: gateway deliveries list {_IDS} --state waiting")
@integration_argument
@watch_argument
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Repeatable.")
@filter_options
@count_option
@before_option
@store_options
@keyforms.shown_option
def list_deliveries(
    integration: str,
    watch: str,
    states: tuple[str, ...],
    wanted: Filter,
    count: int,
    before_us: int,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """List the deliveries of a watch, the newest first."""

    async def read(webhooks: Webhooks) -> list[Delivery]:
        its = (integration, watch, states)
        page_of = partial(webhooks.deliveries.of_watch, None, *its, wanted=wanted)
        return await paged(page_of, count, before_us)

    _show_all(with_webhooks(StoreChoice(store, data), read), as_json)


@deliveries.command(epilog="Example: gateway deliveries dead int_5f1c8a60d3b2479e01c4a7b3")
@integration_argument
@filter_options
@count_option
@before_option
@store_options
@keyforms.shown_option
def dead(
    integration: str,
    wanted: Filter,
    count: int,
    before_us: int,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """List the deliveries of an integration that were given up, the last one first."""

    async def read(webhooks: Webhooks) -> list[Delivery]:
        page_of = partial(webhooks.deliveries.dead, None, integration, wanted=wanted)
        return await paged(page_of, count, before_us)

    _show_all(with_webhooks(StoreChoice(store, data), read), as_json)


@deliveries.command(epilog=f"Example: gateway deliveries describe {_IDS} {_ID}")
@integration_argument
@watch_argument
@delivery_argument
@store_options
@keyforms.shown_option
def describe(
    integration: str,
    watch: str,
    delivery: str,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """Show a delivery and its attempts."""

    async def read(webhooks: Webhooks) -> Delivery:
        return await webhooks.deliveries.delivery(None, integration, watch, delivery)

    found = with_webhooks(StoreChoice(store, data), read)
    shown = delivery_as_json(found)
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    del shown["attempts"]
    click.echo(keyforms.as_lines(shown))
    rows = [
        (moment(each.at_us) or "", str(each.status or "none"), str(each.ms), each.found)
        for each in found.attempts
    ]
    click.echo(f"\n{keyforms.as_table(_ATTEMPTS, rows)}" if rows else "\nno attempt was made yet")


@deliveries.command(epilog=f"Example: gateway deliveries resend {_IDS} {_ID}")
@integration_argument
@watch_argument
@delivery_argument
@delivering_policies_option
@store_options
@keyforms.json_option
def resend(
    integration: str,
    watch: str,
    delivery: str,
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """Deliver the event of a delivery once more, whatever became of it."""

    async def send(webhooks: Webhooks) -> str:
        managed, its = webhooks.deliveries, (integration, watch)
        known = await managed.delivery(None, *its, delivery)
        return await managed.resend(keyforms.os_actor(), None, *its, known.event)

    policy = keyforms.load_policy(policies)
    made = with_webhooks(StoreChoice(store, data), send, policy=policy)
    if as_json:
        click.echo(json.dumps({"delivery": made}, indent=2))
    else:
        click.echo(f"Delivery {made} is queued.")


@deliveries.command(
    epilog=f"Example: gateway deliveries replay {_IDS} --from 2026-12-31T12:00:00Z "
    "--to 2026-12-31T13:00:00Z"
)
@integration_argument
@watch_argument
@click.option(
    "--from", "from_us", required=True, metavar="TIME", callback=read_time, help="Accepted then."
)
@click.option(
    "--to", "to_us", required=True, metavar="TIME", callback=read_time, help="And before then."
)
@delivering_policies_option
@store_options
@keyforms.json_option
def replay(
    integration: str,
    watch: str,
    from_us: int,
    to_us: int,
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """Deliver the events of a time to a watch once more, at most 10,000; live ones go first.

    What still waits is left out.
    """

    async def send(webhooks: Webhooks) -> Replayed:
        return await webhooks.deliveries.replay(
            keyforms.os_actor(), None, integration, watch, from_us, to_us
        )

    policy = keyforms.load_policy(policies)
    done = with_webhooks(StoreChoice(store, data), send, policy=policy)
    if as_json:
        click.echo(json.dumps(replayed_as_json(done), indent=2))
        return
    still = "1 event still waits" if done.waiting == 1 else f"{done.waiting} events still wait"
    left_out = f" {still}: `watches resume` sends what waits now." if done.waiting else ""
    rest = "" if done.complete else f" For the rest: --from {moment(done.next_us)}."
    click.echo(f"{queued_words(done.count)}.{left_out}{rest}")


def _show_all(found: Sequence[Delivery], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(list(map(delivery_as_json, found)), indent=2))
        return
    rows = [
        (each.id, each.state, moment(each.at_us) or "", str(len(each.attempts)), _last(each))
        for each in found
    ]
    click.echo(keyforms.as_table(_HEAD, rows))


def _last(delivery: Delivery) -> str:
    if not delivery.attempts:
        return "-"
    last = delivery.attempts[-1]
    return str(last.status) if last.status else last.found
