"""`gateway integrations`: connections of accounts with providers, and events published to them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli import keyforms, terminal
from gateway.cli.store import StoreChoice, choose_for_new, store_options
from gateway.cli.webhooks import (
    delivering_policies_option,
    given_fields,
    integration_argument,
    read_secrets,
    secret_options,
    with_webhooks,
)
from gateway.domain.json_text import TooDeep, read_json
from gateway.domain.webhooks.events import MOST_EVENT, Integration
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.manage.deliveries import queued_words
from gateway.manage.integrations import Integrations, NewSecrets, Published, integration_as_json
from gateway.manage.webhooks import Webhooks
from gateway.stores.redis.address import StoreAddress

_HEAD: Final = ("ID", "ACCOUNT", "KIND", "NAME", "STATUS")
#: Option that `edit` can clear -> the field, and its cleared value.
_CLEARED: Final[Mapping[str, tuple[str, object]]] = {"id-header": ("id_header", None)}

Change = Callable[..., Awaitable[Integration]]

_id_header = click.option(
    "--id-header",
    metavar="NAME",
    help="Of the kind generic: the header that has the id of a webhook, such as X-Delivery-Id. It "
    "is not signed. Default: the id is in the body.",
)


@click.group(
    epilog="Example: gateway integrations create --kind github --account acme --name 'Our code'"
)
def integrations() -> None:
    """Manage integrations, whose webhooks are captured; publish events."""


@integrations.command(
    epilog="Example: gateway integrations create --kind github --account acme --name 'Our code'"
)
@click.option("--kind", required=True, type=click.Choice(sorted(KINDS)), help="Of the provider.")
@click.option("--account", required=True, help="Whose integration it is.")
@click.option("--name", required=True, help="What it is for.")
@click.option("--paused", is_flag=True, default=None, help="It captures nothing until resumed.")
@_id_header
@secret_options
@store_options
@keyforms.json_option
def create(
    secret_file: str | None, store: StoreAddress | None, data: Path, as_json: bool, **options: Any
) -> None:
    """Create an integration. Prints the path that its provider sends webhooks to.

    Without a secret of the provider one is made. It is printed once and cannot be shown again.
    """
    given = {**given_fields(**options), **read_secrets(secret_file)}

    async def make(webhooks: Webhooks) -> tuple[Integration, NewSecrets]:
        return await webhooks.integrations.create(keyforms.os_actor(), given)

    made = with_webhooks(choose_for_new(store, data), make, makes_secrets=True)
    _print_new(*made, as_json)


@integrations.command("list", epilog="Example: gateway integrations list --account acme")
@click.option("--account", help="Only those of this account.")
@store_options
@keyforms.shown_option
def list_integrations(
    account: str | None, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """List integrations by account and name."""

    async def read(webhooks: Webhooks) -> list[Integration]:
        return await webhooks.integrations.list(account)

    found = with_webhooks(StoreChoice(store, data), read)
    found.sort(key=lambda each: (each.account, each.name, each.id))
    if as_json:
        _print(list(map(integration_as_json, found)))
        return
    rows = [_row(each) for each in found]
    click.echo(terminal.table(_HEAD, rows, terminal.in_colours()))


def _row(its: Integration) -> list[terminal.Cell]:
    status: terminal.Cell = ("paused", "yellow") if its.is_paused else ("active", "green")
    return [*((text, None) for text in (its.id, its.account, its.kind, its.name)), status]


@integrations.command(epilog="Example: gateway integrations describe int_5f1c8a60d3b2479e01c4a7b3")
@integration_argument
@store_options
@keyforms.shown_option
def describe(integration: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Show an integration."""

    async def read(webhooks: Webhooks) -> Integration:
        return await webhooks.integrations.get(integration)

    _show(with_webhooks(StoreChoice(store, data), read), as_json)


@integrations.command(
    epilog="Example: gateway integrations edit int_5f1c8a60d3b2479e01c4a7b3 --name Code"
)
@integration_argument
@click.option("--name", help="What it is for.")
@_id_header
@keyforms.clearing_options(_CLEARED)
@store_options
@keyforms.json_option
def edit(
    integration: str, store: StoreAddress | None, data: Path, as_json: bool, **options: Any
) -> None:
    """Rename an integration, or change the header with the ids of its webhooks."""
    given = keyforms.changed_fields(options, _CLEARED)

    async def change(webhooks: Webhooks) -> Integration:
        return await webhooks.integrations.edit(keyforms.os_actor(), integration, given)

    _show(with_webhooks(StoreChoice(store, data), change), as_json)


