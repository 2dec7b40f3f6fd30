"""`gateway init`: writes a first policy folder for one's own API."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

import click

from gateway.cli.options import Folder
from gateway.cli.shipped import find_policies
from gateway.domain.patterns import printable
from gateway.domain.policy import Policy
from gateway.policies.documents import policy_files
from gateway.policies.faults import PolicyFaults
from gateway.policies.fields import read_server
from gateway.policies.load import load
from gateway.policies.openapi import Document, Unusable, read_openapi
from gateway.policies.starter import FILES, PLACEHOLDER, Starter, build_starter


def _read_upstream(_ctx: click.Context, _: click.Parameter, text: str | None) -> str | None:
    if text is not None:
        try:
            read_server(text)
        except ValueError as error:
            raise click.BadParameter(f"found '{printable(text)}', expected {error}") from error
    return text


@click.command()
@click.argument("folder", metavar="[DIR]", type=Folder(path_type=Path), default="policies")
@click.option(
    "--upstream",
    metavar="URL",
    callback=_read_upstream,
    help=f"A server of your API. Default: {PLACEHOLDER}, a placeholder to edit.",
)
@click.option(
    "--openapi",
    "openapi",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Make a route of each operation of this OpenAPI 3 or Swagger 2 document, YAML or JSON. "
    "Default: one route for all requests.",
)
def init(folder: Path, upstream: str | None, openapi: Path | None) -> None:
    """Write a first policy folder for your own API, by default `policies`.

    The files have all settings, with comments. Existing files are never changed: DIR must have no
    policies yet. What is written passes `gateway validate`.

    Of an OpenAPI document, routes need a key unless an operation has `security: []`.

    Example: gateway init --upstream http://127.0.0.1:9000
    """
    _check_unused(folder)
    try:
        document = None if openapi is None else read_openapi(openapi)
        starter = build_starter(find_policies(), upstream or PLACEHOLDER, document)
        policy = _validated(starter)
    except Unusable as error:
        raise click.ClickException(f"{openapi}: {printable(str(error))}") from error
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    _write(folder, starter)
    click.echo(_describe(folder, upstream, document, starter, policy))


def _check_unused(folder: Path) -> None:
    """Raise ClickException if the folder has policies, or one of the files, or is none."""
    try:
        found = policy_files(folder) if folder.exists() else []
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror}, expected a folder") from error
    found += [folder / name for name in FILES if (folder / name).exists()]
    if found:
        raise click.ClickException(
            f"found {found[0]}, expected a folder without policies: nothing is overwritten, so "
            "name another DIR or move it away"
        )


def _validated(starter: Starter) -> Policy:
    """The policy of the files, as `validate` reads it. Raises Unusable."""
    with tempfile.TemporaryDirectory(prefix="gateway-init-") as name:
        for file, text in starter.files.items():
            (Path(name) / file).write_text(text, "utf-8")
        try:
            return load(Path(name))
        except PolicyFaults as faults:
            fault = faults.faults[0]
            raise Unusable(
                f"its paths cannot be written as routes: {fault.path}: found {fault.found}, "
                f"expected {fault.expected}"
            ) from faults


def _write(folder: Path, starter: Starter) -> None:
    """Write new files only; after an error, none of them stays."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in starter.files.items():
            with open(folder / name, "x", encoding="utf-8") as file:
                written.append(folder / name)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise click.ClickException(f"cannot write {folder}: {error.strerror}") from error


def _describe(
    folder: Path,
    upstream: str | None,
    document: Document | None,
    starter: Starter,
    policy: Policy,
) -> str:
    """What was written, and what to do next."""
    routes = "1 route" if starter.routes == 1 else f"{starter.routes:,} routes"
    lines = [f"wrote {folder}: {', '.join(starter.files)}; {routes}"]
    if starter.skipped:
        paths = "1 path has" if starter.skipped == 1 else f"{starter.skipped:,} paths have"
        lines.append(f"{paths} no route; the end of routes.yaml says why")
    public = sum(route.auth == "none" for route in policy.routes.values())
    if public:
        need = "needs" if public == 1 else "need"
        lines.append(f"{public:,} of the routes {need} no key, as the document says")
    name = shlex.quote(str(folder))
    plan = next(iter(policy.plans))
    lines += ["", "Next:"]
    if upstream is None:
        server = "" if document is None else printable(document.server[:200])
        named = f"; the document names {server}" if server else ""
        lines.append(f"  edit {name}/upstreams.yaml: {PLACEHOLDER} is a placeholder{named}")
    lines += [
        f"  gateway validate {name}",
        f"  gateway serve --policies {name}",
        f"  gateway keys create --policies {name} --name first --plan {plan}"
        "    # in another terminal",
    ]
    return "\n".join(lines)
