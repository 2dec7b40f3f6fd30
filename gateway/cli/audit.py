"""`gateway audit`: lists and verifies the audit log: who changed what, and when."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.keyforms import as_table, shown_option
from gateway.cli.store import StoreChoice, store_options, with_managed
from gateway.domain.audit import Entry, Event
from gateway.domain.patterns import printable
from gateway.manage.audit_chain import Verified
from gateway.manage.audit_log import Audit, entry_as_json
from gateway.manage.views import moment
from gateway.stores.managed import ManagedStores
from gateway.stores.redis.address import StoreAddress

_HEAD: Final = ("NUMBER", "TIME", "ACTOR", "ACTION", "SUBJECT", "CHANGE")
#: The fields shown of a subject that was created or removed.
_SUMMARY_FIELDS: Final = ("name", "plan", "limit")
#: Longer changes are cut off; --json shows all of them.
_MOST_CHANGE: Final = 100


@click.command(epilog="Example: gateway audit --action key --count 20")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many of the newest entries.",
)
@click.option("--action", help="Only this action: key.create, or key for all actions on keys.")
@click.option(
    "--subject", help="Only this subject: key:ID, account:NAME, policy:HASH, or only the last part."
)
@click.option("--actor", help="Only by actors whose name or address contains this.")
@click.option("--customers", is_flag=True, help="The log of changes by customers.")
@click.option("--verify", is_flag=True, help="Verify the whole log instead.")
@shown_option
@store_options
@click.pass_context
def audit(
    ctx: click.Context,
    count: int,
    action: str | None,
    subject: str | None,
    actor: str | None,
    customers: bool,
    verify: bool,
    as_json: bool,
    store: StoreAddress | None,
    data: Path,
) -> None:
    """List who changed what and when, the newest last.

    With --verify, the whole log is verified instead. The exit status is 1 if an entry was changed,
    inserted or removed. Store the printed number and hash elsewhere: if a later run shows another
    hash for that number, the whole log was rewritten.
    """
    choice = StoreChoice(store, data)

    def log_of(stores: ManagedStores) -> Audit:
        return Audit(stores.customers if customers else stores.audit)

    if verify:
        found = with_managed(choice, lambda stores: log_of(stores).verify())
        _print_verified(found, as_json)
        ctx.exit(1 if found.faults else 0)

    async def read(stores: ManagedStores) -> list[Entry]:
        log = log_of(stores)
        entries: list[Entry] = []
        before = None
        while len(entries) < count:
            wanted = count - len(entries)
            page = await log.page(before, wanted, action=action, actor=actor, subject=subject)
            entries += page.entries
            before = page.next
            if before is None:
                break
        return entries[::-1]

    entries = with_managed(choice, read)
    if as_json:
        click.echo(json.dumps([entry_as_json(entry) for entry in entries], indent=2))
    else:
        click.echo(as_table(_HEAD, [_row(entry) for entry in entries]))


def _print_verified(found: Verified, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=2))
        return
    for fault in found.faults:
        click.echo(printable(fault), err=True)
    entries = f"{found.count} {'entry' if found.count == 1 else 'entries'}"
    result = "the log is not whole" if found.faults else "the log is whole"
    dropped = f" ({found.dropped} older ones were deleted by age)" if found.dropped else ""
    words = f"{entries}{dropped}, {result}; hash of the last: {found.head_hash}"
    click.echo(printable(words))


def _row(entry: Entry) -> tuple[str, ...]:
    event = entry.event
    words = (moment(event.at_us) or "", event.actor, event.action, event.subject, _change(event))
    return str(entry.number), *words


def _change(event: Event) -> str:
    """The differences, on one line."""
    if event.before is None or event.after is None:
        there = event.after or event.before or {}
        words = ", ".join(f"{name} {there[name]}" for name in _SUMMARY_FIELDS if there.get(name))
    else:
        words = ", ".join(_differences(event.before, event.after))
    return words if len(words) <= _MOST_CHANGE else words[: _MOST_CHANGE - 1] + "…"


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield f"{name}: {_value(old)} → {_value(new)}"


def _value(value: Any) -> str:
    if value in (None, "", [], {}):
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
