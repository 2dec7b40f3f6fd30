"""`gateway keys`: creates, shows and changes API keys."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import click

from gateway.cli import keyforms
from gateway.cli.key_list import list_keys
from gateway.cli.key_transfer import export, import_
from gateway.cli.store import StoreChoice, choose_for_new, store_options, with_managed
from gateway.cli.usage import usage
from gateway.domain import keylife
from gateway.domain.keys import KeyRecord
from gateway.domain.policy import Policy
from gateway.manage.forms import read_overlap_us
from gateway.manage.keys import Keys, KeyView
from gateway.manage.problems import Conflict, Invalid
from gateway.manage.views import key_as_json, moment, status_words
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

#: What a command does.
Body = Callable[..., None]

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


def _key_command(
    example: str,
    output: Callable[[Callable[..., None]], Callable[..., None]] = keyforms.json_option,
) -> Callable[[Body], click.Command]:
    """A command of the group for one key, with ID, --store, --data and the choice of the output."""

    def build(function: Body) -> click.Command:
        return keys.command(epilog=f"Example: gateway keys {example}")(
            _key_id(store_options(output(function)))
        )

    return build


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
    """Create a key. It is printed once and cannot be shown again.

    Without --store and --data a gateway must have used the private Redis of this folder.
    """
    given = keyforms.fields_of(options)
    policy = keyforms.load_policy(policies)

    async def make(stores: ManagedStores) -> tuple[dict[str, object], str]:
        managed = _keys(stores, policy)
        record, text = await managed.create(keyforms.os_actor(), managed.read_new(given))
        return key_as_json(record, stores.clock_us(), None), text

    made = with_managed(choose_for_new(store, data), make)
    keyforms.warn_unrequired(policy, given)
    _print_new(*made, as_json, {})


@_key_command("describe 7h3k9m2p4q6r", keyforms.shown_option)
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


for _command in (list_keys, usage, export, import_):
    keys.add_command(_command)


@keys.command(epilog="Example: gateway keys edit 7h3k9m2p4q6r --plan pro --no-expires")
@_key_id
@click.option("--name", help="What the key is for.")
@keyforms.key_options
@keyforms.clearing_options(_CLEARED)
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
    given = keyforms.changed_fields(options, _CLEARED)
    policy = keyforms.load_policy(policies)

    async def change(stores: ManagedStores) -> dict[str, object]:
        managed = _keys(stores, policy)
        change = managed.read_change(given)
        record = await managed.edit(keyforms.os_actor(), key_id, change)
        return key_as_json(record, stores.clock_us(), None)

    shown = with_managed(StoreChoice(store, data), change)
    keyforms.warn_unrequired(policy, given)
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
