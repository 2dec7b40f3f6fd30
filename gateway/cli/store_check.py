"""`gateway store`: which connections to the store work, and why the others do not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, open_store, store_options
from gateway.stores.checking import check_store
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.embedded import EmbeddedFailed

_HEAD: Final = ("FOR", "FOUND")


@click.command(epilog="Example: gateway store --store redis://gateway@cache:6379/0")
@store_options
@keyforms.shown_option
def store(store: StoreAddress | None, data: Path, as_json: bool) -> None:
    """Check the connections to the store, as a gateway makes them.

    Each is shown as ok, or with the reason why it fails and what to do about it. The exit status is
    1 if one fails, or if the store may evict keys.
    """

    async def check() -> tuple[str, dict[str, str]]:
        async with open_store(StoreChoice(store, data)) as address:
            return address.label, await check_store(address)

    try:
        label, found = asyncio.run(check())
    except EmbeddedFailed as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        shown = {name: fault or "ok" for name, fault in found.items()}
        click.echo(json.dumps({"store": label, **shown}, indent=2))
    else:
        rows = [(name, fault or "ok") for name, fault in found.items()]
        click.echo(keyforms.as_table(_HEAD, rows))
    if any(found.values()):
        raise click.exceptions.Exit(1)
