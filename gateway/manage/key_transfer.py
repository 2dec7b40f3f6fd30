"""Exports the keys and accounts of a store to lines, and imports them into another store.

An import first reads and checks everything: if a line has a fault, or there is a conflict that was
not allowed, nothing is written. Then each record is written as a whole, accounts before keys, with
an entry in the audit log. If it stops half-way, it can be repeated: what is there already is left
as it is. Counters, usage and the times of the last use are not exported.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from gateway.domain.audit import Event
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.policy import Policy
from gateway.domain.ports import AuditStore, KeyChanged, KeyStore, KeyTaken
from gateway.manage import audit_log, key_file
from gateway.manage.audit_log import Actor
from gateway.manage.batches import ask_each
from gateway.manage.problems import Changed, Conflict, Fault, Invalid, Problem
from gateway.manage.views import account_as_json, recorded

#: The most records of a file; they are in memory while they are checked.
MOST_RECORDS: Final = 200_000
#: The most faults that are reported.
MOST_FAULTS: Final = 100

Conflicts = Literal["fail", "skip", "replace"]
Action = Literal["created", "replaced", "unchanged", "skipped"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)


@dataclass(frozen=True, slots=True)
class LineFault:
    """What is wrong with a line. line: from 1"""

    line: int
    text: str


class Faulty(Problem):
    """The file has faults, or conflicts with the store; nothing was imported.

    faults: the first of them, by line; count: of all
    """

    def __init__(self, faults: Sequence[LineFault], count: int) -> None:
        lines = f"{count} {'line has a fault' if count == 1 else 'lines have faults'}"
        super().__init__(f"{lines}, nothing was imported")
        self.faults = tuple(faults)
        self.count = count


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of a file. line: its number, from 1"""

    line: int
    record: KeyRecord | Account

    @property
    def subject(self) -> str:
        """As in the audit log: "key:7h3k9m2p4q6r", "account:acme"."""
        if isinstance(self.record, KeyRecord):
            return f"key:{self.record.id}"
        return f"account:{self.record.name}"

    @property
    def words(self) -> str:
        return self.subject.replace(":", " ", 1)


@dataclass(frozen=True, slots=True)
class Step:
    """What is done with an entry. known: the record that the store has now"""

    entry: Entry
    known: KeyRecord | Account | None
    action: Action


class _Faults:
    """The faults so far; only the first are kept."""

    def __init__(self) -> None:
        self.first: list[LineFault] = []
        self.count = 0

    def add(self, line: int, text: str) -> None:
        self.count += 1
        if len(self.first) < MOST_FAULTS:
            self.first.append(LineFault(line, text))

    def check(self) -> None:
        """Raises Faulty if there are any."""
        if self.count:
            raise Faulty(sorted(self.first, key=lambda fault: fault.line), self.count)


async def export_lines(keys: KeyStore, now_us: int) -> Iterator[str]:
    """The lines of all accounts and keys of a store, by name and by age. Raises StoreDown."""
    accounts, records = await keys.accounts(), await keys.records()

    def lines() -> Iterator[str]:
        yield key_file.write_head(key_file.Head(now_us, len(accounts), len(records)))
        yield from map(key_file.write_account, accounts)
        yield from map(key_file.write_key, records)

    return lines()


def read_entries(lines: Iterable[bytes | None]) -> list[Entry]:
    """The records of a file. Raises Faulty with the faults of all lines.

    lines: without their ends; None: one that is longer than `key_file.MOST_LINE_BYTES`. Empty ones
           are ignored
    """
    faults, found = _Faults(), list[Entry]()
    first_lines: dict[str, int] = {}
    head: key_file.Head | None = None
    for number, content in enumerate(lines, 1):
        if content is not None and number == 1:
            content = content.removeprefix(BOM_UTF8)  # noqa: PLW2901 - editors may write one
        if content is not None and not content.strip():
            continue
        try:
            if content is None:
                expected = f"at most {key_file.MOST_LINE_BYTES} bytes"
                raise Invalid(Fault("line", "a longer one", expected))
            if head is None:
                head = key_file.read_head(content)
                continue
            entry = Entry(number, key_file.read_line(content))
        except Invalid as invalid:
            faults.add(number, str(invalid))
            if head is None:  # it is another file
                break
            continue
        first = first_lines.setdefault(entry.subject, number)
        if first != number:
            faults.add(number, f"{entry.words} is on line {first} already")
        elif len(found) == MOST_RECORDS:
            faults.add(number, f"found more records, expected {MOST_RECORDS} at most: split it")
            break
        else:
            found.append(entry)
    else:
        if head is None:
            faults.add(1, f"found nothing, expected the first line of a {key_file.FORMAT} file")
    faults.check()
    assert head is not None
    _check_counts(head, found)
    return found


def _check_counts(head: key_file.Head, found: Sequence[Entry]) -> None:
    """Raises Faulty if the file was cut off."""
    keys = sum(isinstance(entry.record, KeyRecord) for entry in found)
    for what, expected, count in (
        ("accounts", head.accounts, len(found) - keys),
        ("keys", head.keys, keys),
    ):
        if count != expected:
            text = (
                f"{what}: found {count}, expected the {expected} of the first line: the file is "
                "not complete. If lines were removed on purpose, correct the first one"
            )
            raise Faulty([LineFault(found[-1].line if found else 1, text)], 1)


