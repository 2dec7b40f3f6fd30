"""Managing accounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain import key_format
from gateway.domain.keys import Account
from gateway.domain.ports import KeyChanged
from gateway.manage import accounts as accounts_module
from gateway.manage.accounts import Accounts
from gateway.manage.audit_log import Actor
from gateway.manage.problems import Changed, Invalid, NotThere
from gateway.manage.views import account_as_json, version_of
from gateway.policies.load import load
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.keys.memory import MemoryKeyStore
from tests.suites.keys import nth_id, plain_key

NOW = 1_800_000_000_000_000
ANNA = Actor("anna", "api", "127.0.0.1")
POLICY = load(Path(__file__).parents[2] / "policies")


class AdminDeps(Accounts):
    """Accounts over stores in memory."""

    def __init__(self) -> None:
        self.store, self.log = MemoryKeyStore(), MemoryAuditStore()
        super().__init__(self.store, self.log, lambda: POLICY, lambda: NOW)


@pytest.fixture
def desk():
    return AdminDeps()


async def test_an_account_is_set_up_as_a_whole(desk):
    """The given values replace the whole account; the log has the old and the new ones."""
    first = await desk.put(ANNA, "acme", {"services": ["scm", "edr"]})
    assert first == Account("acme", ("edr", "scm"))
    second = await desk.put(ANNA, "acme", {"plan": "pro"})
    assert second == await desk.get("acme") == Account("acme", (), "pro")
    newest, oldest = (entry.event for entry in await desk.log.entries())
    assert (oldest.before, oldest.after) == (None, account_as_json(first))
    assert (newest.at_us, newest.actor) == (NOW, "anna (api, 127.0.0.1)")
    assert (newest.action, newest.subject) == ("account.set", "account:acme")
    assert (newest.before, newest.after) == (account_as_json(first), account_as_json(second))


async def test_setting_the_same_twice(desk):
    """Setting an account to its current values changes and records nothing."""
    for _ in range(2):
        await desk.put(ANNA, "acme", {"plan": "pro"})
    assert len(await desk.log.entries()) == 1


async def test_two_people_edit_one_account(desk):
    """A change based on an outdated version, or on none, is refused."""
    first = await desk.put(ANNA, "acme", {}, must_be_new=True)
    with pytest.raises(Changed, match="already"):
        await desk.put(ANNA, "acme", {"plan": "pro"}, must_be_new=True)
    seen = version_of(account_as_json(first))
    with pytest.raises(Changed):
        await desk.put(ANNA, "zeta", {}, version=seen)
    second = await desk.put(ANNA, "acme", {"plan": "pro"}, version=seen)
    with pytest.raises(Changed, match="someone else"):
        await desk.put(ANNA, "acme", {"plan": "free"}, version=seen)
    assert await desk.store.accounts() == [second]
    assert len(await desk.log.entries()) == 2


async def test_a_race(desk):
    """After a concurrent change the account is replaced, or the call fails."""
    replacing, beaten = desk.store.replace_account, iter("ab")

    async def replace_late(old, new):
        if name := next(beaten, None):
            await desk.store.put_account(Account("acme", (name,)))
        await replacing(old, new)

    desk.store.replace_account = replace_late
    await desk.put(ANNA, "acme", {"plan": "pro"})
    assert await desk.get("acme") == Account("acme", (), "pro")
    assert (await desk.log.entries())[0].event.before["services"] == ["b"]

    async def hopeless(old, new):
        raise KeyChanged

    desk.store.replace_account = hopeless
    with pytest.raises(Changed, match="try again"):
        await desk.put(ANNA, "acme", {})
    assert len(await desk.log.entries()) == 1


async def test_faults(desk):
    """An invalid account is refused with all faults, and nothing is stored."""
    with pytest.raises(Invalid) as caught:
        await desk.put(ANNA, "acme", {"plan": "huge", "limits": {"x": "1/day"}})
    assert {fault.at for fault in caught.value.faults} == {"plan", "limits.x"}
    with pytest.raises(Invalid):
        await desk.put(ANNA, "a:b", {})
    assert await desk.store.accounts() == []


async def test_fields_are_edited(desk):
    """Only the given fields change; null clears the plan; an account with keys gets a record."""
    await desk.put(ANNA, "acme", {"plan": "pro", "services": ["edr"], "billing_day": 15})
    assert await desk.edit(ANNA, "acme", {"plan": "free"}) == Account(
        "acme", ("edr",), "free", billing_day=15
    )
    assert (await desk.edit(ANNA, "acme", {"plan": None, "services": []})).services == ()
    with pytest.raises(Invalid):
        await desk.edit(ANNA, "acme", {"plan": "huge", "status": "suspended"})
    with pytest.raises(NotThere):
        await desk.edit(ANNA, "nobody", {"plan": "pro"})
    await desk.store.add(plain_key(account="beta"))
    unseen = (await desk.view("beta")).version
    assert await desk.edit(ANNA, "beta", {"plan": "pro"}, unseen) == Account("beta", plan="pro")
    with pytest.raises(Changed):
        await desk.edit(ANNA, "beta", {"plan": "free"}, unseen)
    actions = [entry.event.action for entry in await desk.log.entries()]
    assert actions == ["account.edit", "account.edit", "account.edit", "account.set"]


async def test_a_suspension_stays(desk):
    """Only resuming ends it, not a replacement; repeating either changes and records nothing."""
    await desk.put(ANNA, "acme", {"plan": "pro"})
    for _ in range(2):
        assert (await desk.suspend(ANNA, "acme")).status == "suspended"
    await desk.put(ANNA, "acme", {"plan": "free"})
    await desk.edit(ANNA, "acme", {"services": ["edr"]})
    assert await desk.get("acme") == Account("acme", ("edr",), "free", status="suspended")
    for _ in range(2):
        assert (await desk.resume(ANNA, "acme")).status == "valid"
    actions = [entry.event.action.partition(".")[2] for entry in await desk.log.entries()]
    assert actions == ["resume", "edit", "set", "suspend", "set"]


async def test_an_account_without_a_record_is_suspended(desk):
    """If keys have it; the record is created. To resume one without a record changes nothing."""
    for change in (desk.suspend, desk.resume):
        with pytest.raises(NotThere):
            await change(ANNA, "acme")
    await desk.store.add(plain_key(account="acme"))
    assert await desk.resume(ANNA, "acme") == Account("acme")
    assert await desk.store.accounts() == []
    await desk.suspend(ANNA, "acme")
    assert await desk.store.accounts() == [Account("acme", status="suspended")]


async def test_accounts_that_only_keys_name(desk):
    """They are listed among the others if that is wanted, with how many keys each account has."""
    await desk.put(ANNA, "beta", {})
    own = nth_id(0)
    for number, fields in enumerate(
        [{"account": own}, {"account": "acme"}, {"account": "acme", "status": "revoked"}]
    ):
        await desk.store.add(plain_key(nth_id(number), **fields))
    await desk.store.add(plain_key(nth_id(9), account="beta"))

    async def page(implicit, *asked):
        found = await desk.page(*asked, implicit=implicit)
        return [(one.name, one.is_implicit, one.keys) for one in found.accounts], found.next

    mine = (own, True, 1)
    acme, beta = ("acme", True, 1), ("beta", False, 1)
    assert await page("none") == ([("beta", False, None)], None)
    assert await page("named") == ([acme, beta], None)
    assert await page("all") == ([mine, acme, beta], None)
    assert await page("all", None, 2) == ([mine, acme], "acme")
    assert await page("all", "acme", 2) == ([beta], None)
    assert await page("named", None, 5, "BE") == ([beta], None)
    for name, expected in (("acme", acme), ("beta", beta), (own, mine)):
        view = await desk.view(name)
        assert (view.name, view.is_implicit, view.keys) == expected
    with pytest.raises(NotThere):
        await desk.view("nobody")


async def test_accounts_named_like_another_key(desk):
    """The list marks an account that is a key's own, if other keys were given it."""
    own, shared = nth_id(1), nth_id(2)
    for number, (key_id, account) in enumerate(
        [(own, own), (shared, shared), (nth_id(3), shared), (nth_id(4), nth_id(9))]
    ):
        await desk.store.add(plain_key(key_id, account=account, lineage=key_id, created_us=number))
    page = await desk.page(implicit="all")
    assert {view.name: view.is_shared for view in page.accounts} == {
        own: False,
        shared: True,
        nth_id(9): False,
    }


