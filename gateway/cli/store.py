"""The options --store and --data of commands, and opening the store that they name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import click
from click.core import ParameterSource

from gateway.cli.keyforms import usage_error
from gateway.cli.options import Folder
from gateway.domain.ports import CorruptRecord, StoreDown
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.manage.problems import Invalid, Problem
from gateway.stores.managed import ManagedStores, open_managed
from gateway.stores.redis.address import (
    CERTIFICATE,
    CERTIFICATE_KEY,
    PASSWORD,
    SENTINEL_PASSWORD,
    StoreAddress,
    has_password,
    read_address,
)
from gateway.stores.redis.embedded import (
    EmbeddedFailed,
    EmbeddedRedis,
    check_has_store,
    has_live_server,
)

#: A start that takes longer than this prints a line.
_SILENT_S: Final = 2.0

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """The store to use: at an address, or a private Redis in a folder.

    creates:  what is stored there is for a gateway that must know it; it says so if none runs
    may_make: create the private Redis if the folder has none
    """

    address: StoreAddress | None
    data: Path
    creates: bool = False
    may_make: bool = False


def store_options(command: Command) -> Command:
    """Add --store and --data to a command, which gets `store: StoreAddress | None, data: Path`."""
    data = click.option(
        "--data",
        metavar="DIR",
        envvar="GATEWAY_DATA",
        default=".gateway",
        show_default=True,
        type=Folder(path_type=Path, file_okay=False),
        help="Folder of the private Redis, used without --store.",
    )
    store = click.option(
        "--store",
        metavar="URL",
        envvar="GATEWAY_STORE",
        callback=read_store,
        help="redis://, rediss://, redis+sentinel://, redis+cluster://, unix:// or memory://; "
        f"without it: a private Redis under --data. The password is read from {PASSWORD} or "
        f"{PASSWORD}_FILE, that of the Sentinels from {SENTINEL_PASSWORD} or its _FILE. "
        f"{CERTIFICATE} and {CERTIFICATE_KEY} name the files of a client certificate.",
    )
    return store(data(command))


def choose_for_new(address: StoreAddress | None, data: Path) -> StoreChoice:
    """The store for a command that creates something.

    A private Redis is created only in a folder that was named: in the default one a gateway has
    not run, so it probably uses another store.
    """
    source = click.get_current_context().get_parameter_source("data")
    return StoreChoice(address, data, creates=True, may_make=source is not ParameterSource.DEFAULT)


def read_store(ctx: click.Context, option: click.Parameter, url: str | None) -> StoreAddress | None:
    """The callback of an option --store."""
    is_typed = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    if not url:
        if url is not None and is_typed:
            raise click.UsageError(
                "--store: found nothing, expected a URL; omit it for a private Redis", ctx
            )
        return None
    if is_typed and has_password(url):
        # Every user of the machine can read a command line.
        raise click.UsageError(f"--store: no password in the URL, set {PASSWORD} instead", ctx)
    try:
        return read_address(url)
    except ValueError as error:
        raise click.UsageError(f"--store: {error}", ctx) from error


def with_managed(
    choice: StoreChoice,
    action: Callable[[ManagedStores], Awaitable[T]],
    webhooks: Callable[[], WebhookSettings] = WebhookSettings,
) -> T:
    """Run an action on the store. Raises UsageError for Invalid, else ClickException."""
    managed = partial(open_managed, webhooks=webhooks)

    async def act() -> T:
        async with open_store(choice) as address, managed(address) as stores:
            # Expiry is decided by the store's time.
            await stores.sync()
            return await action(stores)

    try:
        return asyncio.run(act())
    except Invalid as invalid:
        raise usage_error(invalid) from invalid
    except (Problem, StoreDown, EmbeddedFailed, CorruptRecord) as error:
        raise click.ClickException(str(error)) from error


async def _started(embedded: EmbeddedRedis, data: Path) -> None:
    """Start a private Redis, or find it running. If that takes long, print what is waited for."""
    say = partial(click.echo, f"waiting for the private Redis in {data} …", err=True)
    waiting = asyncio.get_running_loop().call_later(_SILENT_S, say)
    try:
        await asyncio.to_thread(embedded.start)
    finally:
        waiting.cancel()


def _check_is_used(choice: StoreChoice) -> None:
    """Raise EmbeddedFailed if no gateway has used the folder; say so if none uses it now."""
    try:
        check_has_store(choice.data)
    except EmbeddedFailed as error:
        if not choice.creates:
            raise
        if not choice.may_make:
            raise EmbeddedFailed(
                f"{error}. Nothing was created, as no gateway would know it: start `gateway serve` "
                "in this folder first, or give the --store or --data of the gateway"
            ) from error
    if choice.creates and not has_live_server(choice.data):
        click.echo(
            f"note: no gateway is running on the private store in {choice.data.absolute()}; start "
            "one with this --data and without --store, or give the --store of the gateway here",
            err=True,
        )


@asynccontextmanager
async def open_store(choice: StoreChoice) -> AsyncIterator[StoreAddress]:
    """The address of the chosen store; a private Redis runs until exit."""
    if choice.address is None:
        _check_is_used(choice)
        embedded = EmbeddedRedis(choice.data)
        await _started(embedded, choice.data)
        try:
            yield embedded.address
        finally:
            await asyncio.to_thread(embedded.stop)
    elif choice.address.kind == "memory":
        raise click.UsageError(
            "--store: memory:// is inside one gateway, and other commands cannot reach its keys; "
            "use a Redis, or omit --store"
        )
    else:
        yield choice.address
