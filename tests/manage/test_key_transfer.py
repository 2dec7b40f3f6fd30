"""Exporting keys and accounts, and importing them into another store."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.keys import Account, KeyRecord
from gateway.domain.ports import KeyTaken
from gateway.manage import key_file, key_transfer
from gateway.manage.audit_log import Actor
from gateway.manage.key_file import Head
from gateway.manage.key_transfer import (
    Conflicts,
    Faulty,
    Import,
    Step,
    counts,
    decide,
    export_lines,
    notes,
    read_entries,
)
from gateway.manage.problems import Changed, Conflict
from gateway.policies.load import load
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.keys.memory import MemoryKeyStore
from tests.suites.keys import FULL, NOW, nth_id, plain_key

ANNA = Actor("anna", "cli")
POLICY = load(Path(__file__).parents[2] / "policies")
ACME = Account("acme", ("edr",), "pro", status="suspended")


class Target:
    """A store in memory that files are imported into."""

    def __init__(self) -> None:
        self.keys, self.audit = MemoryKeyStore(), MemoryAuditStore()
        self.importing = Import(self.keys, self.audit, lambda: NOW)

    async def take(self, lines: list[str], conflicts: Conflicts = "fail") -> list[Step]:
        entries = read_entries([line.encode() for line in lines])
        steps = await self.importing.plan(entries, conflicts)
        await self.importing.run(ANNA, steps)
        return steps

    async def log(self) -> list[tuple[str, str]]:
        entries = (await self.audit.entries())[::-1]
        return [(entry.event.action, entry.event.subject) for entry in entries]


@pytest.fixture
def target() -> Target:
    return Target()


def lines_of(*records: KeyRecord | Account) -> list[str]:
    """A file with these records."""
    accounts = [one for one in records if isinstance(one, Account)]
    head = key_file.write_head(Head(NOW, len(accounts), len(records) - len(accounts)))
    written = [
        key_file.write_account(one) if isinstance(one, Account) else key_file.write_key(one)
        for one in records
    ]
    return [head, *written]


def fault_lines(lines: list[str]) -> list[tuple[int, str]]:
    with pytest.raises(Faulty) as caught:
        read_entries([line.encode() for line in lines])
    return [(fault.line, fault.text) for fault in caught.value.faults]


async def test_a_store_is_copied(target: Target) -> None:
    """Everything is in the other store, with entries in its audit log; a second time nothing."""
    source = MemoryKeyStore()
    for record in (FULL, plain_key(nth_id(1), account="acme")):
        await source.add(record)
    for account in (ACME, Account("zeta")):
        await source.put_account(account)
    lines = list(await export_lines(source, NOW))
    steps = await target.take(lines)
    assert await target.keys.records() == await source.records()
    assert await target.keys.accounts() == await source.accounts()
    assert {step.action for step in steps} == {"created"}
    assert await target.log() == [
        *(("account.import", "account:acme"), ("account.import", "account:zeta")),
        *(("key.import", f"key:{nth_id(1)}"), ("key.import", f"key:{FULL.id}")),
    ]
    assert {step.action for step in await target.take(lines)} == {"unchanged"}
    assert len(await target.log()) == 4


def test_all_faults_have_their_line() -> None:
    """Every line is checked; a record that is there twice is a fault."""
    key = key_file.write_key(FULL)
    lines = [*lines_of(FULL), "", "{}", key.replace("acme", "a:b"), key]
    found = fault_lines(lines)
    assert [line for line, _ in found] == [4, 5, 6]
    assert found[2][1] == f"key {FULL.id} is on line 2 already"


def test_a_file_that_an_editor_has_saved() -> None:
    """A byte order mark at the begin of the file is ignored, and nowhere else."""
    lines = [line.encode() for line in lines_of(FULL)]
    assert read_entries([BOM_UTF8 + lines[0], lines[1]]) == read_entries(lines)
    with pytest.raises(Faulty):
        read_entries([lines[0], BOM_UTF8 + lines[1]])


def test_another_file_has_one_fault() -> None:
    """Its lines would all be wrong."""
    assert [line for line, _ in fault_lines(["[1]", "{}", "{}"])] == [1]
    assert fault_lines([])[0][1].startswith("found nothing, expected the first line")


def test_a_file_that_was_cut_off() -> None:
    """Records that the first line counts are missing: at the end, or in the middle."""
    lines = lines_of(ACME, FULL, plain_key(nth_id(1)))
    assert "keys: found 1, expected the 2 of the first line" in fault_lines(lines[:-1])[0][1]
    assert "accounts: found 0" in fault_lines([lines[0], *lines[2:]])[0][1]
    assert fault_lines(lines[:1])[0][0] == 1


def test_a_line_that_is_too_long() -> None:
    """It is a fault of its line; the others are read."""
    lines = [line.encode() for line in lines_of(FULL)]
    with pytest.raises(Faulty) as caught:
        read_entries([*lines, None, b"{}"])
    assert [fault.line for fault in caught.value.faults] == [3, 4]
    assert "at most 262144 bytes" in caught.value.faults[0].text


def test_many_faults_and_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first faults are kept, all are counted; the number of records is bounded."""
    with pytest.raises(Faulty, match="1000 lines have faults, nothing was imported") as caught:
        read_entries([lines_of()[0].encode(), *[b"{}"] * 1_000])
    assert len(caught.value.faults) == key_transfer.MOST_FAULTS
    monkeypatch.setattr(key_transfer, "MOST_RECORDS", 2)
    records = [plain_key(nth_id(number)) for number in range(4)]
    assert fault_lines(lines_of(*records)) == [
        (4, "found more records, expected 2 at most: split it")
    ]


