"""Which accounts are suspended, as couriers know it."""

from __future__ import annotations

from gateway.domain.keys import Account
from gateway.domain.ports import CorruptRecord
from gateway.webhooks.suspensions import KNOWN_S, Suspensions


class Accounts:
    def __init__(self) -> None:
        self.kept: dict[str, Account | None] = {}
        self.reads = 0

    async def account(self, name: str) -> Account | None:
        self.reads += 1
        if name == "corrupt":
            raise CorruptRecord("account", name)
        return self.kept.get(name)


async def test_what_is_known_of_accounts() -> None:
    """One is read once a second while it is not suspended, and each time while it is."""
    accounts, now_s = Accounts(), 5.0
    suspensions = Suspensions(accounts, lambda: now_s)
    for _ in range(3):
        assert not await suspensions.has("acme")
        assert not await suspensions.has("corrupt")
    assert accounts.reads == 2
    accounts.kept["acme"] = Account("acme", status="suspended")
    assert not await suspensions.has("acme")
    now_s += KNOWN_S
    assert await suspensions.has("acme")
    accounts.kept["acme"] = Account("acme")
    assert not await suspensions.has("acme")
