"""Managing keys, and the audit log's entries about it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain import key_format, keylife
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.policy import Policy
from gateway.domain.ports import CorruptRecord, KeyChanged, KeyFilter, StoreDown
from gateway.manage.audit_log import Actor
from gateway.manage.forms import KeyChange, NewKey
from gateway.manage.keys import Keys
from gateway.manage.problems import Changed, Conflict, Invalid, NotThere
from gateway.manage.views import recorded, version_of
from gateway.policies.load import load
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.keys.memory import MemoryKeyStore
from tests.policies.folder import write
from tests.suites.keys import FULL, NOW, plain_key

HOUR = 3_600_000_000
ANNA = Actor("anna", "console", "127.0.0.1")
POLICY = load(Path(__file__).parents[2] / "policies")
NEW = NewKey("ci", "production", "pro")
OTHER = "7h3k9m2p4q6s"


class AdminDeps(Keys):
    """Keys over stores in memory, at a time that the test sets."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.store, self.log = MemoryKeyStore(), MemoryAuditStore()
        self.now_us = NOW
        super().__init__(self.store, self.log, lambda: policy, lambda: self.now_us)

    async def noted(self) -> list[tuple[str, str]]:
        """Action and subject of all entries of the log, from the oldest."""
        return [(one.event.action, one.event.subject) for one in (await self.log.entries())[::-1]]

    async def seen(self, key_id: str) -> str:
        """The current version of a key."""
        view = await self.get(key_id)
        return version_of(recorded(view.record))

    def beaten(self, change: Callable[[KeyRecord], KeyRecord], times: int) -> None:
        """Let this many concurrent changes come first."""
        replacing = self.store.replace
        left = iter(range(times))

        async def replace_late(old: KeyRecord, new: KeyRecord) -> None:
            if next(left, None) is not None:
                await replacing(old, change(old))
            await replacing(old, new)

        self.store.replace = replace_late  # type: ignore[method-assign]


@pytest.fixture
def desk():
    return AdminDeps()


@pytest.fixture
async def key_id(desk):
    record, _ = await desk.create(ANNA, NEW)
    return record.id


def shown(record: KeyRecord) -> dict[str, object]:
    return recorded(record)


async def test_creating(desk):
    """A key is created as described; its text is returned, and stored nowhere."""
    new = NewKey(
        **{"name": "x", "environment": "dev", "plan": "pro", "account": "acme", "expires_us": NOW},
        **{"scopes": FULL.scopes, "permissions": FULL.permissions},
        **{"networks": FULL.networks, "limits": FULL.limits},
    )
    record, text = await desk.create(ANNA, new)
    assert key_format.parse(text) == ("dev", record.id)
    assert record.digest == key_format.digest(text.encode())
    assert record == KeyRecord(
        **{"id": record.id, "lineage": record.id, "digest": record.digest, "created_us": NOW},
        **{field: getattr(new, field) for field in NewKey.__slots__},
    )
    assert await desk.store.get(record.id) == record
    (entry,) = await desk.log.entries()
    assert (entry.event.at_us, entry.event.actor) == (NOW, "anna (console, 127.0.0.1)")
    assert (entry.event.action, entry.event.subject) == ("key.create", f"key:{record.id}")
    assert (entry.event.before, entry.event.after) == (None, shown(record))
    written = json.dumps(entry.event.after)
    assert text not in written
    assert record.digest.hex() not in written


async def test_a_key_without_an_account_gets_its_own(desk, key_id):
    """Its account then has the key's name."""
    assert (await desk.get(key_id)).record.account == key_id


async def test_the_id_of_another_key_is_no_account(desk, key_id):
    """Neither of a new key nor of one that moves; its own id is, and so is that of no key."""
    with pytest.raises(Invalid, match="the id of another key"):
        await desk.create(ANNA, replace(NEW, account=key_id))
    other, _ = await desk.create(ANNA, replace(NEW, account="acme"))
    with pytest.raises(Invalid, match="the id of another key"):
        await desk.edit(ANNA, other.id, desk.read_change({"account": key_id}))
    for free in (other.id, "0" * 12):
        assert (
            await desk.edit(ANNA, other.id, desk.read_change({"account": free}))
        ).account == free
    # What rotation makes stays in the account of its key.
    _, new, _ = await desk.rotate(ANNA, key_id, HOUR)
    assert new.account == key_id
    await desk.edit(ANNA, new.id, desk.read_change({"name": "renamed"}))


