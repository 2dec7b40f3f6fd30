"""`gateway keys`: creates, shows and changes API keys."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.cli.usage import usage
from gateway.domain import keylife
from gateway.domain.keys import KeyRecord
from gateway.domain.policy import Policy
from gateway.domain.ports import KeyFilter
from gateway.manage.forms import read_overlap_us
from gateway.manage.keys import Keys, KeyView
from gateway.manage.problems import Conflict, Invalid
from gateway.manage.views import key_as_json, moment, status_words
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

#: Keys per request to the store, when all are listed.
_PAGE: Final = 500
_TRY_IT: Final = "curl -H 'Authorization: Bearer {}' http://127.0.0.1:8080/v1/auth/verify"
#: Option that `edit` can clear -> the field, and its cleared value.
_CLEARED: Final[Mapping[str, tuple[str, object]]] = {
    "plan": ("plan", None),
    "scope": ("scopes", []),
    "permission": ("permissions", {}),
    "ip": ("ip_ranges", []),
    "expires": ("expires", None),
    "limit": ("limits", {}),
}

_key_id = click.argument("key_id", metavar="ID", callback=keyforms.read_key_id)


def _read_overlap(_ctx: click.Context, _: click.Parameter, text: str) -> int:
    try:
        return read_overlap_us(text)
    except Invalid as invalid:
        raise keyforms.usage_error(invalid) from invalid


def _key_command(example: str) -> Callable[[Callable[..., None]], click.Command]:
    """A command of the group for one key, with ID, --store, --data and --json."""

    def build(function: Callable[..., None]) -> click.Command:
        return keys.command(epilog=f"Example: gateway keys {example}")(
            _key_id(store_options(keyforms.json_option(function)))
        )

    return build


def _clearing_options(command: Callable[..., None]) -> Callable[..., None]:
    """--no-plan, --no-scope and so on; the command receives no_plan, no_scope …"""
    for name in reversed(list(_CLEARED)):
        command = click.option(f"--no-{name}", is_flag=True, help=f"Clear --{name}.")(command)
    return command


@click.group(epilog="Example: gateway keys create --name ci --plan free")
def keys() -> None:
    """Create, list, rotate and revoke API keys."""


@keys.command(
    epilog="Example: gateway keys create --name ci --plan pro --scope connectors:read --expires 90d"
)
@click.option("--name", required=True, help="What the key is for.")
@click.option("--environment", help="Default: the policies' environment, else production.")
@keyforms.key_options
@store_options
@keyforms.json_option
def create(
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
    **options: object,
) -> None:
    """Create a key. It is printed once and cannot be shown again."""
    given = keyforms.fields_of(options)
    policy = keyforms.load_policy(policies)

    async def make(stores: ManagedStores) -> tuple[dict[str, object], str]:
        managed = _keys(stores, policy)
        record, text = await managed.create(keyforms.os_actor(), managed.read_new(given))
        return key_as_json(record, stores.clock_us(), None), text

    _print_new(*with_managed(StoreChoice(store, data, may_make=True), make), as_json, {})


@keys.command("list", epilog="Example: gateway keys list --plan pro --status suspended")
@click.option(
    "--status",
    type=click.Choice(["valid", "suspended", "revoked", "expired"]),
    help="Only keys of this status.",
)
@click.option("--plan", help="Only keys of this plan.")
@click.option("--account", help="Only keys of this account.")
@click.option(
    "--search", "text", metavar="TEXT", help="Only keys with this in id, name or account."
)
@store_options
@keyforms.json_option
def list_keys(
    status: str | None,
    plan: str | None,
    account: str | None,
    text: str | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """List keys, oldest first."""
    wanted = KeyFilter(text=text, status=status, plan=plan, account=account)

    async def read(stores: ManagedStores) -> tuple[int, list[KeyView]]:
        managed, found = _keys(stores), list[KeyView]()
        page = await managed.page(wanted, count=_PAGE)
        found += page.keys
        while page.next is not None:
            page = await managed.page(wanted, after=page.next, count=_PAGE)
            found += page.keys
        return stores.clock_us(), found[::-1]

    now_us, views = with_managed(StoreChoice(store, data), read)
    if as_json:
        _print([key_as_json(view.record, now_us, view.used_us) for view in views])
        return
    head = ("ID", "NAME", "ACCOUNT", "PLAN", "ENVIRONMENT", "STATUS", "LAST USED")
    click.echo(keyforms.as_table(head, [_row(view, now_us) for view in views]))


@_key_command("describe 7h3k9m2p4q6r")
def describe(key_id: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Show a key."""

    async def read(stores: ManagedStores) -> tuple[int, KeyView]:
        return stores.clock_us(), await _keys(stores).get(key_id)

    now_us, view = with_managed(StoreChoice(store, data), read)
    shown = key_as_json(view.record, now_us, view.used_us)
    if as_json:
        _print(shown)
        return
    if not view.record.plan:
        shown["plan"] = f"{view.plan or 'none'} (its account's)"
    click.echo(keyforms.as_lines(shown))


