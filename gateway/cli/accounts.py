"""`gateway accounts`: the plan, services, limit overrides and status of an account."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from gateway.cli import keyforms, terminal
from gateway.cli.store import StoreChoice, choose_for_new, store_options, with_managed
from gateway.domain.keys import Account
from gateway.domain.policy import Policy
from gateway.domain.ports import KeyFilter
from gateway.manage.account_hooks import AccountHooks
from gateway.manage.account_removal import remove_account
from gateway.manage.accounts import MOST_COUNTED, Accounts, AccountView, view_as_json
from gateway.manage.keys import Keys, KeyView
from gateway.manage.limits import AccountLimit, Limits, now_as_json
from gateway.manage.problems import Conflict, Invalid, NotThere
from gateway.manage.reading import read_word
from gateway.manage.views import account_as_json, status_words
from gateway.manage.words import limit_words, standing_words
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

_Limits = tuple[AccountLimit, ...] | None
#: Accounts and keys per request to the store, when all are listed.
_PAGE: Final = 500
#: Option that `edit` can clear -> the field, and its cleared value.
_CLEARED: Final[Mapping[str, tuple[str, object]]] = {
    "plan": ("plan", None),
    "service": ("services", []),
    "limit": ("limits", {}),
}


def _read_name(ctx: click.Context, _: click.Parameter, text: str) -> str:
    try:
        return read_word("NAME", text)
    except Invalid as invalid:
        raise keyforms.usage_error(invalid) from invalid


_name = click.argument("name", callback=_read_name)
_services = click.option(
    "--service",
    "services",
    multiple=True,
    metavar="AREA",
    help="A service area to enable; repeatable.",
)
_plan = click.option("--plan", help="Plan of its keys that have none of their own.")


@click.group(
    epilog="Example: gateway accounts set acme --plan pro --service ticketing",
)
def accounts() -> None:
    """Manage accounts: plan, enabled services, limit overrides and status."""


@accounts.command("set", epilog="Example: gateway accounts set acme --plan pro --service ticketing")
@_name
@_services
@_plan
@click.option(
    "--billing-day",
    type=click.IntRange(1, 31),
    default=1,
    show_default=True,
    help="Day of the month on which quotas with `from: account` begin again.",
)
@keyforms.limit_option
@keyforms.checking_policies_option
@store_options
@keyforms.json_option
def set_account(
    name: str,
    services: Sequence[str],
    plan: str | None,
    billing_day: int,
    limits: Sequence[str],
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """Create an account, or replace all of its services, plan, limits and billing day.

    A field whose option is not given is cleared: give all that the account should have. `edit`
    changes single fields. A suspended account stays suspended.
    """
    given = keyforms.fields_of({"services": services, "plan": plan, "limits": limits})
    given["billing_day"] = billing_day
    policy = keyforms.load_policy(policies)

    async def put(stores: ManagedStores) -> tuple[Account, int]:
        managed = _accounts(stores, policy)
        account = await managed.put(keyforms.os_actor(), name, given)
        return account, await managed.keys_without_plan(account)

    account, without = with_managed(choose_for_new(store, data), put)
    _show(account, as_json)
    _warn_without_plan(without)


@accounts.command(epilog="Example: gateway accounts edit acme --plan free --no-limit")
@_name
@_services
@_plan
@click.option(
    "--billing-day",
    type=click.IntRange(1, 31),
    help="Day of the month on which quotas with `from: account` begin again.",
)
@keyforms.limit_option
@keyforms.clearing_options(_CLEARED)
@keyforms.checking_policies_option
@store_options
@keyforms.json_option
def edit(
    name: str,
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
    **options: object,
) -> None:
    """Change fields of an account. Other fields stay as they are; a list is replaced as a whole."""
    given = keyforms.changed_fields(options, _CLEARED)
    policy = keyforms.load_policy(policies)

    async def change(stores: ManagedStores) -> tuple[Account, int]:
        managed = _accounts(stores, policy)
        account = await managed.edit(keyforms.os_actor(), name, given)
        return account, await managed.keys_without_plan(account) if "plan" in given else 0

    account, without = with_managed(StoreChoice(store, data), change)
    _show(account, as_json)
    _warn_without_plan(without)


def _warn_without_plan(without: int) -> None:
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


@accounts.command("list", epilog="Example: gateway accounts list --search acme")
@click.option("--search", "text", metavar="TEXT", help="Only accounts with this in their name.")
@click.option("--all", "with_own", is_flag=True, help="Also those of keys that were given none.")
@store_options
@keyforms.shown_option
def list_accounts(
    text: str | None, with_own: bool, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """List accounts by name, with the number of their keys.

    Accounts that have no record are listed too, if keys were given them. KEYS counts keys that are
    not revoked.
    """

    async def read(stores: ManagedStores) -> list[AccountView]:
        managed, found = _accounts(stores, None), list[AccountView]()
        after: str | None = None
        while True:
            page = await managed.page(after, _PAGE, text, "all" if with_own else "named")
            found += page.accounts
            if (after := page.next) is None:
                return found

    found = with_managed(StoreChoice(store, data), read)
    for view in found:
        if view.is_shared:
            click.echo(
                f"warning: account {view.name} is named like a key, whose account it is too: give "
                "its other keys an account of another name",
                err=True,
            )
    if as_json:
        click.echo(json.dumps(list(map(view_as_json, found)), indent=2))
        return
    head = ("NAME", "PLAN", "SERVICES", "STATUS", "KEYS")
    click.echo(terminal.table(head, list(map(_row, found)), terminal.in_colours()))


def _row(view: AccountView) -> list[terminal.Cell]:
    account = view.account
    status = "no record" if view.is_implicit else account.status
    return [
        *((text, None) for text in (account.name, account.plan, ", ".join(account.services))),
        (status, terminal.STATUS_COLOURS.get(status)),
        (str(view.keys), None),
    ]


@accounts.command(epilog="Example: gateway accounts describe acme")
@_name
@keyforms.policies_option("whose limits of the account are shown")
@store_options
@keyforms.shown_option
def describe(
    name: str, policies: Path | None, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Show an account, its keys, and the limits of its keys.

    The limits are those of a key that has no plan and no limits of its own.
    """
    policy = keyforms.load_policy(policies)

    async def read(stores: ManagedStores) -> tuple[AccountView, list[KeyView], _Limits, int]:
        try:
            view = await _accounts(stores, policy).view(name)
        except NotThere as error:
            raise click.ClickException(f"{error}; create it with `accounts set`") from error
        managed, found = _keys(stores), list[KeyView]()
        after: str | None = None
        while True:
            page = await managed.page(KeyFilter(account=name), after, _PAGE)
            found += page.keys
            if (after := page.next) is None:
                break
        return view, found[::-1], await _limits(stores, policy, name), stores.clock_us()

    view, found, limits, now_us = with_managed(StoreChoice(store, data), read)
    if as_json:
        effective = None if limits is None else list(map(now_as_json, limits))
        shown = {**view_as_json(view), "effective_limits": effective}
        shown["key_ids"] = [one.record.id for one in found]
        click.echo(json.dumps(shown, indent=2))
        return
    _print(view, found, limits, now_us)


