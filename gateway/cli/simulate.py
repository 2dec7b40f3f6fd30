"""`gateway simulate`: decides the lines of an access log again, at their times, under policies.

No request is sent and no keys are read: a line has all that is needed. The log is read as a
stream; memory grows with the number of clients, not of lines.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click

from gateway.cli.options import Folder
from gateway.cli.replay import Result, open_replay, replay_lines
from gateway.domain.ports import StoreDown
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.stores.redis.address import read_address

_OFFENDERS: Final = 10


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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each line.")
@click.argument(
    "logs",
    metavar="LOG...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.pass_context
def simulate(
    ctx: click.Context, folder: Path, store_url: str, as_json: bool, logs: tuple[str, ...]
) -> None:
    """Replay access logs against policies: which keys would have been limited, by what, when.

    LOG is a file of JSON lines as the gateway writes them, or - for standard input. Each line is
    checked at its `time`, in the order of reading, for its `key_id`, `account` and `plan`, at its
    `cost` (or the route's, if it has none). The replay does not know requests that are in no LOG,
    nor per-key limit overrides. A limit per header counts all clients together, because the log has
    no headers. A rotated key counts apart from its successor. Concurrency limits are left out: a
    log has requests in the order in which they ended, and none that are still in progress.

    Requests that the gateway refused before checking limits (`decision` is "refused": 400, 401,
    403, 404, 413 and so on) are checked at cost 0, or skipped if they have no key or route. Also
    skipped are requests that were limited or failed before their key was known, and the gateway's
    own paths, such as /health. Other limited and failed requests count in full, since the limits
    may differ.

    In the table, ADMITTED requests passed every limit, LIMITED ones were refused by this limit, and
    BY OTHERS only by other limits. A shadow limit refuses nothing: two columns show what it would
    have limited.

    A line that cannot be checked is reported with its file and line number, and the exit status is
    1. With --json, its output is {"allowed": false, "error": ...}.

    Example: gateway simulate --policies policies access.log
    """
    try:
        policy = load(folder)
    except PolicyFaults as faults:
        for fault in faults.faults:
            click.echo(str(fault), err=True)
        ctx.exit(1)
    try:
        address = read_address(store_url)
        if address.kind == "cluster":
            raise ValueError("found a cluster, expected one server; use a separate redis://")
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param_hint="--store") from error
    summary = Summary()
    try:
        with open_replay(address) as replay:
            for results in replay_lines(policy, replay, _read(logs)):
                for result in results:
                    summary.add(result)
                    if result.is_reported:
                        click.echo(f"{result.place}: {result.error}", err=True)
                    if as_json:
                        click.echo(json.dumps(result.as_json()))
    except BrokenPipeError:  # standard output was closed, as by `| head`
        raise
    except (StoreDown, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not as_json:
        click.echo("\n".join(summary.text()))
    if summary.reported:
        ctx.exit(1)


def _read(logs: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Each line with its place, such as "access.log:17"."""
    for log in logs:
        with click.open_file(log, "rb") as file:
            for number, raw in enumerate(file, 1):
                yield f"{log}:{number}", raw


@dataclass(slots=True)
class _Row:
    """The counts for one limit of one plan. first_us, last_us: when it would have limited"""

    decided: int = 0
    admitted: int = 0
    limited: int = 0
    by_others: int = 0
    first_us: int = 0
    last_us: int = 0


@dataclass(slots=True)
class Summary:
    """The summary of a replay, for a terminal."""

    lines_read: int = 0
    skipped: int = 0
    reported: int = 0
    rows: dict[tuple[str, str], _Row] = field(default_factory=dict)
    #: How often each key would have been limited.
    offenders: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        self.lines_read += 1
        self.reported += result.is_reported
        line, check, decision = result.line, result.check, result.decision
        if line is None or check is None or decision is None or not check.cost:
            self.skipped += not result.is_reported
            return
        if not decision.allowed:
            self.offenders[line.key_id or line.client_ip] += 1
        for index, limit in enumerate(check.limits):
            name = f"{limit.name} (shadow)" if limit.shadow else limit.name
            row = self.rows.setdefault((line.plan or "-", name), _Row())
            row.decided += 1
            row.admitted += decision.allowed
            if decision.refusing >> index & 1:
                row.limited += 1
                row.first_us = min(row.first_us or line.time_us, line.time_us)
                row.last_us = max(row.last_us, line.time_us)
            elif not decision.allowed:
                row.by_others += 1

    def text(self) -> Iterator[str]:
        """Lines for a terminal."""
        counts = ("DECIDED", "ADMITTED", "LIMITED", "BY OTHERS")
        table = [("PLAN", "LIMIT", *counts, "FIRST LIMITED", "LAST LIMITED")]
        table += [
            (
                *(plan, limit, str(row.decided)),
                *(str(row.admitted), str(row.limited), str(row.by_others)),
                *(_moment(row.first_us), _moment(row.last_us)),
            )
            for (plan, limit), row in sorted(self.rows.items())
        ]
        yield from _aligned(table)
        if self.offenders:
            yield ""
            most = self.offenders.most_common(_OFFENDERS)
            yield from _aligned([("KEY", "LIMITED"), *((key, str(times)) for key, times in most)])
        yield ""
        yield (
            f"{self.lines_read} lines read, {self.skipped} of them cost nothing, "
            f"{self.reported} could not be decided"
        )


def _aligned(table: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _moment(time_us: int) -> str:
    if not time_us:
        return "-"
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
