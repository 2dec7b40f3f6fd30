"""What the commands of webhooks share: their stores, ids, and where secrets are read from."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from gateway.cli import keyforms
from gateway.cli.keyforms import usage_error
from gateway.cli.store import StoreChoice, with_managed
from gateway.domain.policy import Policy
from gateway.domain.webhooks.deliveries import Page, is_id
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.manage.deliveries import FILTER_FIELDS, MOST_PAGE, read_filter
from gateway.manage.problems import Invalid
from gateway.manage.reading import read_moment_us
from gateway.manage.webhooks import Webhooks, build_webhooks
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import secret_from_env
from gateway.stores.redis.embedded import EmbeddedFailed, check_has_store
from gateway.webhooks.master import Master, MasterFault, read_master
from gateway.webhooks.sealing import Sealer

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., object])

#: The variable with a provider's secret; with _FILE appended, that of --secret-file.
_VARIABLE: Final = "GATEWAY_PROVIDER_SECRET"
#: The most bytes of a file with secrets.
_MOST_SECRETS: Final = 4_096

Action = Callable[[Webhooks], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class Key:
    """The webhook key of a command that makes secrets or keeps them sealed."""

    master: Master

    async def check(self, stores: ManagedStores) -> None:
        """Raises ClickException: the store's watches use another key."""
        assert stores.webhooks is not None
        if not await stores.webhooks.resources.has_mark(self.master.mark):
            raise click.ClickException(
                f"{self.master.source}: this is not the webhook key of the gateways on this store; "
                "give the --data folder of the gateway, or its GATEWAY_WEBHOOK_KEY"
            )


#: Of what queues deliveries: they go by the couriers' settings.
delivering_policies_option = keyforms.policies_option("whose webhooks.budget and keep hold")


def with_webhooks(
    choice: StoreChoice,
    action: Action[T],
    *,
    makes_secrets: bool = False,
    policy: Policy | None = None,
) -> T:
    """Run an action on the webhooks of the store; errors as of `with_managed`.

    makes_secrets: it needs the webhook key, which is made where there is none yet
    policy:        whose settings hold; None: the default ones
    """
    settings = WebhookSettings() if policy is None else policy.webhooks
    if makes_secrets and choice.address is None and not choice.may_make:
        # No key is made in a folder without a store.
        _check_folder(choice.data)
    key = _read_key(choice) if makes_secrets else None

    async def act(stores: ManagedStores) -> T:
        assert stores.webhooks is not None, "commands use no memory://"
        if key is not None:
            await key.check(stores)
        master = b"" if key is None else key.master.key
        sealer = _Unsealed() if key is None else Sealer(master)
        return await action(
            build_webhooks(
                *(stores.webhooks, stores.audit, master, sealer, stores.clock_us), lambda: settings
            )
        )

    return with_managed(choice, act, lambda: settings)


def _check_folder(data: Path) -> None:
    """Raises ClickException: there is no private store in it."""
    try:
        check_has_store(data)
    except EmbeddedFailed as error:
        raise click.ClickException(str(error)) from error


def _read_key(choice: StoreChoice) -> Key:
    try:
        return Key(read_master(os.environ, choice.data))
    except MasterFault as fault:
        raise click.ClickException(str(fault)) from fault


class _Unsealed:
    """Of commands that keep no secret."""

    mark = ""

    def seal(self, _integration: str, _secrets: Sequence[str]) -> str:
        raise AssertionError("a command without the webhook key keeps a secret")


async def account_of(webhooks: Webhooks, integration: str) -> tuple[str, str]:
    """The account of an integration, and its id. Raises NotThere."""
    its: Integration = await webhooks.integrations.get(integration)
    return its.account, its.id


def read_id(ctx: click.Context, param: click.Parameter, text: str) -> str:
    """The callback of an id. An invalid one is never printed: it may be a secret."""
    if is_id(text) is None:
        name = (param.name or "id").upper()
        raise click.UsageError(f"{name}: expected an id, as `{ctx.command.name}` shows it", ctx)
    return text


integration_argument = click.argument("integration", callback=read_id)
watch_argument = click.argument("watch", callback=read_id)


def secret_options(command: Command) -> Command:
    """Add --secret-file, for `read_secrets`. Everyone on the machine can read a command line."""
    return click.option(
        "--secret-file",
        metavar="FILE",
        envvar=f"{_VARIABLE}_FILE",
        type=click.Path(dir_okay=False, allow_dash=True),
        help="File with the provider's secrets, one in a line, up to four; - reads them from "
        f"stdin. One may also be in the variable {_VARIABLE}.",
    )(command)


def read_secrets(file: str | None, environ: Mapping[str, str] = os.environ) -> dict[str, list[str]]:
    """The field `secrets`, if secrets are given. Raises UsageError, without a secret in it."""
    try:
        if file == "-":
            text = sys.stdin.read(_MOST_SECRETS)
        else:
            given = {**environ, **({f"{_VARIABLE}_FILE": file} if file else {})}
            found = secret_from_env(_VARIABLE, given)
            if found is None and not file:
                return {}
            text = found or ""
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise click.UsageError(f"--secret-file: {error}") from error
    return {"secrets": [line.strip() for line in text.splitlines() if line.strip()]}


def given_fields(**options: Any) -> dict[str, object]:
    """The fields of the options that were given."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if value not in (None, ())
    }


async def paged(
    read: Callable[[int, int], Awaitable[Page[T]]], count: int, before_us: int
) -> list[T]:
    """So many entries of a list, of as many pages as it takes.

    read: a page of so many entries at most, before then
    """
    found: list[T] = []
    while True:
        page = await read(count - len(found), before_us)
        found += page
        if len(found) >= count or not page.next_us:
            return found
        before_us = page.next_us


# -- events and deliveries -------------------------------------------------------------------------


def read_time(_ctx: click.Context, param: click.Parameter, text: str | None) -> int:
    """The callback of a time; 0: none is given."""
    try:
        return 0 if text is None else read_moment_us(param.opts[0], text)
    except Invalid as invalid:
        raise usage_error(invalid) from invalid


def _read_delivery_id(ctx: click.Context, param: click.Parameter, text: str) -> str:
    for part in text.split(":"):
        read_id(ctx, param, part)
    return text


event_argument = click.argument("event", callback=read_id)
delivery_argument = click.argument("delivery", callback=_read_delivery_id)
count_option = click.option(
    "--count",
    type=click.IntRange(1, MOST_PAGE),
    default=50,
    show_default=True,
    help="At most this many.",
)
before_option = click.option(
    "--before",
    "before_us",
    metavar="TIME",
    callback=read_time,
    help="Only those before 2026-12-31T12:00:00Z.",
)


def filter_options(command: Command) -> Command:
    """Add --type, --from and --to; the command gets them as `wanted: Filter`."""

    @wraps(command)
    def filtered(**options: Any) -> object:
        given = {name: options.pop(f"wanted_{name}") for name in FILTER_FIELDS}
        try:
            options["wanted"] = read_filter(given_fields(**given))
        except Invalid as invalid:
            raise usage_error(invalid) from invalid
        return command(**options)

    helps = {
        "type": "Only of events of this type, such as pull_request.merged, or of all of "
        "pull_request.*.",
        "from": "Only from then on: 2026-12-31T12:00:00Z, or 2026-12-31 in UTC.",
        "to": "Only before then.",
    }
    options: Callable[..., object] = filtered
    for name, words in reversed(helps.items()):
        metavar = "TYPE" if name == "type" else "TIME"
        options = click.option(f"--{name}", f"wanted_{name}", metavar=metavar, help=words)(options)
    return cast(Command, options)