async def test_an_idempotency_key(desk):
    """One idempotency key creates one key within a day; the error names that key."""
    record, _ = await desk.create(ANNA, NEW, once="word")
    with pytest.raises(Conflict, match=record.id):
        await desk.create(ANNA, NEW, once="word")
    await desk.create(ANNA, NEW, once="another")
    await desk.create(ANNA, NEW)
    desk.now_us += 24 * HOUR
    await desk.create(ANNA, NEW, once="word")
    assert len(await desk.store.records()) == len(await desk.noted()) == 4


async def test_a_key_needs_a_plan():
    """A key has a plan, its own or its account's, that the policies have."""
    desk = AdminDeps(POLICY)
    for account in ("", "acme", "odd"):
        await desk.store.put_account(Account("odd", plan="gone"))
        with pytest.raises(Invalid, match="plan: found"):
            await desk.create(ANNA, NewKey("ci", "production", account=account))
    await desk.store.put_account(Account("acme", plan="pro"))
    record, _ = await desk.create(ANNA, NewKey("ci", "production", account="acme"))
    assert record.plan == ""
    view = await desk.get(record.id)
    assert (view.record, view.plan) == (record, "pro")
    with pytest.raises(Invalid, match="plan"):
        await desk.edit(ANNA, record.id, KeyChange({"account": "odd"}))
    with pytest.raises(Invalid, match="plan"):
        await desk.edit(ANNA, record.id, KeyChange({"account": "zeta"}))
    await desk.store.put_account(Account("acme"))
    edited = await desk.edit(ANNA, record.id, KeyChange({"name": "still"}))
    assert edited.name == "still"  # a fault of another field does not prevent this change
    assert await desk.noted() == [
        (action, f"key:{record.id}") for action in ("key.create", "key.edit")
    ]


async def test_forms_are_read_with_current_policies_and_time():
    """Forms are checked against the policies, and durations count from now."""
    desk = AdminDeps(POLICY)
    desk.now_us = NOW + 5
    assert desk.read_new({"name": "x", "plan": "pro", "expires": "1h"}).expires_us == NOW + 5 + HOUR
    assert desk.read_change({"expires": "1h"}).values == {"expires_us": NOW + 5 + HOUR}
    with pytest.raises(Invalid):
        desk.read_new({"name": "x", "plan": "huge"})
    with pytest.raises(Invalid):
        desk.read_change({"plan": "huge"})


async def test_editing(desk, key_id):
    """A change is made, and recorded with the old values; no change is not recorded."""
    before = (await desk.get(key_id)).record
    edited = await desk.edit(ANNA, key_id, KeyChange({"name": "x", "networks": FULL.networks}))
    assert edited == replace(before, name="x", networks=FULL.networks)
    assert (await desk.get(key_id)).record == edited
    (entry, _) = await desk.log.entries()
    assert (entry.event.action, entry.event.before) == ("key.edit", shown(before))
    assert entry.event.after == shown(edited)
    assert await desk.edit(ANNA, key_id, KeyChange({"name": "x"})) == edited
    assert len(await desk.noted()) == 2


@pytest.mark.parametrize("times", [1, 4])
async def test_a_concurrent_change_is_not_lost(desk, key_id, times):
    """If a key changes between reading and writing, the change is made to the new record."""
    desk.beaten(lambda record: replace(record, name=record.name + "+"), times)
    edited = await desk.edit(ANNA, key_id, KeyChange({"plan": "free"}))
    assert (edited.name, edited.plan) == ("ci" + "+" * times, "free")


async def test_repeated_concurrent_changes(desk, key_id):
    """After repeated concurrent changes the call fails, and nothing is recorded."""
    desk.beaten(lambda record: replace(record, name=record.name + "+"), 99)
    with pytest.raises(Changed, match="try again"):
        await desk.revoke(ANNA, key_id)
    assert await desk.noted() == [("key.create", f"key:{key_id}")]