def decide(
    known: KeyRecord | Account | None, new: KeyRecord | Account, conflicts: Conflicts
) -> Action:
    """What is done with a record that the store has as `known`. Raises Conflict.

    A key that was revoked stays revoked, and no other key takes its id.
    """
    if known is None:
        return "created"
    if known == new:
        return "unchanged"
    if isinstance(known, KeyRecord) and isinstance(new, KeyRecord):
        if known.digest != new.digest:
            raise Conflict("the store has another key with this id: their digests differ")
        if known.status == "revoked" and new.status != "revoked" and conflicts != "fail":
            return "skipped"
    if conflicts == "fail":
        raise Conflict("the store has another record of it; see --conflicts")
    return "skipped" if conflicts == "skip" else "replaced"


class Import:
    """The import of a file into a store."""

    def __init__(self, keys: KeyStore, audit: AuditStore, clock_us: Callable[[], int]) -> None:
        self._keys = keys
        self._audit = audit
        self._clock_us = clock_us

    async def plan(self, entries: Sequence[Entry], conflicts: Conflicts) -> list[Step]:
        """What will be done, accounts first. Raises Faulty; nothing is written."""
        ordered = sorted(entries, key=lambda entry: isinstance(entry.record, KeyRecord))
        known = await ask_each(self._known, ordered)
        faults, steps = _Faults(), list[Step]()
        for entry, there in zip(ordered, known, strict=True):
            try:
                steps.append(Step(entry, there, decide(there, entry.record, conflicts)))
            except Conflict as conflict:
                faults.add(entry.line, f"{entry.words}: {conflict}")
        faults.check()
        return steps

    async def run(self, actor: Actor, steps: Sequence[Step]) -> None:
        """Write the records. Raises Changed if someone else changes one of them meanwhile."""
        for number, step in enumerate(steps):
            if step.action not in ("created", "replaced"):
                continue
            try:
                await self._write(step)
            except (KeyTaken, KeyChanged) as error:
                words = step.entry.words
                raise Changed(
                    f"{words} was changed by someone else meanwhile, after {number} of "
                    f"{len(steps)} records; run the import again"
                ) from error
            await self._note(actor, step)

    async def _known(self, entry: Entry) -> KeyRecord | Account | None:
        if isinstance(entry.record, KeyRecord):
            return await self._keys.get(entry.record.id)
        return await self._keys.account(entry.record.name)

    async def _write(self, step: Step) -> None:
        new, known = step.entry.record, step.known
        if isinstance(new, Account):
            await self._keys.replace_account(known if isinstance(known, Account) else None, new)
        elif isinstance(known, KeyRecord):
            await self._keys.replace(known, new)
        else:
            await self._keys.add(new)

    async def _note(self, actor: Actor, step: Step) -> None:
        kind = step.entry.subject.partition(":")[0]
        event = Event(
            at_us=self._clock_us(),
            actor=str(actor),
            action=f"{kind}.import",
            subject=step.entry.subject,
            before=None if step.known is None else _as_json(step.known),
            after=_as_json(step.entry.record),
        )
        await audit_log.note(self._audit, event)


def counts(steps: Iterable[Step]) -> dict[str, dict[str, int]]:
    """How many accounts and keys of each action: {"keys": {"created": 3, …}, "accounts": …}."""
    found = {kind: dict.fromkeys(ACTIONS, 0) for kind in ("accounts", "keys")}
    for step in steps:
        kind = "keys" if isinstance(step.entry.record, KeyRecord) else "accounts"
        found[kind][step.action] += 1
    return {kind: {str(name): count for name, count in row.items()} for kind, row in found.items()}


def notes(steps: Sequence[Step], policy: Policy | None) -> list[str]:
    """What the user should know of the imported keys, one sentence each.

    policy: that of the gateways on the store; None: unknown
    """
    found = []
    records = [step.entry.record for step in steps if step.action in ("created", "replaced")]
    keys = [record for record in records if isinstance(record, KeyRecord)]
    stay = sum(
        isinstance(step.known, KeyRecord)
        and isinstance(step.entry.record, KeyRecord)
        and step.action == "skipped"
        and step.known.status == "revoked" != step.entry.record.status
        for step in steps
    )
    if stay:
        found.append(f"{_keys(stay)} revoked in this store, which is final, and stay so")
    if policy is None:
        return found
    elsewhere = sum(key.environment != policy.environment for key in keys)
    if elsewhere:
        found.append(
            f"{_keys(elsewhere)} of another environment than the policies' {policy.environment}, "
            "whose gateways refuse them"
        )
    plans = sorted({one.plan for one in records if one.plan and policy.plan(one.plan) is None})
    if plans:
        shown = ", ".join(plans[:10]) + (" …" if len(plans) > 10 else "")
        found.append(f"plans that are not in the policies: {shown}; requests with them get 503")
    return found


def _keys(number: int) -> str:
    return "1 key is" if number == 1 else f"{number} keys are"


def _as_json(record: KeyRecord | Account) -> Mapping[str, object]:
    return recorded(record) if isinstance(record, KeyRecord) else account_as_json(record)
