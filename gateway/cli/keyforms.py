"""Keys in commands: turns options into the fields of a form, and JSON into text."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gateway.cli import terminal
from gateway.cli.options import Folder, load_folder
from gateway.domain.key_format import is_key_id, looks_like_key
from gateway.domain.patterns import printable
from gateway.domain.policy import Policy
from gateway.manage.audit_log import Actor
from gateway.manage.problems import Fault, Invalid
from gateway.manage.reading import found
from gateway.policies.faults import quoted, suggestion

Command = TypeVar("Command", bound=Callable[..., object])

#: Field -> its option. Fields of repeatable options are plural.
_OPTIONS: Final = {
    **{"name": "--name", "plan": "--plan", "account": "--account", "environment": "--environment"},
    **{"scopes": "--scope", "permissions": "--permission", "ip_ranges": "--ip"},
    **{"expires": "--expires", "limits": "--limit", "services": "--service"},
    **{"overlap": "--overlap", "expires_before": "--expires-before"},
    **{"kind": "--kind", "secrets": "--secret-file", "url": "--url", "events": "--event"},
    **{"form": "--form", "type": "--type", "data": "--content", "id": "--id"},
    **{"from": "--from", "to": "--to", "id_header": "--id-header", "rate": "--rate"},
}
_LIMIT: Final = "one like plan=300/minute,burst=500"

limit_option = click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="Limit override: plan=300/minute,burst=500 or monthly=10000/month or mcp-connections=20; "
    "repeatable.",
)
plan_option = click.option("--plan", help="A plan of the policies; default: the account's plan.")
#: Of commands that change something.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def prefers_json(as_json: bool | None) -> bool:
    """Is JSON wanted, also if neither --json nor --text was given?"""
    return not terminal.is_terminal() if as_json is None else as_json


#: Of commands that only show something.
shown_option = click.option(
    "--json/--text",
    "as_json",
    default=None,
    callback=lambda _ctx, _option, as_json: prefers_json(as_json),
    help="Print JSON, or text for people. Default: text on a terminal, else JSON.",
)


def policies_option(use: str) -> Callable[[Command], Command]:
    """Add --policies to a command, which passes it to `load_policy`. use: what they are for"""
    return click.option(
        "--policies",
        metavar="DIR",
        envvar="GATEWAY_POLICIES",
        type=Folder(path_type=Path),
        help=f"Policies {use}. Default: ./policies, if it exists.",
    )


checking_policies_option = policies_option("to check plan and limits against")

# -- from options ----------------------------------------------------------------------------------


def key_options(command: Command) -> Command:
    """Add the options that describe a key to a command, except --name and --environment."""
    options = (
        plan_option,
        click.option("--account", help="The key's account; default: an account of its own."),
        click.option("--scope", "scopes", multiple=True, help="Repeatable."),
        click.option(
            *("--permission", "permissions"),
            multiple=True,
            metavar="AREA:ACTION",
            help="Repeatable.",
        ),
        click.option(
            *("--ip", "ip_ranges"),
            multiple=True,
            metavar="RANGE",
            help="Address or CIDR range from which the key may be used; repeatable.",
        ),
        click.option("--expires", metavar="DATE|DURATION", help="2026-12-31 (UTC) or 30d."),
        limit_option,
        checking_policies_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def clearing_options(cleared: Mapping[str, object]) -> Callable[[Command], Command]:
    """Add --no-plan, --no-scope and so on; the command receives no_plan, no_scope …

    cleared: the options that can be cleared, without dashes
    """

    def add(command: Command) -> Command:
        for name in reversed(list(cleared)):
            command = click.option(f"--no-{name}", is_flag=True, help=f"Clear --{name}.")(command)
        return command

    return add


def changed_fields(
    options: dict[str, Any], cleared: Mapping[str, tuple[str, object]]
) -> dict[str, object]:
    """The fields to change, from the given options and those of `clearing_options`.

    cleared: option -> its field, and the field's cleared value
    """
    gone = {name for name in cleared if options.pop(f"no_{name.replace('-', '_')}")}
    given = fields_of(options)
    for name in sorted(gone):
        field, nothing = cleared[name]
        if field in given:
            raise click.UsageError(f"--{name} and --no-{name} cannot be combined")
        given[field] = nothing
    if not given:
        raise click.UsageError("no field to change was given")
    return given


def fields_of(options: Mapping[str, Any]) -> dict[str, object]:
    """The fields of a form, from the given options."""
    fields = {name: value for name, value in options.items() if value not in (None, ())}
    if "permissions" in fields:
        fields["permissions"] = _read_permissions(fields["permissions"])
    if "limits" in fields:
        fields["limits"] = _read_limits(fields["limits"])
    return fields


def usage_error(invalid: Invalid) -> click.UsageError:
    """The faults of fields as a usage error that names their options, on one line."""
    return click.UsageError("; ".join(map(_option_words, invalid.faults)))


def read_key_id(ctx: click.Context, _: click.Parameter, text: str | None) -> str | None:
    """The callback of an ID. An invalid value is never printed: it may be a secret."""
    if text is None or is_key_id(text):
        return text
    if looks_like_key(text):
        raise click.UsageError(
            "this is a whole key, which must not be on a command line; use its id, the part after "
            "the environment",
            ctx,
        )
    raise click.UsageError("an ID is 12 letters and digits, as `keys list` shows it", ctx)


def load_policy(folder: Path | None) -> Policy | None:
    """The policy of --policies; else of ./policies, if that folder has one; else None."""
    if folder is None:
        folder = Path("policies")
        if not any(folder.glob("*.yaml")):
            return None
    return load_folder(folder)


def warn_unrequired(policy: Policy | None, given: Mapping[str, Any]) -> None:
    """Print a warning for each given scope and permission that no route or tool requires.

    It may be mistyped, or be meant for a later policy. given: the fields of a form, valid
    """
    if policy is None:
        return
    routes = policy.routes.values()
    scopes = sorted({scope for route in routes for scope in route.scopes})
    for scope in given.get("scopes", ()):
        if scope not in scopes:
            _warn("--scope", scope, scopes, "it is only forwarded to upstreams")
    needed = {route.permission for route in routes if route.permission is not None}
    needed.update(*(route.mcp.permissions for route in routes if route.mcp is not None))
    permissions = sorted(map(":".join, needed))
    for area, actions in given.get("permissions", {}).items():
        for action in actions:
            if (written := f"{area}:{action}") not in permissions:
                _warn("--permission", written, permissions, "it has no effect")


def _warn(option: str, word: str, known: Sequence[str], effect: str) -> None:
    near = suggestion(word, known)
    words = f"warning: {option}: no route requires {quoted(word)}{near}; {effect}"
    click.echo(words, err=True)


def os_actor() -> Actor:
    """The operating-system user that runs the command."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container whose user id has no name
        name = f"uid {os.getuid()}"
    return Actor(name, "cli")


