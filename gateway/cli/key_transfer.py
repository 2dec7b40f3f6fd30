"""`gateway keys export` and `gateway keys import`: moves keys and accounts between stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, choose_for_new, store_options, with_managed
from gateway.domain.patterns import printable
from gateway.manage.key_file import MOST_LINE_BYTES
from gateway.manage.key_transfer import (
    Conflicts,
    Faulty,
    Import,
    Step,
    counts,
    export_lines,
    notes,
    read_entries,
)
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

_CONFLICTS: Final[dict[str, Conflicts]] = {"fail": "fail", "skip": "skip", "replace": "replace"}


@click.command("export", epilog="Example: gateway keys export --store redis://old > keys.jsonl")
@store_options
def export(store: StoreAddress | None, data: Path) -> None:
    """Print all keys and accounts as JSON lines, for `keys import`.

    Keys are exported as hashes: the file has no secret, and the keys stay valid where it is
    imported. Counters, usage and times of last use are not exported.
    """

    async def read(stores: ManagedStores) -> Iterator[str]:
        return await export_lines(stores.keys, stores.clock_us())

    for line in with_managed(StoreChoice(store, data), read):
        click.echo(line)


@click.command(
    "import", epilog="Example: gateway keys import --store redis://new --dry-run keys.jsonl"
)
@click.argument("file", type=click.File("rb", lazy=True))
@click.option(
    "--conflicts",
    type=click.Choice(list(_CONFLICTS)),
    default="fail",
    show_default=True,
    help="If the store has another record of a key or account: import nothing, keep it, replace "
    "it. A key that was revoked stays revoked.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, and write nothing.")
@keyforms.policies_option("whose environment and plans the keys are compared with")
@store_options
@keyforms.json_option
def import_(
    file: BinaryIO,
    conflicts: str,
    dry_run: bool,
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """Import the keys and accounts of a file of `keys export`; - is the standard input.

    All lines are checked first: if one has a fault, nothing is imported. An import that was
    interrupted can be repeated.
    """
    policy = keyforms.load_policy(policies)

    async def change(stores: ManagedStores) -> list[Step]:
        importing = Import(stores.keys, stores.audit, stores.clock_us)
        steps = await importing.plan(entries, _CONFLICTS[conflicts])
        if not dry_run:
            await importing.run(keyforms.os_actor(), steps)
        return steps

    try:
        entries = read_entries(_lines(file))
        steps = with_managed(choose_for_new(store, data), change)
    except (Faulty, click.ClickException) as error:
        faulty = error if isinstance(error, Faulty) else error.__cause__
        if not isinstance(faulty, Faulty):
            raise
        _print_faults(printable(file.name), faulty)
        raise click.ClickException(str(faulty)) from error
    for text in notes(steps, policy):
        click.echo(f"warning: {printable(text)}", err=True)
    _print_counts(steps, dry_run, as_json)


def _print_faults(name: str, faulty: Faulty) -> None:
    for fault in faulty.faults:
        click.echo(f"{name}:{fault.line}: {printable(fault.text)}", err=True)
    if (more := faulty.count - len(faulty.faults)) > 0:
        click.echo(f"{name}: and {more} more", err=True)


def _print_counts(steps: list[Step], dry_run: bool, as_json: bool) -> None:
    found = counts(steps)
    if as_json:
        click.echo(json.dumps({"dry_run": dry_run, **found}, indent=2))
        return
    for kind, row in found.items():
        words = ", ".join(f"{count} {action}" for action, count in row.items())
        click.echo(f"{kind}: {words}")
    if dry_run:
        click.echo("Nothing was written, because of --dry-run.")


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines; None for one that is too long, of which only parts are read at a time."""
    while line := file.readline(MOST_LINE_BYTES + 1):
        if len(line) <= MOST_LINE_BYTES or line.endswith(b"\n"):
            yield line.removesuffix(b"\n")
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(MOST_LINE_BYTES)
        yield None
