"""`gateway watches`: where the events of an integration are delivered."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli import keyforms, terminal
from gateway.cli.store import StoreChoice, store_options
from gateway.cli.webhooks import (
    account_of,
    given_fields,
    integration_argument,
    watch_argument,
    with_webhooks,
)
from gateway.manage.watches import Watches, WatchView, status_words, view_as_json
from gateway.manage.webhooks import Webhooks
from gateway.observe.colours import Colour
from gateway.stores.redis.address import StoreAddress

_HEAD: Final = ("ID", "URL", "EVENTS", "STATUS", "WAITING")
_COLOURS: Final[dict[str, Colour]] = {
    "active": "green",
    "failing": "yellow",
    "paused": "yellow",
    "disabled": "red",
}
_EXAMPLE: Final = "int_5f1c8a60d3b2479e01c4a7b3 wat_5f1c8a60d3b2479e01c4a7b3"

_url = click.option("--url", help="https, of a public host.")
_events = click.option(
    "--event",
    "events",
    multiple=True,
    metavar="TYPE",
    help="A type such as pull_request.merged, or pull_request.*; repeatable.",
)
_form = click.option(
    "--form",
    type=click.Choice(["timed", "body-only"]),
    help="What x-service-signature is over: timestamp and body, or the body alone.",
)
_rate = click.option(
    "--rate",
    metavar="RATE",
    help="The most attempts in any second, minute or hour, such as 10/second.",
)
#: Option that `edit` can clear -> the field, and its cleared value.
_CLEARED: Final[Mapping[str, tuple[str, object]]] = {"rate": ("rate", None)}
_policies = keyforms.policies_option("whose webhooks.allow and deny hold for the URL")


@click.group(
    epilog="Example: gateway watches create int_5f1c8a60d3b2479e01c4a7b3 "
    "--url https://hooks.example.com/ --event 'pull_request.*'"
)
def watches() -> None:
    """Manage watches: where events are delivered."""


@watches.command(
    epilog="Example: gateway watches create int_5f1c8a60d3b2479e01c4a7b3 "
    "--url https://hooks.example.com/ --event 'pull_request.*'"
)
@integration_argument
@_url
@_events
@_form
@_rate
@_policies
@store_options
@keyforms.json_option
def create(
    integration: str,
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Create a watch. Its secret is printed once and cannot be shown again."""
    given = given_fields(**options)
    policy = keyforms.load_policy(policies)

    async def make(webhooks: Webhooks) -> tuple[WatchView, str]:
        its = await account_of(webhooks, integration)
        return await webhooks.watches.create(keyforms.os_actor(), *its, given)

    made = with_webhooks(StoreChoice(store, data), make, makes_secrets=True, policy=policy)
    _print_secret(*made, as_json)