def _option_words(fault: Fault) -> str:
    field = re.split(r"[.\[]", fault.at, maxsplit=1)[0]
    return f"{_OPTIONS.get(field, fault.at)}: found {fault.found}, expected {fault.expected}"


def _read_permissions(texts: Iterable[str]) -> dict[str, list[str]]:
    """AREA:ACTION into area -> actions."""
    permissions: dict[str, list[str]] = {}
    for text in texts:
        area, colon, action = text.partition(":")
        if not colon:
            raise click.UsageError(f"--permission: found {found(text)}, expected AREA:ACTION")
        permissions.setdefault(area, []).append(action)
    return permissions


def _read_limits(texts: Iterable[str]) -> dict[str, str]:
    """NAME=RATE[,burst=N] into limit -> rate."""
    limits: dict[str, str] = {}
    for text in texts:
        name, equals, rate = text.partition("=")
        if not equals:
            raise click.UsageError(f"--limit: found {found(text)}, expected {_LIMIT}")
        if name in limits:
            raise click.UsageError(f"--limit: {found(name)} is given twice")
        limits[name] = rate
    return limits


# -- text for terminals ----------------------------------------------------------------------------


def as_lines(shown: Mapping[str, object]) -> str:
    """One line per field; fields without a value are left out."""
    width = max(map(len, shown)) + 2
    return "\n".join(
        f"{name.replace('_', ' ') + ':':{width}}{printable(_words(value))}"
        for name, value in shown.items()
        if value not in (None, [], {})
    )


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return "; ".join(f"{name} {_words(entry)}" for name, entry in value.items())
    return str(value)


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as needed; control characters in cells never reach the terminal."""
    shown = [head, *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in shown)
    return "\n".join(lines)