keys.add_command(usage)


@keys.command(epilog="Example: gateway keys edit 7h3k9m2p4q6r --plan pro --no-expires")
@_key_id
@click.option("--name", help="What the key is for.")
@keyforms.key_options
@_clearing_options
@store_options
@keyforms.json_option
def edit(
    key_id: str,
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
    **options: object,
) -> None:
    """Change fields of a key. Other fields stay as they are; a list is replaced as a whole."""
    cleared = {name for name in _CLEARED if options.pop(f"no_{name}")}
    given = keyforms.fields_of(options)
    for name in sorted(cleared):
        field, nothing = _CLEARED[name]
        if field in given:
            raise click.UsageError(f"--{name} and --no-{name} cannot be combined")
        given[field] = nothing
    if not given:
        raise click.UsageError("no field to change was given, see --help")
    policy = keyforms.load_policy(policies)

    async def change(stores: ManagedStores) -> dict[str, object]:
        managed = _keys(stores, policy)
        change = managed.read_change(given)
        record = await managed.edit(keyforms.os_actor(), key_id, change)
        return key_as_json(record, stores.clock_us(), None)

    shown = with_managed(StoreChoice(store, data), change)
    _print(shown) if as_json else click.echo(keyforms.as_lines(shown))


@keys.command(epilog="Example: gateway keys rotate 7h3k9m2p4q6r --overlap 2h")
@_key_id
@click.option(
    "--overlap",
    "overlap_us",
    default="24h",
    show_default=True,
    metavar="DURATION",
    callback=_read_overlap,
    help="How long the old key stays valid.",
)
@store_options
@keyforms.json_option
def rotate(
    key_id: str, overlap_us: int, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Create a key's successor and print it once. Both keys share their limits."""

    async def change(stores: ManagedStores) -> tuple[KeyRecord, dict[str, object], str]:
        old, new, text = await _keys(stores).rotate(keyforms.os_actor(), key_id, overlap_us)
        return old, key_as_json(new, stores.clock_us(), None), text

    old, shown, text = with_managed(StoreChoice(store, data), change)
    more = {"replaces": old.id, "old_expires": moment(old.expires_us)}
    _print_new(shown, text, as_json, more)


@_key_command("suspend 7h3k9m2p4q6r")
def suspend(key_id: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Suspend a key until it is resumed."""
    choice = StoreChoice(store, data)
    _change(choice, key_id, "suspended", keylife.suspend, Keys.suspend, as_json)


@_key_command("resume 7h3k9m2p4q6r")
def resume(key_id: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Resume a suspended key."""
    choice = StoreChoice(store, data)
    _change(choice, key_id, "resumed", keylife.resume, Keys.resume, as_json)


@_key_command("revoke 7h3k9m2p4q6r")
def revoke(key_id: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Revoke a key permanently. Every gateway refuses it within a second."""
    choice = StoreChoice(store, data)
    _change(choice, key_id, "revoked", keylife.revoke, Keys.revoke, as_json)


def _change(
    choice: StoreChoice,
    key_id: str,
    done: str,
    decide: Callable[[KeyRecord], KeyRecord | str],
    make: Callable[..., Awaitable[KeyRecord]],
    as_json: bool,
) -> None:
    """Change a key's status. done: "revoked"

    A change without effect is an error here: the user would think that the command made it.
    """

    async def change(stores: ManagedStores) -> tuple[int, KeyRecord]:
        managed = _keys(stores)
        decided = decide((await managed.get(key_id)).record)
        if isinstance(decided, str):
            raise Conflict(f"key {key_id} cannot be {done}: {decided}")
        return stores.clock_us(), await make(managed, keyforms.os_actor(), key_id)

    now_us, record = with_managed(choice, change)
    if as_json:
        _print({"id": record.id, "status": status_words(record, now_us)})
    else:
        click.echo(f"Key {record.id} ({record.name}) is {done}.")


def _keys(stores: ManagedStores, policy: Policy | None = None) -> Keys:
    """Keys with a fixed clock, so that "30d" is 30 days from the key's creation."""
    now_us = stores.clock_us()
    return Keys(stores.keys, stores.audit, lambda: policy, lambda: now_us)


def _row(view: KeyView, now_us: int) -> tuple[str, ...]:
    record = view.record
    return (
        *(record.id, record.name, record.account, view.plan, record.environment),
        status_words(record, now_us),
        moment(view.used_us) or "never",
    )


def _print_new(
    shown: dict[str, object], text: str, as_json: bool, more: Mapping[str, object]
) -> None:
    if as_json:
        _print({"id": shown["id"], "key": text, **more, **shown})
        return
    click.echo(keyforms.as_lines({**shown, **more}))
    click.echo(f"\n{text}\n\nThis is shown once: store it now. Try it:\n  {_TRY_IT.format(text)}")


def _print(shown: object) -> None:
    click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