OTHER = replace(FULL, name="other")
REVOKED = replace(FULL, status="revoked")


@pytest.mark.parametrize(
    ("known", "new", "fail", "skip", "replaced"),
    [
        (None, FULL, "created", "created", "created"),
        (FULL, FULL, "unchanged", "unchanged", "unchanged"),
        (OTHER, FULL, "another record", "skipped", "replaced"),
        (replace(FULL, digest=bytes(32)), FULL, *["their digests differ"] * 3),
        (REVOKED, FULL, "another record", "skipped", "skipped"),
        (FULL, REVOKED, "another record", "skipped", "replaced"),
        (replace(REVOKED, name="other"), REVOKED, "another record", "skipped", "replaced"),
        (ACME, replace(ACME, status="valid"), "another record", "skipped", "replaced"),
    ],
)
def test_conflicts(
    known: KeyRecord | Account | None,
    new: KeyRecord | Account,
    fail: str,
    skip: str,
    replaced: str,
) -> None:
    """What is done by --conflicts; a revoked key stays so, and no id gets another key."""
    assert fail in outcome(known, new, "fail")
    assert skip in outcome(known, new, "skip")
    assert replaced in outcome(known, new, "replace")


def outcome(
    known: KeyRecord | Account | None, new: KeyRecord | Account, conflicts: Conflicts
) -> str:
    """The action, or the text of the conflict."""
    try:
        return decide(known, new, conflicts)
    except Conflict as conflict:
        return str(conflict)


async def test_conflicts_are_found_before_anything_is_written(target: Target) -> None:
    """All of them are reported with their lines."""
    await target.keys.add(OTHER)
    lines = lines_of(ACME, plain_key(nth_id(1)), FULL)
    with pytest.raises(Faulty, match="1 line has a fault, nothing was imported") as caught:
        await target.take(lines)
    (fault,) = caught.value.faults
    assert (fault.line, fault.text.partition(":")[0]) == (4, f"key {FULL.id}")
    assert await target.keys.records() == [OTHER]
    assert await target.keys.accounts() == await target.log() == []
    found = counts(await target.take(lines, "skip"))
    assert found["keys"] == {"created": 1, "replaced": 0, "unchanged": 0, "skipped": 1}
    assert await target.keys.get(FULL.id) == OTHER
    await target.take(lines, "replace")
    assert await target.keys.get(FULL.id) == FULL


async def test_a_race(target: Target) -> None:
    """A key that someone else creates meanwhile stops the import, which can be repeated."""
    lines = lines_of(plain_key(nth_id(1)), FULL)
    adding = target.keys.add

    async def late(record: KeyRecord, once: str | None = None) -> None:
        if record.id == FULL.id:
            raise KeyTaken(record.id)
        await adding(record, once)

    target.keys.add = late  # type: ignore[method-assign]
    with pytest.raises(Changed, match=r"after 1 of 2 records; run the import again"):
        await target.take(lines)
    target.keys.add = adding  # type: ignore[method-assign]
    actions = [step.action for step in await target.take(lines)]
    assert sorted(actions) == ["created", "unchanged"]


async def test_what_the_user_should_know(target: Target) -> None:
    """Keys of another environment, plans that are unknown, and keys that stay revoked."""
    await target.keys.add(REVOKED)
    records = [FULL, plain_key(nth_id(1), environment="staging", plan="gold"), plain_key(nth_id(2))]
    steps = await target.take(lines_of(*records), "replace")
    words = notes(steps, POLICY)
    assert words == [
        "1 key is revoked in this store, which is final, and stay so",
        "1 key is of another environment than the policies' production, whose gateways refuse them",
        "plans that are not in the policies: gold; requests with them get 503",
    ]
    assert notes(steps, None) == words[:1]


async def test_no_secret_is_exported(target: Target) -> None:
    """A line has the digest of a key, and no field for its text."""
    await target.keys.add(FULL)
    (line,) = list(await export_lines(target.keys, NOW))[1:]
    assert json.loads(line)["key"]["digest"] == FULL.digest.hex()
    assert "secret" not in line
