"""`gateway mcp`: calls of tools by route, and the keys that have connections open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from gateway.cli import keyforms
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.domain.policy import Policy
from gateway.domain.usage import WINDOWS
from gateway.manage.limits import Limits
from gateway.manage.mcp import (
    MOST_LISTED,
    SHOWN,
    Connected,
    Connections,
    connected_as_json,
    open_words,
    tool_as_json,
    tool_rows,
    why_not,
)
from gateway.manage.usage_reports import UsageBook, read_span
from gateway.manage.usage_sums import GROUPS, Sum
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

_CONNECTED: Final = ("KEY", "NAME", "ACCOUNT", "PLAN", "OPEN")
_CALLED: Final = ("ROUTE", "TOOL", "CALLS", *map(str.upper, GROUPS), "WHY NOT")

_Tools = list[tuple[str, str, Sum]]


@click.command(epilog="Example: gateway mcp --window 7d")
@click.option(
    "--key",
    "key_id",
    metavar="ID",
    callback=keyforms.read_key_id,
    help="Only the connections of this key.",
)
@click.option("--route", metavar="NAME", help="Only calls of this route's tools.")
@click.option(
    "--count",
    type=click.IntRange(1, MOST_LISTED),
    default=SHOWN,
    show_default=True,
    help="How many keys, those with the most connections.",
)
@click.option(
    "--window",
    type=click.Choice(tuple(WINDOWS)),
    help="How far to look back for calls, if there is no --from.  [default: 24h]",
)
@click.option("--from", "start", metavar="DATE", help="The first day, UTC: 2026-07-01.")
@click.option(
    "--to", "end", metavar="DATE", help="The day after the last one.  [default: tomorrow]"
)
@keyforms.policies_option("that have the limits of connections")
@store_options
@keyforms.shown_option
def mcp(
    key_id: str | None,
    route: str | None,
    count: int,
    window: str | None,
    start: str | None,
    end: str | None,
    policies: Path | None,
    store: StoreAddress | None,
    data: Path,
    as_json: bool,
) -> None:
    """Show the keys with open MCP connections, and calls of tools by route.

    Both are of all gateways on the store. How many connections a key may have open is in the
    policies: without them, only how many it has open is shown, as workers reported it.
    """
    if key_id is not None and route is not None:
        raise click.UsageError("--key and --route: give one of them")
    policy = keyforms.load_policy(policies)

    async def read(stores: ManagedStores) -> tuple[list[Connected], int, _Tools]:
        now_us = stores.clock_us()
        span = read_span(window, start, end, now_us)
        connections = _connections(stores, policy)
        if key_id is not None:
            return [await connections.of_key(key_id)], 1, []
        connected, keys = await connections.most(count)
        book = UsageBook(stores.usage, stores.keys, lambda: now_us)
        tools = tool_rows(await book.of_tools(span))
        return connected, keys, [row for row in tools if route in (None, row[0])]

    connected, keys, tools = with_managed(StoreChoice(store, data), read)
    if as_json:
        shown: dict[str, object] = {"connections": list(map(connected_as_json, connected))}
        if key_id is None:
            shown["tools"] = [tool_as_json(*row) for row in tools]
        click.echo(json.dumps(shown, indent=2))
        return
    click.echo(_connected_text(connected, keys))
    if key_id is None:
        click.echo(f"\n{_tools_text(tools)}")


def _connections(stores: ManagedStores, policy: Policy | None) -> Connections:
    limits = None
    if policy is not None:
        limits = Limits(
            *(stores.keys, stores.counters, stores.audit, lambda: policy, stores.clock_us)
        )
    return Connections(stores.connections, stores.keys, limits)


def _connected_text(connected: list[Connected], keys: int) -> str:
    if not connected:
        return "no key has a connection open"
    rows = [
        (
            one.key_id,
            one.name,
            one.account,
            one.plan,
            open_words(one.limits or ()) or str(one.reported),
        )
        for one in connected
    ]
    more = f"\n{len(connected)} of {keys} keys" if keys > len(connected) else ""
    return keyforms.as_table(_CONNECTED, rows) + more


def _tools_text(tools: _Tools) -> str:
    if not tools:
        return "no tool was called"
    rows = [
        (
            *(route, tool, f"{one.requests:,}"),
            *(f"{calls:,}" for calls in one.groups.values()),
            ", ".join(f"{outcome} {calls:,}" for outcome, calls in why_not(one)) or "-",
        )
        for route, tool, one in tools
    ]
    return keyforms.as_table(_CALLED, rows)