def _print(view: AccountView, found: list[KeyView], limits: _Limits, now_us: int) -> None:
    shown = account_as_json(view.account)
    if view.is_implicit:
        shown = {"name": view.name, "record": "none: it is only named by its keys"}
    click.echo(keyforms.as_lines(shown))
    if limits:
        rows = [(one.limit.name, limit_words(one.limit), _state(one)) for one in limits]
        click.echo("\n" + keyforms.as_table(("LIMIT", "VALUES", "NOW"), rows))
    if found:
        head = ("KEY", "NAME", "PLAN", "STATUS")
        lines = [
            (one.record.id, one.record.name, one.plan, status_words(one.record, now_us))
            for one in found
        ]
        click.echo("\n" + keyforms.as_table(head, lines))


def _state(one: AccountLimit) -> str:
    return "for each key" if one.standing is None else standing_words(one.limit, one.standing)


async def _limits(stores: ManagedStores, policy: Policy | None, name: str) -> _Limits:
    if policy is None:
        return None
    managed = Limits(stores.keys, stores.counters, stores.audit, lambda: policy, stores.clock_us)
    return await managed.of_account(name)


@accounts.command(epilog="Example: gateway accounts suspend acme")
@_name
@store_options
@keyforms.json_option
def suspend(name: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Suspend an account until it is resumed. Every gateway refuses its keys within a second."""
    _turn(StoreChoice(store, data), name, "suspended", Accounts.suspend, as_json)


@accounts.command(epilog="Example: gateway accounts resume acme")
@_name
@store_options
@keyforms.json_option
def resume(name: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Resume a suspended account."""
    _turn(StoreChoice(store, data), name, "valid", Accounts.resume, as_json)


def _turn(
    choice: StoreChoice,
    name: str,
    status: str,
    make: Callable[..., Awaitable[Account]],
    as_json: bool,
) -> None:
    """Change an account's status. status: "suspended"

    A change without effect is an error here: the user would think that the command made it.
    """
    done = {"suspended": "suspended", "valid": "resumed"}[status]

    async def change(stores: ManagedStores) -> AccountView:
        managed = _accounts(stores, None)
        view = await managed.view(name)
        if view.account.status == status:
            reason = "it is suspended already" if status == "suspended" else "it is not suspended"
            raise Conflict(f"account {name} cannot be {done}: {reason}")
        await make(managed, keyforms.os_actor(), name)
        return view

    keys = with_managed(choice, change).keys
    if as_json:
        click.echo(json.dumps({"name": name, "status": status}, indent=2))
    else:
        click.echo(f"Account {name} is {done}, with {keys} {'key' if keys == 1 else 'keys'}.")


@accounts.command(epilog="Example: gateway accounts delete acme")
@_name
@click.option(
    "--force",
    is_flag=True,
    help="Revoke its keys and remove its integrations first, which is final.",
)
@store_options
@keyforms.json_option
def delete(name: str, force: bool, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Delete an account without integrations and valid keys; with --force, also with them."""

    async def change(stores: ManagedStores) -> int:
        actor = keyforms.os_actor()
        return await remove_account(
            _accounts(stores, None), _keys(stores), actor, name, revokes=force
        )

    revoked = with_managed(StoreChoice(store, data), change)
    if as_json:
        click.echo(json.dumps({"name": name, "deleted": True, "revoked": revoked}, indent=2))
        return
    keys = f" {revoked} {'key was' if revoked == 1 else 'keys were'} revoked." if revoked else ""
    click.echo(f"Account {name} is deleted.{keys}")


def _keys(stores: ManagedStores) -> Keys:
    return Keys(stores.keys, stores.audit, lambda: None, stores.clock_us)


def _accounts(stores: ManagedStores, policy: Policy | None) -> Accounts:
    opened = stores.webhooks
    hooks = None if opened is None else AccountHooks(opened.resources, opened.queue_of)
    return Accounts(stores.keys, stores.audit, lambda: policy, stores.clock_us, hooks)


def _show(account: Account, as_json: bool) -> None:
    shown = account_as_json(account)
    click.echo(json.dumps(shown, indent=2) if as_json else keyforms.as_lines(shown))
