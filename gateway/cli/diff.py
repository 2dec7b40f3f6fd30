"""`gateway diff`: what differs between two policies, and which keys that affects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from click.core import ParameterSource

from gateway.cli.options import Folder, load_folder
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.domain.patterns import printable
from gateway.domain.policy import Policy
from gateway.domain.policy_files import is_hash
from gateway.manage.policy_changes import Change, change_as_json, compare, listed
from gateway.manage.policy_history import PolicyHistory
from gateway.manage.policy_keys import AffectedKeys, affected_keys
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress


class Trouble(click.ClickException):
    """An error with another exit status than differences have, as of `diff`."""

    exit_code = 2


def _read_version(ctx: click.Context, param: click.Parameter, text: str) -> Path | str:
    """A folder of policy files, or the hash of a policy in the history."""
    if is_hash(text) and not Path(text).is_dir():
        return text
    path = Folder().convert(text, param, ctx)
    if not path.is_dir():
        raise click.BadParameter(f"found '{path}', expected a folder, or a hash of 16 digits")
    return path


@click.command(epilog="Example: gateway diff policies new-policies")
@click.argument("old", metavar="OLD", callback=_read_version)
@click.argument("new", metavar="NEW", callback=_read_version)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@store_options
@click.pass_context
def diff(
    ctx: click.Context,
    old: Path | str,
    new: Path | str,
    as_json: bool,
    store: StoreAddress | None,
    data: Path,
) -> None:
    """Show what differs between two policies in effect, the most important first.

    OLD and NEW are folders of policy files, or hashes of policies in the history (see gateway
    policies history). With --store or --data, the keys that are affected are counted.

    The exit status is 0 without differences, 1 with differences, and 2 if a policy has faults or
    cannot be read.
    """
    choice = StoreChoice(store, data)
    needs_store = isinstance(old, str) or isinstance(new, str)
    keys = None
    with _as_trouble():
        loaded: dict[Path | str, Policy] = {
            each: load_folder(each) for each in (old, new) if isinstance(each, Path)
        }
        if needs_store or _is_given(ctx):
            try:
                before, after, keys = with_managed(
                    choice, lambda stores: _read(stores, old, new, loaded)
                )
            except click.UsageError:
                raise
            except click.ClickException as error:
                if needs_store:
                    raise
                click.echo(f"the affected keys are not known: {error.message}", err=True)
        if keys is None:
            before, after = loaded[old], loaded[new]
    changes = compare(before, after)
    if as_json:
        click.echo(json.dumps(_as_json(before, after, changes, keys), indent=2))
    else:
        _print(before, after, changes, keys)
    ctx.exit(1 if changes else 0)


def _is_given(ctx: click.Context) -> bool:
    sources = (ctx.get_parameter_source(name) for name in ("store", "data"))
    return any(source not in (None, ParameterSource.DEFAULT) for source in sources)


async def _read(
    stores: ManagedStores,
    old: Path | str,
    new: Path | str,
    loaded: Mapping[Path | str, Policy],
) -> tuple[Policy, Policy, AffectedKeys]:
    """Both policies and the affected keys. A version's files are relative to the other's folder."""
    folder = next((each for each in (new, old) if isinstance(each, Path)), Path("policies"))
    history = PolicyHistory(stores.policies, stores.audit, lambda: folder)
    before, after = [
        await history.policy(each) if isinstance(each, str) else loaded[each] for each in (old, new)
    ]
    return before, after, await affected_keys(stores.keys, before, after, stores.clock_us())


@contextmanager
def _as_trouble() -> Iterator[None]:
    """Turn failures into Trouble. Bad usage has its exit status already."""
    try:
        yield
    except click.UsageError:
        raise
    except click.ClickException as error:
        raise Trouble(error.message) from error


def _as_json(
    old: Policy, new: Policy, changes: Sequence[Change], keys: AffectedKeys | None
) -> dict[str, object]:
    counted = None
    if keys is not None:
        rows = [
            {"plan": row.plan, "effect": row.effect, "count": row.count, "ids": row.ids}
            for row in keys.rows
        ]
        counted = {"count": keys.count, "affected": rows}
    return {
        "old": old.hash,
        "new": new.hash,
        "changes": list(map(change_as_json, changes)),
        "keys": counted,
    }


def _print(old: Policy, new: Policy, changes: Sequence[Change], keys: AffectedKeys | None) -> None:
    if not changes:
        click.echo(
            "no difference" if old.hash == new.hash else "the files differ, but not in effect"
        )
    for change in changes:
        click.echo(printable(str(change)))
    if keys is not None:
        for row in keys.rows:
            click.echo(printable(f"keys: {row}"))
        if changes and not keys.rows:
            click.echo(f"keys: none of {keys.count} is affected")
    elif plans := list(dict.fromkeys(plan for change in changes for plan in change.plans)):
        click.echo(f"keys: of plan {listed(plans)}; --store counts those that are affected")
