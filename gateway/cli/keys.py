"""`gateway keys`: create, look at and change API keys."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, store_options, with_keys
from gateway.domain import keylife, spelling
from gateway.domain.keys import KeyRecord
from gateway.domain.networks import Network
from gateway.domain.ports import KeyChanged
from gateway.stores.connect import StoreAddress
from gateway.stores.keys import RedisKeyStore

Command = TypeVar("Command", bound=Callable[..., object])

#: How often a change is tried anew because somebody else changed the key in between.
_TRIES: Final = 5
_TRY_IT: Final = "curl -H 'Authorization: Bearer {}' http://127.0.0.1:8080/v1/auth/verify"

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
_key_id = click.argument("key_id", metavar="ID", callback=keyforms.read_key_id)


def _key_command(example: str) -> Callable[[Callable[..., None]], click.Command]:
    """A command of the group on one key: ID, --store, --data and --json."""

    def build(function: Callable[..., None]) -> click.Command:
        return keys.command(epilog=f"Example: gateway keys {example}")(
            _key_id(store_options(_json(function)))
        )

    return build


@click.group(epilog="Example: gateway keys create --name ci --plan free")
def keys() -> None:
    """Create, list, rotate and revoke API keys."""


@keys.command(
    epilog="Example: gateway keys create --name ci --plan pro --scope connectors:read --expires 90d"
)
@click.option("--name", required=True, callback=keyforms.read_name, help="What the key is for.")
@click.option("--plan", required=True, callback=keyforms.read_word, help="A plan of the policies.")
@click.option("--account", callback=keyforms.read_word, help="Default: one of its own.")
@click.option(
    "--environment",
    callback=keyforms.read_environment,
    help="Default: that of the policies, else production.",
)
@click.option("--scope", "scopes", multiple=True, callback=keyforms.read_scopes, help="Repeatable.")
@click.option(
    "--permission",
    "permissions",
    multiple=True,
    metavar="AREA:ACTION",
    callback=keyforms.read_permissions,
    help="Repeatable.",
)
@click.option(
    "--ip",
    "networks",
    multiple=True,
    metavar="RANGE",
    callback=keyforms.read_networks,
    help="Where it may be used from; repeatable.",
)
@click.option("--expires", metavar="DATE|DURATION", help="2026-12-31 (UTC) or 30d.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=RATE[,burst=N]",
    help="Figures of its own for a limit: plan=300/minute,burst=500; repeatable.",
)
@click.option(
    "--policies",
    metavar="DIR",
    envvar="GATEWAY_POLICIES",
    type=click.Path(path_type=Path),
    help="What plan and limits are checked against. Default: ./policies, if it exists.",
)
@store_options
@_json
def create(
    name: str,
    plan: str,
    account: str | None,
    environment: str | None,
    scopes: list[str],
    permissions: Mapping[str, tuple[str, ...]],
    networks: tuple[Network, ...],
    expires: str | None,
    limits: Sequence[str],
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """Create a key. It is printed once and cannot be shown again."""
    now_us = _now_us()
    policy = keyforms.load_policy(policies)
    environment = environment or (policy.environment if policy else "production")
    text, key_id = spelling.mint(environment, secrets.randbelow)
    with keyforms.usage_of("--plan"):
        keyforms.check_plan(plan, policy)
    with keyforms.usage_of("--limit"):
        own_limits = keyforms.read_own_limits(limits, policy)
    with keyforms.usage_of("--expires"):
        expires_us = keyforms.expiry_us(expires, now_us) if expires is not None else None
    record = KeyRecord(
        id=key_id,
        digest=spelling.digest(text.encode()),
        name=name,
        account=account or key_id,
        plan=plan,
        environment=environment,
        lineage=key_id,
        created_us=now_us,
        scopes=tuple(scopes),
        permissions=permissions,
        networks=networks,
        expires_us=expires_us,
        limits=own_limits,
    )
    with_keys(StoreChoice(store, data), lambda keys: keys.add(record))
    _print_new(record, text, now_us, as_json, {})


@keys.command("list", epilog="Example: gateway keys list --json")
@store_options
@_json
def list_keys(store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """List all keys, oldest first."""

    async def read(keys: RedisKeyStore) -> tuple[list[KeyRecord], Mapping[str, int]]:
        records = await keys.records()
        return records, await keys.last_used([record.id for record in records])

    records, used = with_keys(StoreChoice(store, data), read)
    now_us = _now_us()
    if as_json:
        _print([keyforms.key_as_json(record, now_us, used.get(record.id)) for record in records])
        return
    rows = [
        (
            *(record.id, record.name, record.account, record.plan, record.environment),
            keyforms.status_words(record, now_us),
            keyforms.moment(used.get(record.id)) or "never",
        )
        for record in records
    ]
    head = ("ID", "NAME", "ACCOUNT", "PLAN", "ENVIRONMENT", "STATUS", "LAST USED")
    click.echo(keyforms.as_table(head, rows))


@_key_command("describe 7h3k9m2p4q6r")
def describe(key_id: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Show all that is recorded of a key."""
    record, used_us = _read(StoreChoice(store, data), key_id)
    shown = keyforms.key_as_json(record, _now_us(), used_us)
    _print(shown) if as_json else click.echo(keyforms.as_lines(shown))


