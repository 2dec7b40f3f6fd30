"""`gateway simulate`: decides the requests of access logs again, at their times, under policies.

No request is sent and no keys are read: a line has all that is needed. The log is read as a
stream; memory grows with the number of clients, not of lines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from gateway.cli.log_files import read_logs
from gateway.cli.log_formats import NAMES, LogFormat, read_fields, template_reader
from gateway.cli.options import Folder
from gateway.cli.replay import Result, open_replay, replay_lines
from gateway.cli.summary import MOST_FAULTS, Summary
from gateway.domain.access_log import FIELDS, UnknownField
from gateway.domain.policy import Policy
from gateway.domain.ports import StoreDown
from gateway.policies.access_log import FORMATS
from gateway.policies.faults import PolicyFaults, one_of, quoted, suggestion
from gateway.policies.load import load
from gateway.stores.redis.address import StoreAddress, read_address


@click.command()
@click.option(
    "--policies",
    "folder",
    metavar="DIR",
    required=True,
    type=Folder(path_type=Path),
    help="The policy files to check against.",
)
@click.option(
    "--store",
    "store_url",
    metavar="URL",
    default="memory://",
    show_default=True,
    # With None it would read GATEWAY_STORE, and a replay must not use a live store by accident.
    envvar=[],
    help="Where to count. With redis:// the gateway's own script counts, under names that are "
    "removed afterwards; a cluster is not supported. GATEWAY_STORE is ignored here; "
    "GATEWAY_STORE_PASSWORD is used.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(NAMES),
    default="auto",
    show_default=True,
    help="The format of the logs. gateway: the gateway's own; template: as access_log.format of "
    "the policies, or --template; combined: nginx, Apache; envoy: Envoy's default, and Istio's; "
    "envoy-json: Istio, Envoy Gateway; json: see --field. auto: by each log's first line that can "
    "be read.",
)
@click.option(
    "--field",
    "field_texts",
    metavar="NAME=PATH",
    multiple=True,
    help="Where JSON lines have a field: path=request.uri. NAME is time, method, path, request "
    "(GET /x HTTP/1.1, in place of method and path), status, client_ip, key_id (or key), account, "
    "plan, cost, duration_ms or host. Repeatable; implies --format json.",
)
@click.option(
    "--template",
    metavar="TEXT",
    envvar=[],
    help="The template by which the gateway wrote the logs; implies --format template.",
)
@click.option(
    "--plan",
    metavar="PLAN",
    envvar=[],
    help="The plan of lines that name none, as in logs of other servers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each line.")
@click.option(
    "--json-summary", is_flag=True, envvar=[], help="Print the summary as one JSON object."
)
@click.argument(
    "logs",
    metavar="LOG...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.pass_context
def simulate(
    ctx: click.Context,
    folder: Path,
    store_url: str,
    format_name: str,
    field_texts: Sequence[str],
    template: str | None,
    plan: str | None,
    as_json: bool,
    json_summary: bool,
    logs: tuple[str, ...],
) -> None:
    """Replay access logs against policies: which requests would be answered otherwise, and why.

    LOG is a log of the gateway or of another server, plain or gzip, or - for standard input. Its
    lines are in the order of time, and those of several logs are merged by it. Each request is
    decided at its time, for its key, account and plan. The replay does not know requests that are
    in no LOG, the scopes of keys, nor per-key limit overrides. A limit per header counts all
    clients together, because logs have no headers. A rotated key counts apart from its successor.
    Concurrency limits are left out: a log has requests in the order in which they ended, and none
    that are still in progress.

    Logs of other servers have no keys and no plans: a client is known by its user name or else its
    address, and --plan names the plan of all.

    In the table, ADMITTED requests passed every limit, LIMITED ones were refused by this limit, and
    BY OTHERS only by other limits. A shadow limit refuses nothing: two columns show what it would
    have limited. Requests that are refused for another reason than limits cost nothing, except
    failed authentications, which count per address.

    Where lines have a status, the answers of then and now are compared.

    A line that cannot be read or decided is counted, and the first ones are printed on stderr with
    their place. The exit status is then 1. With --json, its output is {"allowed": false, "error":
    ...}.

    Example: gateway simulate --policies policies --format combined --plan free access.log.gz
    """
    if as_json and json_summary:
        raise click.UsageError("--json and --json-summary cannot be combined", ctx)
    try:
        policy = load(folder)
    except PolicyFaults as faults:
        for fault in faults.faults:
            click.echo(str(fault), err=True)
        ctx.exit(1)
    address = _read_store(ctx, store_url)
    log_format = _read_format(ctx, format_name, field_texts, template, policy)
    plan = _read_plan(ctx, plan, policy)
    summary = Summary(by_host=policy.hosts is not None)
    try:
        with open_replay(address) as replay:
            for results in replay_lines(policy, replay, read_logs(logs, log_format), plan):
                _add(summary, results, as_json)
    except BrokenPipeError:  # standard output was closed, as by `| head`
        raise
    except (StoreDown, OSError) as error:
        raise click.ClickException(str(error)) from error
    if summary.undecided > MOST_FAULTS:
        more = summary.undecided - MOST_FAULTS
        click.echo(f"{more} more lines could not be read or decided", err=True)
    if json_summary:
        click.echo(json.dumps(summary.as_json(), indent=2))
    elif not as_json:
        click.echo("\n".join(summary.text()))
    if summary.undecided:
        ctx.exit(1)


def _add(summary: Summary, results: Sequence[Result], as_json: bool) -> None:
    """Count the results, and print the first faults and, as JSON, each result."""
    for result in results:
        summary.add(result)
        if result.fault and summary.undecided <= MOST_FAULTS:
            click.echo(f"{result.place}: {result.fault}", err=True)
        if as_json:
            click.echo(json.dumps(result.as_json()))


def _read_store(ctx: click.Context, url: str) -> StoreAddress:
    try:
        address = read_address(url)
        if address.kind == "cluster":
            raise ValueError("found a cluster, expected one server; use a separate redis://")
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param_hint="--store") from error
    return address


def _read_format(
    ctx: click.Context,
    name: str,
    field_texts: Sequence[str],
    template: str | None,
    policy: Policy,
) -> LogFormat:
    if template is not None or name == "template":
        return _read_template(ctx, name, template, policy)
    if field_texts and name not in ("auto", "json"):
        raise click.UsageError(f"--field: found --format {name}, expected --format json", ctx)
    try:
        fields = read_fields(field_texts)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param_hint="--field") from error
    return LogFormat("json" if field_texts else name, fields, policy.trusted_proxies)


def _read_template(
    ctx: click.Context, name: str, template: str | None, policy: Policy
) -> LogFormat:
    if name not in ("auto", "template"):
        raise click.UsageError(f"--template: found --format {name}, expected none", ctx)
    if template is None:
        template = policy.access_log.format
        if template in FORMATS:
            raise click.UsageError(
                f"--format template: access_log.format is {template} in the policies; expected the "
                "template of the logs, with --template",
                ctx,
            )
    try:
        template_reader(template)
    except UnknownField as error:
        hint = suggestion(error.name, FIELDS)
        words = f"found the field {quoted(error.name)}, expected {one_of(sorted(FIELDS))}{hint}"
        raise click.BadParameter(words, ctx, param_hint="--template") from error
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param_hint="--template") from error
    return LogFormat("template", trusted=policy.trusted_proxies, template=template)


def _read_plan(ctx: click.Context, name: str | None, policy: Policy) -> str | None:
    """The plan of lines that name none; the policies' only one if it is not given."""
    if name is None:
        return next(iter(policy.plans)) if len(policy.plans) == 1 else None
    if name not in policy.plans:
        plans = ", ".join(policy.plans)
        raise click.BadParameter(f"found '{name}', expected one of {plans}", ctx, None, "--plan")
    return name