@watches.command("list", epilog="Example: gateway watches list int_5f1c8a60d3b2479e01c4a7b3")
@integration_argument
@store_options
@keyforms.shown_option
def list_watches(integration: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """List the watches of an integration, the oldest first."""

    async def read(webhooks: Webhooks) -> list[WatchView]:
        return await webhooks.watches.list(*await account_of(webhooks, integration))

    found = with_webhooks(StoreChoice(store, data), read)
    if as_json:
        _print(list(map(view_as_json, found)))
        return
    click.echo(terminal.table(_HEAD, list(map(_row, found)), terminal.in_colours()))


def _row(view: WatchView) -> list[terminal.Cell]:
    watch, state = view.watch, view.health.state
    return [
        *((text, None) for text in (watch.id, watch.url, ", ".join(watch.events))),
        (state, _COLOURS[state]),
        (str(view.health.waiting), None),
    ]


@watches.command(epilog=f"Example: gateway watches describe {_EXAMPLE}")
@integration_argument
@watch_argument
@store_options
@keyforms.shown_option
def describe(
    integration: str, watch: str, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Show a watch, how it does, and why it is disabled."""

    async def read(webhooks: Webhooks) -> WatchView:
        return await webhooks.watches.get(*await account_of(webhooks, integration), watch)

    _show(with_webhooks(StoreChoice(store, data), read), as_json)


@watches.command(epilog=f"Example: gateway watches edit {_EXAMPLE} --event 'ticket.*'")
@integration_argument
@watch_argument
@_url
@_events
@_form
@_rate
@keyforms.clearing_options(_CLEARED)
@_policies
@store_options
@keyforms.json_option
def edit(
    integration: str,
    watch: str,
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Change fields of a watch. Other fields stay as they are; events are replaced as a whole."""
    given = keyforms.changed_fields(options, _CLEARED)
    policy = keyforms.load_policy(policies)

    async def change(webhooks: Webhooks) -> WatchView:
        its = await account_of(webhooks, integration)
        return await webhooks.watches.edit(keyforms.os_actor(), *its, watch, given)

    _show(with_webhooks(StoreChoice(store, data), change, policy=policy), as_json)


@watches.command("rotate-secret", epilog=f"Example: gateway watches rotate-secret {_EXAMPLE}")
@integration_argument
@watch_argument
@store_options
@keyforms.json_option
def rotate_secret(
    integration: str, watch: str, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Give a watch another secret, and print it once.

    For 24 hours webhook-signature has the signature of the secret before as well.
    """

    async def change(webhooks: Webhooks) -> tuple[WatchView, str]:
        its = await account_of(webhooks, integration)
        return await webhooks.watches.rotate(keyforms.os_actor(), *its, watch)

    changed = with_webhooks(StoreChoice(store, data), change, makes_secrets=True)
    _print_secret(*changed, as_json)


def _turning(name: str, words: str, change: Callable[..., Awaitable[WatchView]]) -> None:
    """Add a command that changes the status of a watch."""

    @watches.command(name, help=words, epilog=f"Example: gateway watches {name} {_EXAMPLE}")
    @integration_argument
    @watch_argument
    @store_options
    @keyforms.json_option
    def command(
        integration: str, watch: str, store: StoreAddress | None, data: Path, as_json: bool
    ) -> None:
        async def act(webhooks: Webhooks) -> WatchView:
            its = await account_of(webhooks, integration)
            return await change(webhooks.watches, keyforms.os_actor(), *its, watch)

        _show(with_webhooks(StoreChoice(store, data), act), as_json)


_turning("pause", "Pause a watch. Its events wait until it is resumed.", Watches.pause)
_turning("resume", "Resume a watch, also one that was disabled.", Watches.resume)


@watches.command(epilog=f"Example: gateway watches remove {_EXAMPLE}")
@integration_argument
@watch_argument
@store_options
@keyforms.json_option
def remove(
    integration: str, watch: str, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Remove a watch. What waits for it is cancelled."""

    async def change(webhooks: Webhooks) -> None:
        its = await account_of(webhooks, integration)
        await webhooks.watches.remove(keyforms.os_actor(), *its, watch)

    with_webhooks(StoreChoice(store, data), change)
    if as_json:
        _print({"id": watch, "removed": True})
    else:
        click.echo(f"Watch {watch} is removed.")


def _print_secret(view: WatchView, secret: str, as_json: bool) -> None:
    if as_json:
        _print({**view_as_json(view), "secret": secret})
        return
    click.echo(_lines(view))
    click.echo(f"\n{secret}\n\nThis is shown once: its receiver verifies deliveries by it.")


def _show(view: WatchView, as_json: bool) -> None:
    _print(view_as_json(view)) if as_json else click.echo(_lines(view))


def _lines(view: WatchView) -> str:
    """All about a watch; its status in words, with the times and the reason of a bad one."""
    shown = {**view_as_json(view), "status": status_words(view.health)}
    for name in ("reason", "disabled_since", "failures", "failing_since"):
        del shown[name]
    return keyforms.as_lines(shown)


def _print(shown: object) -> None:
    click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