async def test_two_people_edit_one_key(desk, key_id):
    """A change based on an outdated version is refused, and changes nothing."""
    seen = await desk.seen(key_id)
    desk.now_us += 24 * HOUR
    desk.store.touch_now([key_id], NOW)
    edited = await desk.edit(ANNA, key_id, KeyChange({"name": "x"}), version=seen)
    for change in (
        desk.edit(ANNA, key_id, KeyChange({"name": "y"}), version=seen),
        desk.suspend(ANNA, key_id, version=seen),
        desk.resume(ANNA, key_id, version=seen),
        desk.revoke(ANNA, key_id, version=seen),
        desk.rotate(ANNA, key_id, HOUR, version=seen),
    ):
        with pytest.raises(Changed, match="someone else"):
            await change
    assert await desk.store.records() == [edited]
    assert (await desk.suspend(ANNA, key_id, await desk.seen(key_id))).status == "suspended"


async def test_a_change_of_a_version_is_not_retried(desk, key_id):
    """A change of a given version is not made to another one, even in a race."""
    seen = await desk.seen(key_id)
    desk.beaten(lambda record: replace(record, name="theirs"), 1)
    with pytest.raises(Changed):
        await desk.edit(ANNA, key_id, KeyChange({"plan": "free"}), version=seen)
    assert (await desk.get(key_id)).record.plan == "pro"


async def test_the_statuses(desk, key_id):
    """Each status is set and recorded once; setting it again changes nothing."""
    for change, status in (
        (desk.suspend, "suspended"),
        (desk.resume, "valid"),
        (desk.suspend, "suspended"),
        (desk.revoke, "revoked"),
    ):
        for _ in range(2):
            assert (await change(ANNA, key_id)).status == status
    assert [action for action, _ in await desk.noted()] == [
        *("key.create", "key.suspend", "key.resume", "key.suspend", "key.revoke"),
    ]
    for change in (
        desk.suspend(ANNA, key_id),
        desk.resume(ANNA, key_id),
        desk.edit(ANNA, key_id, KeyChange({"name": "x"})),
        desk.rotate(ANNA, key_id, HOUR),
    ):
        with pytest.raises(Conflict, match="revoked"):
            await change
    assert len(await desk.noted()) == 5


async def test_rotation(desk, key_id):
    """The successor is a separate key, the old one ends with the overlap; one entry has both."""
    before = (await desk.get(key_id)).record
    desk.now_us = NOW + 9
    old, new, text = await desk.rotate(ANNA, key_id, HOUR)
    assert key_format.parse(text) == ("production", new.id)
    assert new.digest == key_format.digest(text.encode())
    assert keylife.rotate(before, new.id, new.digest, NOW + 9, HOUR) == (old, new)
    assert await desk.store.records() == [old, new]
    entry = (await desk.log.entries())[0].event
    assert (entry.action, entry.subject) == ("key.rotate", f"key:{key_id}")
    assert (entry.before, entry.after) == (shown(before), shown(old))
    with pytest.raises(Conflict, match=f"rotated: .* {new.id}"):
        await desk.rotate(ANNA, key_id, HOUR)


async def test_a_rotation_with_a_concurrent_change(desk, key_id):
    """A successor that was not returned is not valid, and the old key has the other change."""
    desk.beaten(lambda record: replace(record, name="theirs"), 1)
    with pytest.raises(Changed, match="try again") as caught:
        await desk.rotate(ANNA, key_id, HOUR)
    assert isinstance(caught.value.__cause__, KeyChanged)
    # Both have the same creation time, so only the id orders them.
    old, new = sorted(await desk.store.records(), key=lambda record: record.id != key_id)
    assert (old.name, old.successor, old.status) == ("theirs", None, "valid")
    assert new.status == "revoked"
    assert [action for action, _ in await desk.noted()] == ["key.create"]


async def test_missing_keys(desk):
    """A missing key is reported; an invalid id is not repeated, as it may be a secret."""
    for key_id in (OTHER, "gwk_production_hunter2", ""):
        for use in (
            desk.get(key_id),
            desk.edit(ANNA, key_id, KeyChange({})),
            desk.suspend(ANNA, key_id),
            desk.resume(ANNA, key_id),
            desk.revoke(ANNA, key_id),
            desk.rotate(ANNA, key_id, 0),
        ):
            with pytest.raises(NotThere) as caught:
                await use
            assert "hunter2" not in str(caught.value)
    assert await desk.noted() == []


