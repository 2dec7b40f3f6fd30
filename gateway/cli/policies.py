"""`gateway validate` lists the faults of policy files; `gateway schema` prints their schema."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import click

from gateway.cli.options import Folder
from gateway.domain.limits import Limit
from gateway.domain.policy import Policy
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.policies.schema import schema as policy_schema


@click.command()
@click.argument("folder", metavar="DIR", type=Folder(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the faults as a JSON list on stdout.")
@click.pass_context
def validate(ctx: click.Context, folder: Path, as_json: bool) -> None:
    """Read the policy files of DIR as serve does, and list all faults, up to a thousand.

    Each fault is one line on stderr: file:line, the path of the value, what was found and what was
    expected. The exit status is 0 without faults, 1 with faults, 2 if DIR is not a folder.

    Example: gateway validate policies
    """
    if not folder.is_dir():
        raise click.BadParameter(f"'{folder}' is not a folder", ctx, param_hint="DIR")
    try:
        policy = load(folder)
    except PolicyFaults as exc:
        if as_json:
            click.echo(json.dumps([dataclasses.asdict(fault) for fault in exc.faults], indent=2))
        else:
            for fault in exc.faults:
                click.echo(str(fault), err=True)
        ctx.exit(1)
    for name, limit in _open_header_limits(policy):
        click.echo(
            f"warning: route {name}: limit {limit.name} per {limit.per} with auth: none lets "
            "anyone create any number of counters in Redis; use per: ip",
            err=True,
        )
    click.echo("[]" if as_json else f"policies: {_summary(policy)} ok")


def _open_header_limits(policy: Policy) -> Iterator[tuple[str, Limit]]:
    """The limits per header, with their routes, whose values any client can choose."""
    for route in policy.routes.values():
        for limit in route.limits:
            if route.auth == "none" and limit.per.startswith("header:"):
                yield route.name, limit


def _summary(policy: Policy) -> str:
    counts = {
        "plan": len(policy.plans),
        "route": len(policy.routes),
        "upstream": len(policy.upstreams),
    }
    return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())


@click.command()
def schema() -> None:
    """Print the JSON Schema (draft-07) of a policy file, for editors and other tools.

    Example: gateway schema > policies/policy.schema.json
    """
    click.echo(json.dumps(policy_schema(), indent=2, ensure_ascii=False))
