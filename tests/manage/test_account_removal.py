"""Deleting accounts, and their keys."""

from __future__ import annotations

import pytest

from gateway.domain.keys import Account
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import Watch
from gateway.manage.account_hooks import AccountHooks
from gateway.manage.account_removal import remove_account
from gateway.manage.accounts import Accounts, AccountView
from gateway.manage.audit_log import Actor
from gateway.manage.keys import Keys
from gateway.manage.problems import Changed, Conflict, NotThere
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.keys.memory import MemoryKeyStore
from tests.suites.keys import NOW, nth_id, plain_key

ANNA = Actor("anna", "api")


class Desk:
    """Accounts and keys over stores in memory."""

    def __init__(self) -> None:
        self.store, self.log = MemoryKeyStore(), MemoryAuditStore()
        self.accounts = Accounts(self.store, self.log, lambda: None, lambda: NOW)
        self.keys = Keys(self.store, self.log, lambda: None, lambda: NOW)

    async def remove(self, name: str, **how: object) -> int:
        return await remove_account(self.accounts, self.keys, ANNA, name, **how)  # type: ignore[arg-type]

    async def actions(self) -> list[str]:
        return [entry.event.action for entry in (await self.log.entries())[::-1]]


class Hooks:
    """Integrations in memory, and what was done with them."""

    def __init__(self, *integrations: str) -> None:
        self.kept = [Integration(name, "acme", "generic", name, 1, "") for name in integrations]
        self.calls: list[str] = []

    async def integrations_of(self, account: str) -> list[Integration]:
        return [each for each in self.kept if each.account == account]

    async def watches(self, integration: str) -> list[Watch]:
        return [Watch(f"{integration}-w", integration, "https://h.example/", ("a.*",), 1)]

    async def suspend(self, watch: Watch) -> None:
        self.calls.append(f"suspend {watch.id}")

    async def restore(self, watch: Watch) -> None:
        self.calls.append(f"restore {watch.id}")

    async def remove_integration(self, integration: Integration) -> None:
        self.kept.remove(integration)

    async def purge(self, integration: str) -> None:
        self.calls.append(f"purge {integration}")


def with_hooks(desk: Desk, *integrations: str) -> Hooks:
    hooks = Hooks(*integrations)
    desk.accounts.hooks = AccountHooks(hooks, lambda _: hooks)
    return hooks


async def test_an_account_with_integrations_stays() -> None:
    """With force they are removed with all that they hold; those of others stay."""
    desk = Desk()
    await desk.store.put_account(Account("acme"))
    await desk.store.put_account(Account("other"))
    hooks = with_hooks(desk, "int_1", "int_2")
    with pytest.raises(Conflict, match="acme has 2 integrations: remove them first"):
        await desk.remove("acme")
    await desk.remove("other", revokes=True)
    assert len(hooks.kept) == 2
    await desk.remove("acme", revokes=True)
    assert (hooks.kept, hooks.calls) == ([], ["purge int_1", "purge int_2"])
    assert await desk.store.account("acme") is None


async def test_integrations_of_a_suspended_account() -> None:
    """Its watches are suspended and restored with it, also if that was done before."""
    desk = Desk()
    await desk.store.put_account(Account("acme"))
    hooks = with_hooks(desk, "int_1")
    await desk.accounts.suspend(ANNA, "acme")
    await desk.accounts.resume(ANNA, "acme")
    await desk.accounts.resume(ANNA, "acme")
    assert hooks.calls == ["suspend int_1-w", "restore int_1-w", "restore int_1-w"]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_an_account_without_keys_is_deleted(desk: Desk) -> None:
    """Revoked keys do not prevent it, and stay; the log has what was deleted."""
    account = Account("acme", ("edr",), "pro", status="suspended")
    await desk.store.put_account(account)
    await desk.store.add(revoked := plain_key(account="acme", status="revoked"))
    assert await desk.remove("acme") == 0
    assert await desk.store.account("acme") is None
    assert await desk.store.records() == [revoked]
    (entry,) = await desk.log.entries()
    assert (entry.event.action, entry.event.subject) == ("account.delete", "account:acme")
    assert entry.event.before is not None
    assert entry.event.before["services"] == ["edr"]
    assert entry.event.after is None


async def test_an_account_with_keys_stays(desk: Desk) -> None:
    """Unless they may be revoked: then all are, suspended and expired ones too."""
    await desk.store.put_account(Account("acme"))
    fields = [{}, {"status": "suspended"}, {"expires_us": 1}, {"status": "revoked"}]
    for number, values in enumerate(fields):
        await desk.store.add(plain_key(nth_id(number), account="acme", **values))
    await desk.store.add(other := plain_key(nth_id(9), account="zeta"))
    with pytest.raises(Conflict, match="acme has 3 keys that are not revoked"):
        await desk.remove("acme")
    assert await desk.store.account("acme") == Account("acme")
    assert await desk.actions() == []
    assert await desk.remove("acme", revokes=True) == 3
    assert {one.status for one in await desk.store.records() if one.account == "acme"} == {
        "revoked"
    }
    assert await desk.store.get(other.id) == other
    assert await desk.actions() == ["key.revoke"] * 3 + ["account.delete"]


async def test_a_key_that_is_created_meanwhile_stays_valid(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without force no key is revoked, also none that was not there when keys were counted."""
    await desk.store.put_account(Account("acme"))
    view = desk.accounts.view

    async def view_before_creation(name: str) -> AccountView:
        found = await view(name)
        await desk.store.add(plain_key(account=name))
        return found

    monkeypatch.setattr(desk.accounts, "view", view_before_creation)
    assert await desk.remove("acme") == 0
    assert [one.status for one in await desk.store.records()] == ["valid"]
    assert await desk.actions() == ["account.delete"]


async def test_what_cannot_be_deleted(desk: Desk) -> None:
    """No account, one that only keys name, and one that someone else has changed."""
    with pytest.raises(NotThere, match="no account nobody"):
        await desk.remove("nobody", revokes=True)
    await desk.store.add(plain_key(account="acme"))
    with pytest.raises(NotThere, match="has no record"):
        await desk.remove("acme", revokes=True)
    await desk.store.put_account(Account("zeta"))
    seen = (await desk.accounts.view("zeta")).version
    await desk.store.put_account(Account("zeta", plan="pro"))
    with pytest.raises(Changed):
        await desk.remove("zeta", version=seen)
    assert {one.status for one in await desk.store.records()} == {"valid"}
    assert await desk.store.account("zeta") == Account("zeta", plan="pro")
