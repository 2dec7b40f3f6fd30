"""`gateway accounts`: the plan, services and limit overrides of an account."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.domain.keys import Account
from gateway.domain.policy import Policy
from gateway.manage.accounts import MOST_COUNTED, Accounts
from gateway.manage.problems import Invalid, NotThere
from gateway.manage.reading import read_word
from gateway.manage.views import account_as_json
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress


def _read_name(ctx: click.Context, _: click.Parameter, text: str) -> str:
    try:
        return read_word("NAME", text)
    except Invalid as invalid:
        raise keyforms.usage_error(invalid) from invalid


_name = click.argument("name", callback=_read_name)


@click.group(epilog="Example: gateway accounts set acme --plan pro --service ticketing")
def accounts() -> None:
    """Manage accounts: plan, enabled services and limit overrides."""


@accounts.command("set", epilog="Example: gateway accounts set acme --plan pro --service ticketing")
@_name
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="AREA",
    help="A service area to enable; repeatable.",
)
@click.option("--plan", help="Plan of its keys that have none of their own.")
@keyforms.limit_option
@keyforms.policies_option
@store_options
@keyforms.json_option
def set_account(
    name: str,
    services: Sequence[str],
    plan: str | None,
    limits: Sequence[str],
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """Create an account, or replace all of its services, plan and limits."""
    given = keyforms.fields_of({"services": services, "plan": plan, "limits": limits})
    policy = keyforms.load_policy(policies)

    async def put(stores: ManagedStores) -> tuple[Account, int]:
        managed = _accounts(stores, policy)
        account = await managed.put(keyforms.os_actor(), name, given)
        return account, await managed.keys_without_plan(account)

    account, without = with_managed(StoreChoice(store, data, may_make=True), put)
    _show(account, as_json)
    if without:
        number = f"{without} or more" if without == MOST_COUNTED else without
        keys = (
            "1 key of this account has" if without == 1 else f"{number} keys of this account have"
        )
        click.echo(
            f"warning: {keys} no plan now, and requests with it get 503 PLAN_NOT_CONFIGURED; set "
            "a plan of the account with --plan, or of the key with `keys edit ID --plan`",
            err=True,
        )


@accounts.command("list", epilog="Example: gateway accounts list")
@store_options
@keyforms.json_option
def list_accounts(store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """List the accounts that were created, by name."""
    found = with_managed(StoreChoice(store, data), lambda stores: stores.keys.accounts())
    if as_json:
        click.echo(json.dumps([account_as_json(account) for account in found], indent=2))
        return
    rows = [(account.name, account.plan, ", ".join(account.services)) for account in found]
    click.echo(keyforms.as_table(("NAME", "PLAN", "SERVICES"), rows))


@accounts.command(epilog="Example: gateway accounts describe acme")
@_name
@store_options
@keyforms.json_option
def describe(name: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Show an account."""

    async def read(stores: ManagedStores) -> Account:
        try:
            return await _accounts(stores, None).get(name)
        except NotThere as error:
            raise click.ClickException(f"{error}; create it with `accounts set`") from error

    _show(with_managed(StoreChoice(store, data), read), as_json)


def _accounts(stores: ManagedStores, policy: Policy | None) -> Accounts:
    return Accounts(stores.keys, stores.audit, lambda: policy, stores.clock_us)


def _show(account: Account, as_json: bool) -> None:
    shown = account_as_json(account)
    click.echo(json.dumps(shown, indent=2) if as_json else keyforms.as_lines(shown))