@_key_command("usage 7h3k9m2p4q6r")
def usage(key_id: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Show whether a key is in use: its status, and when it was last used."""
    record, used_us = _read(StoreChoice(store, data), key_id)
    status, used = keyforms.status_words(record, _now_us()), keyforms.moment(used_us)
    if as_json:
        _print({"id": record.id, "status": status, "last_used": used})
        return
    click.echo(keyforms.as_lines({"id": record.id, "status": status, "last_used": used or "never"}))
    click.echo("A history of usage is not recorded in this version.")


@keys.command(epilog="Example: gateway keys rotate 7h3k9m2p4q6r --overlap 2h")
@_key_id
@click.option(
    "--overlap",
    "overlap_us",
    default="24h",
    show_default=True,
    metavar="DURATION",
    callback=keyforms.read_overlap_us,
    help="How long the old key stays valid.",
)
@store_options
@_json
def rotate(
    key_id: str, overlap_us: int, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Make a key's successor and print it once. Both count as one until the old one ends."""
    now_us = _now_us()

    async def turn(keys: RedisKeyStore) -> tuple[KeyRecord, KeyRecord, str]:
        record = await _get(keys, key_id)
        text, new_id = spelling.mint(record.environment, secrets.randbelow)
        digest = spelling.digest(text.encode())
        rotated = keylife.rotate(record, new_id, digest, now_us, overlap_us)
        if isinstance(rotated, str):
            raise click.ClickException(f"key {key_id} cannot be rotated: {rotated}")
        old, new = rotated
        # The successor first: should this end half-way, a key exists that nobody was told, not
        # one that expires with nothing to follow it.
        await keys.add(new)
        try:
            await keys.replace(record, old)
        except KeyChanged:
            await keys.replace(new, replace(new, status="revoked"))
            raise
        return old, new, text

    try:
        old, new, text = with_keys(StoreChoice(store, data), turn)
    except KeyChanged:
        raise _changed_again(key_id) from None
    ends = keyforms.moment(old.expires_us)
    _print_new(new, text, now_us, as_json, {"replaces": old.id, "old_expires": ends})


@_key_command("suspend 7h3k9m2p4q6r")
def suspend(key_id: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Put a key out of use until it is resumed."""
    _change(StoreChoice(store, data), key_id, "suspended", keylife.suspend, as_json)


@_key_command("resume 7h3k9m2p4q6r")
def resume(key_id: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Put a suspended key back in use."""
    _change(StoreChoice(store, data), key_id, "resumed", keylife.resume, as_json)


@_key_command("revoke 7h3k9m2p4q6r")
def revoke(key_id: str, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Put a key out of use for ever. Every gateway refuses it within a second."""
    _change(StoreChoice(store, data), key_id, "revoked", keylife.revoke, as_json)


def _change(
    choice: StoreChoice,
    key_id: str,
    done: str,
    decide: Callable[[KeyRecord], KeyRecord | str],
    as_json: bool,
) -> None:
    """Read, decide, and put in place; again where somebody else was quicker. done: "revoked"."""

    async def change(keys: RedisKeyStore) -> KeyRecord:
        for _ in range(_TRIES):
            record = await _get(keys, key_id)
            changed = decide(record)
            if isinstance(changed, str):
                raise click.ClickException(f"key {key_id} cannot be {done}: {changed}")
            try:
                await keys.replace(record, changed)
            except KeyChanged:
                continue
            return changed
        raise _changed_again(key_id)

    record = with_keys(choice, change)
    if as_json:
        _print({"id": record.id, "status": record.status})
    else:
        click.echo(f"Key {record.id} ({record.name}) is {done}.")


def _read(choice: StoreChoice, key_id: str) -> tuple[KeyRecord, int | None]:
    """A key and when it was last used."""

    async def read(keys: RedisKeyStore) -> tuple[KeyRecord, int | None]:
        record = await _get(keys, key_id)
        return record, (await keys.last_used([key_id])).get(key_id)

    return with_keys(choice, read)


async def _get(keys: RedisKeyStore, key_id: str) -> KeyRecord:
    record = await keys.get(key_id)
    if record is None:
        raise click.ClickException(f"there is no key with the id {key_id}")
    return record


def _changed_again(key_id: str) -> click.ClickException:
    return click.ClickException(f"key {key_id} was being changed by somebody else, try again")


def _print_new(
    record: KeyRecord, text: str, now_us: int, as_json: bool, more: Mapping[str, object]
) -> None:
    shown = keyforms.key_as_json(record, now_us, None)
    if as_json:
        _print({"id": record.id, "key": text, **more, **shown})
        return
    click.echo(keyforms.as_lines({**shown, **more}))
    click.echo(f"\n{text}\n\nThis is shown once: keep it now. Try it:\n  {_TRY_IT.format(text)}")


def _print(shown: object) -> None:
    click.echo(json.dumps(shown, indent=2, ensure_ascii=False))


def _now_us() -> int:
    return time.time_ns() // 1000
