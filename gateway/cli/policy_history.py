"""`gateway policies`: lists, shows and restores the policies that gateways have loaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import click

from gateway.cli.keyforms import as_table, json_option, os_actor, shown_option
from gateway.cli.options import Folder
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.cli.terminal import is_terminal
from gateway.domain.patterns import printable
from gateway.domain.policy_files import Texts, is_hash
from gateway.domain.policy_history import MOST_KEPT, PolicyLoad
from gateway.manage.policy_history import PolicyHistory, load_as_json
from gateway.manage.views import moment
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

_HEAD: Final = ("TIME", "HASH", "CAUSE", "GATEWAY", "CHANGE")


def _read_hash(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if not is_hash(text):
        raise click.BadParameter(
            f"found '{printable(text[:64])}', expected 16 hexadecimal digits, as gateway policies "
            "history shows them"
        )
    return text


@click.group()
def policies() -> None:
    """List, show and restore the policies that gateways on a store have loaded.

    The store keeps the last 50. They can be compared with gateway diff.

    Example: gateway policies history
    """


@policies.command(epilog="Example: gateway policies history --count 5")
@click.option(
    "--count",
    type=click.IntRange(1, MOST_KEPT),
    default=MOST_KEPT,
    show_default=True,
    help="How many of the newest.",
)
@store_options
@shown_option
def history(count: int, store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """List which policies were loaded, when and why, the newest last.

    A change has one entry, that of the first gateway that has loaded it.
    """

    async def read(stores: ManagedStores) -> list[PolicyLoad]:
        return await _history(stores).loads()

    loads = with_managed(StoreChoice(store, data), read)[:count][::-1]
    if as_json:
        click.echo(json.dumps(list(map(load_as_json, loads)), indent=2))
    else:
        click.echo(as_table(_HEAD, list(map(_row, loads))))


@policies.command(epilog="Example: gateway policies show 0123456789abcdef routes.yaml")
@click.argument("policy", metavar="HASH", callback=_read_hash)
@click.argument("file", required=False)
@store_options
@json_option
def show(
    policy: str, file: str | None, store: StoreAddress | None, data: Path, as_json: bool
) -> None:
    """Print the files of a policy, or one of them.

    On a terminal, control characters are replaced; otherwise the text is exact.
    """

    async def read(stores: ManagedStores) -> Texts:
        return await _history(stores).texts(policy)

    texts = with_managed(StoreChoice(store, data), read)
    if file is not None:
        if file not in texts:
            raise click.ClickException(
                f"the policy {policy} has no file {printable(file)}; it has {', '.join(texts)}"
            )
        texts = {file: texts[file]}
    if as_json:
        click.echo(json.dumps({"hash": policy, "texts": dict(texts)}, indent=2))
        return
    for name, text in texts.items():
        if file is None:
            click.echo(f"# -- {name}")
        _print_text(text if file is not None or text.endswith("\n") else f"{text}\n")


@policies.command(epilog="Example: gateway policies rollback 0123456789abcdef policies")
@click.argument("policy", metavar="HASH", callback=_read_hash)
@click.argument("folder", metavar="DIR", type=Folder(path_type=Path))
@click.option(
    "--force",
    is_flag=True,
    help="Also replace files that are in no version of the history; a copy of them is kept in a "
    "hidden folder in DIR.",
)
@store_options
def rollback(
    policy: str, folder: Path, force: bool, store: StoreAddress | None, data: Path
) -> None:
    """Give the policy folder DIR the files of an earlier policy.

    Files of DIR that the earlier policy did not have are removed. A running gateway loads the files
    as after any change. See what changes first: gateway diff DIR HASH.
    """
    if not folder.is_dir():
        raise click.BadParameter(f"'{folder}' is not a folder", param_hint="DIR")

    async def restore(stores: ManagedStores) -> Path | None:
        history = PolicyHistory(stores.policies, stores.audit, lambda: folder)
        now_us = stores.clock_us()
        return await history.roll_back(os_actor(), policy, folder, now_us, force=force)

    copy = with_managed(StoreChoice(store, data), restore)
    click.echo(
        f"{folder} has the files of the policy {policy}; a gateway that uses this folder loads "
        "them within two seconds"
    )
    if copy is not None:
        click.echo(f"the files that were there are in {copy}")


def _history(stores: ManagedStores) -> PolicyHistory:
    return PolicyHistory(stores.policies, stores.audit, Path)


def _row(load: PolicyLoad) -> tuple[str, ...]:
    cause = f"{load.cause} by {load.actor}" if load.actor else load.cause
    return moment(load.at_us) or "", load.hash, cause, load.gateway, load.summary


def _print_text(text: str) -> None:
    if is_terminal():
        lines = text.replace("\t", "    ").split("\n")
        click.echo("\n".join(map(printable, lines)), nl=not text.endswith("\n"))
    else:
        # Not click.echo, which would encode it for the terminal.
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