async def test_missing_accounts(desk):
    """A missing account is reported; an invalid name is not repeated."""
    with pytest.raises(NotThere, match="acme"):
        await desk.get("acme")
    key, _ = key_format.mint("dev", lambda below: 7 % below)
    for name in (key, "a:b", ""):
        with pytest.raises(NotThere) as caught:
            await desk.get(name)
        assert str(caught.value) == "there is no account of this name"


async def test_pages(desk):
    """Accounts are listed by name in pages, or only those whose names contain a text."""
    for name in ("zeta", "Acme", "beta", "acme"):
        await desk.put(ANNA, name, {})

    async def page(*asked):
        found = await desk.page(*asked)
        return [account.name for account in found.accounts], found.next

    assert await page() == (["Acme", "acme", "beta", "zeta"], None)
    assert await page(None, 2) == (["Acme", "acme"], "acme")
    assert await page("acme", 2) == (["beta", "zeta"], None)
    assert await page("zeta") == ([], None)
    assert await page(None, 1, "ACM") == (["Acme"], "Acme")
    assert await page("b", 50, "eta") == (["beta", "zeta"], None)


async def test_a_page_reads_no_more_than_it_shows(desk):
    """Of ten thousand accounts a page reads its own, and one more to see if there is a next."""
    for number in range(10_000):
        await desk.store.put_account(Account(f"a{number:05}"))
    read = []
    named = desk.store.accounts_named

    async def note(names):
        read.extend(names)
        return [account for account in await named(names) if account.name != "a00003"]

    desk.store.accounts_named = note
    desk.store.accounts = None
    page = await desk.page(None, 5)
    # An account whose name is listed but whose record is missing is left out.
    assert [each.name for each in page.accounts] == [f"a0000{number}" for number in (0, 1, 2, 4, 5)]
    assert page.next == "a00005"
    assert len(read) == 6 + 12


async def test_names_without_accounts(desk, monkeypatch):
    """If most names have no account, a page reads a bounded number, and the next continues."""
    monkeypatch.setattr(accounts_module, "MOST_LOOKED_AT", 1_000)
    names = [f"g{number:05}" for number in range(3_000)]
    for name in ("a", "zeta"):
        await desk.put(ANNA, name, {})

    async def ghosts():
        return ["a", *names, "zeta"]

    asked = []
    named = desk.store.accounts_named

    async def note(some):
        asked.append(len(some))
        return await named(some)

    desk.store.account_names, desk.store.accounts_named = ghosts, note
    pages, after = [], None
    while True:
        page = await desk.page(after)
        pages.append([each.name for each in page.accounts])
        if (after := page.next) is None:
            break
    assert [name for page in pages for name in page] == ["a", "zeta"]
    assert 2 <= len(pages) <= 4
    assert max(asked) <= 500
    assert sum(asked) >= 3_002
    assert len(asked) < 40