async def test_a_change_that_cannot_be_recorded(desk, caplog):
    """A created key is returned even if the audit log is unavailable; a log line says so."""

    async def append(event):
        raise StoreDown("away")

    desk.log.append = append
    with caplog.at_level(logging.ERROR):
        record, text = await desk.create(ANNA, NEW)
    assert await desk.store.get(record.id) == record
    assert record.id in caplog.text
    assert text not in caplog.text


async def test_pages(desk):
    """A page has where the next begins, the keys' last uses, and the plans in effect."""
    await desk.store.put_account(Account("acme", plan="pro"))
    ids = [f"{letter}h3k9m2p4q6r" for letter in "abcde"]
    for at, one in enumerate(ids):
        plan = "" if at in (1, 2) else "free"
        account = "zeta" if at == 2 else "acme"
        await desk.store.add(plain_key(one, created_us=at, plan=plan, account=account))
    desk.store.touch_now([ids[4]], 5)
    first = await desk.page(KeyFilter(), count=2)
    assert [(view.record.id, view.used_us, view.plan) for view in first.keys] == [
        (ids[4], 5, "free"),
        (ids[3], None, "free"),
    ]
    second = await desk.page(KeyFilter(), after=first.next, count=2)
    assert [(view.record.id, view.plan) for view in second.keys] == [(ids[2], ""), (ids[1], "pro")]
    last = await desk.page(KeyFilter(), after=second.next, count=1)
    assert ([view.record.id for view in last.keys], last.next) == ([ids[0]], None)
    assert (await desk.page(KeyFilter(text="nothing"))).keys == ()
    plans = await desk.page(KeyFilter(plans=frozenset({"pro"})))
    assert [view.record.id for view in plans.keys] == [ids[1]]
    with pytest.raises(Invalid, match="after"):
        await desk.page(KeyFilter(), after="gwk_nonsense")


async def test_a_page_of_a_plan_that_was_renamed(tmp_path):
    """Keys are found by each name of the plan, whichever they have."""
    plans = "plans: {top: {rate: 1/day, was: [gold, pro]}, free: {rate: 1/day}}\n"
    desk = AdminDeps(load(write(tmp_path, plans=plans)))
    for letter, plan in zip("abcde", ("top", "pro", "free", "gone", ""), strict=True):
        record = plain_key(f"{letter}h3k9m2p4q6r", plan=plan, account=f"of-{letter}")
        await desk.store.add(record)
    await desk.store.put_account(Account("of-e", plan="pro"))
    for name, expected in (
        *(
            ("top", "abe"),
            ("pro", "abe"),
            ("gold", "abe"),
            ("free", "c"),
            ("gone", "d"),
            ("other", ""),
        ),
    ):
        page = await desk.page(KeyFilter(plans=frozenset({name})))
        assert sorted(view.record.id[0] for view in page.keys) == list(expected), name


async def test_expired_keys_are_not_valid_in_pages(desk):
    """A page of valid keys has none that has expired by now."""
    await desk.store.add(plain_key(expires_us=NOW + 1))
    wanted = KeyFilter(status="valid")
    assert len((await desk.page(wanted)).keys) == 1
    desk.now_us = NOW + 1
    assert (await desk.page(wanted)).keys == ()
    assert len((await desk.page(KeyFilter(status="expired"))).keys) == 1


async def test_keys_of_an_account_that_cannot_be_read():
    """They can be listed, shown and revoked; one without its own plan is shown without a plan."""
    desk = AdminDeps(POLICY)
    await desk.store.put_account(Account("acme", plan="pro"))
    new = NewKey("ci", "production", account="acme")
    key_id = (await desk.create(ANNA, new))[0].id

    async def unreadable(name: str) -> Account:
        raise CorruptRecord("account", name)

    desk.store.account = unreadable
    (listed,) = (await desk.page(KeyFilter())).keys
    assert (listed.record.id, listed.plan) == (key_id, "")
    assert await desk.get(key_id) == listed
    assert (await desk.revoke(ANNA, key_id)).status == "revoked"
    with pytest.raises(CorruptRecord, match="account acme"):
        await desk.create(ANNA, new)
