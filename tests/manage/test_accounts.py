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
