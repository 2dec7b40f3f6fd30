"""`gateway validate` lists the faults of policy files; `gateway schema` prints their schema."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import click

from gateway.cli.options import Folder
from gateway.domain.policy import Policy
from gateway.manage.policy_renames import lost_names
from gateway.policies.faults import Fault, PolicyFaults
from gateway.policies.load import load, read_policy
from gateway.policies.schema import schema as policy_schema


@click.command()
@click.argument("folder", metavar="DIR", type=Folder(path_type=Path))
@click.option(
    "--against",
    metavar="DIR",
    type=Folder(path_type=Path),
    help="The policies before a change: warn of names that they have and DIR has not, as counters "
    "and keys' values would be lost with them.",
)
@click.option("--strict", is_flag=True, help="Fail because of warnings too.")
@click.option("--json", "as_json", is_flag=True, help="Print all as a JSON list on stdout.")
@click.pass_context
def validate(
    ctx: click.Context, folder: Path, against: Path | None, strict: bool, as_json: bool
) -> None:
    """Read the policy files of DIR as serve does, and list all faults, up to a thousand.

    Each fault is one line on stderr: file:line, the path of the value, what was found and what was
    expected. Files without faults may have warnings: what is probably a mistake, such as a limit
    that never acts. The exit status is 0 without faults, 1 with faults, and with --strict also with
    warnings, 2 if DIR is not a folder.

    Example: gateway validate policies
    """
    if not folder.is_dir():
        raise click.BadParameter(f"'{folder}' is not a folder", ctx, param_hint="DIR")
    try:
        policy, warnings = read_policy(folder)
        if against is not None:
            warnings = *warnings, *lost_names(load(against), policy, str(folder))
    except PolicyFaults as exc:
        if as_json:
            _print_json("fault", exc.faults)
        else:
            for fault in exc.faults:
                click.echo(str(fault), err=True)
        ctx.exit(1)
    if as_json:
        _print_json("warning", warnings)
    else:
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
        count = f", {len(warnings)} warning{'' if len(warnings) == 1 else 's'}" if warnings else ""
        click.echo(f"policies: {_summary(policy)} ok{count}")
    ctx.exit(1 if strict and warnings else 0)


def _print_json(severity: str, found: Sequence[Fault]) -> None:
    shown = [{**dataclasses.asdict(each), "severity": severity} for each in found]
    click.echo(json.dumps(shown, indent=2))


def _summary(policy: Policy) -> str:
    counts = {
        "plan": len(policy.plans),
        "route": len(policy.routes),
        "upstream": len(policy.upstreams),
    }
    return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())


@click.command()
@click.option("--tests", "of_tests", is_flag=True, help="That of a test file, see gateway test.")
def schema(of_tests: bool) -> None:
    """Print the JSON Schema (draft-07) of a policy file, for editors and other tools.

    Example: gateway schema > policies/policy.schema.json
    """
    if of_tests:
        # Imported here: it needs the proxy's libraries.
        from gateway.cli.case_schema import case_schema  # noqa: PLC0415

        shown = case_schema()
    else:
        shown = policy_schema()
    click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