def _changing(name: str, words: str, change: Change) -> None:
    """Add a command that changes an integration, and needs only its id."""

    @integrations.command(
        name,
        help=words,
        epilog=f"Example: gateway integrations {name} int_5f1c8a60d3b2479e01c4a7b3",
    )
    @integration_argument
    @store_options
    @keyforms.json_option
    def command(integration: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
        async def act(webhooks: Webhooks) -> Integration:
            return await change(webhooks.integrations, keyforms.os_actor(), integration)

        _show(with_webhooks(StoreChoice(store, data), act), as_json)


_changing(
    "pause",
    "Pause an integration: its address answers 404. What waits is still delivered.",
    Integrations.pause,
)
_changing("resume", "Resume a paused integration.", Integrations.resume)
_changing(
    "rotate-address",
    "Give an integration another capture address. The one before captures nothing any more.",
    Integrations.rotate_address,
)


@integrations.command(
    "set-secret",
    epilog="Example: gateway integrations set-secret int_5f1c8a60d3b2479e01c4a7b3 "
    "--secret-file secret.txt",
)
@integration_argument
@secret_options
@click.option("--new", is_flag=True, help="Make one, and print it once.")
@store_options
@keyforms.json_option
def set_secret(
    integration: str,
    secret_file: str | None,
    new: bool,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """Replace the secrets of an integration's provider.

    All are replaced: give the one before as well while the provider changes to a new one.
    """
    given = read_secrets(secret_file)
    if bool(given) == new:
        raise click.UsageError("give a secret by --secret-file or its variable, or --new: one of")

    async def change(webhooks: Webhooks) -> tuple[Integration, NewSecrets]:
        return await webhooks.integrations.set_secrets(keyforms.os_actor(), integration, given)

    changed = with_webhooks(StoreChoice(store, data), change, makes_secrets=True)
    _print_new(*changed, as_json)


@integrations.command(epilog="Example: gateway integrations remove int_5f1c8a60d3b2479e01c4a7b3")
@integration_argument
@click.option("--force", is_flag=True, help="With its watches, which cancels what waits for them.")
@store_options
@keyforms.json_option
def remove(
    integration: str, force: bool, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Remove an integration. It must have no watches, except with --force."""

    async def change(webhooks: Webhooks) -> int:
        return await webhooks.integrations.remove(keyforms.os_actor(), integration, force=force)

    watches = with_webhooks(StoreChoice(store, data), change)
    if as_json:
        _print({"id": integration, "removed": True, "watches": watches})
        return
    its = {0: "", 1: ", with 1 watch"}.get(watches, f", with {watches} watches")
    click.echo(f"Integration {integration} is removed{its}.")


@integrations.command(
    epilog="Example: gateway integrations publish int_5f1c8a60d3b2479e01c4a7b3 "
    "--type deployment.finished --id deployment-7 --content event.json"
)
@integration_argument
@click.option("--type", "event_type", required=True, help="Such as deployment.finished.")
@click.option(
    "--content",
    type=click.File("rb", lazy=True),
    required=True,
    metavar="FILE",
    help="A JSON object: what the event is about; - reads it from stdin.",
)
@click.option("--id", "event_id", help="Sent again with the same id, it is the same event.")
@delivering_policies_option
@store_options
@keyforms.json_option
def publish(
    integration: str,
    event_type: str,
    content: Any,
    event_id: str | None,
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """Publish an event of your own API to the watches of an integration."""
    given = given_fields(type=event_type, data=_read_json(content), id=event_id)

    async def send(webhooks: Webhooks) -> Published:
        return await webhooks.integrations.publish(integration, given)

    policy = keyforms.load_policy(policies)
    done = with_webhooks(StoreChoice(store, data), send, policy=policy)
    if as_json:
        _print({"event": done.event, "deliveries": done.deliveries})
        return
    click.echo(f"Event {done.event} is kept, and {queued_words(done.deliveries)}.")


def _read_json(content: Any) -> object:
    try:
        return read_json(content.read(MOST_EVENT + 1))
    except TooDeep as error:
        raise click.UsageError(f"--content: {error}") from error
    except ValueError as error:
        raise click.UsageError(
            f"--content: expected a JSON object of at most {MOST_EVENT} bytes"
        ) from error


def _print_new(its: Integration, shown: NewSecrets, as_json: bool) -> None:
    if as_json:
        _print({**integration_as_json(its), "secret": shown.made})
        return
    click.echo(keyforms.as_lines(integration_as_json(its)))
    if shown.made is not None:
        click.echo(
            f"\n{shown.made}\n\nThis is shown once: give it to the provider now, as the secret of "
            "its webhook."
        )


def _show(its: Integration, as_json: bool) -> None:
    shown = integration_as_json(its)
    _print(shown) if as_json else click.echo(keyforms.as_lines(shown))


def _print(shown: object) -> None:
    click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
