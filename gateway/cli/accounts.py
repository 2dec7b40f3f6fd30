"""`gateway accounts`: which service areas are enabled for an account."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, store_options, with_keys
from gateway.domain.keys import Account
from gateway.stores.connect import StoreAddress

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
_name = click.argument("name", callback=keyforms.read_word)


@click.group(epilog="Example: gateway accounts set acme --service ticketing")
def accounts() -> None:
    """Accounts and their enabled services."""


@accounts.command("set", epilog="Example: gateway accounts set acme --service ticketing")
@_name
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="AREA",
    callback=keyforms.read_words,
    help="A service area to enable; repeatable.",
)
@store_options
@_json
def set_account(
    name: str, services: list[str], store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Enable these service areas for an account, and no others."""
    account = Account(name, tuple(services))
    with_keys(StoreChoice(store, data), lambda keys: keys.put_account(account))
    _show(account, as_json)


@accounts.command("list", epilog="Example: gateway accounts list")
@store_options
@_json
def list_accounts(store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """List the accounts that were set, by name."""
    found = with_keys(StoreChoice(store, data), lambda keys: keys.accounts())
    if as_json:
        click.echo(json.dumps([keyforms.account_as_json(account) for account in found], indent=2))
        return
    rows = [(account.name, ", ".join(account.services)) for account in found]
    click.echo(keyforms.as_table(("NAME", "SERVICES"), rows))


@accounts.command(epilog="Example: gateway accounts describe acme")
@_name
@store_options
@_json
def describe(name: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Show an account."""
    account = with_keys(StoreChoice(store, data), lambda keys: keys.account(name))
    if account is None:
        raise click.ClickException(f"there is no account {name}; `accounts set` makes one")
    _show(account, as_json)


def _show(account: Account, as_json: bool) -> None:
    shown = keyforms.account_as_json(account)
    click.echo(json.dumps(shown, indent=2) if as_json else keyforms.as_lines(shown))
