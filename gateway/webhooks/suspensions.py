"""Which accounts are suspended, as a courier knows it: their events are kept, not delivered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from gateway.domain.keys import Account
from gateway.domain.ports import CorruptRecord

#: How long an account that was read is known not to be suspended.
KNOWN_S: Final = 1.0
#: The most accounts that are known at once.
_MOST: Final = 10_000


class AccountStore(Protocol):
    """What the store of keys has."""

    async def account(self, name: str) -> Account | None: ...


class Suspensions:
    """Reads an account before the first of its deliveries in each second.

    A suspended one is read each time: else it could be held after it was resumed.
    """

    def __init__(
        self, accounts: AccountStore, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._accounts = accounts
        self._clock_s = clock_s
        #: Until when an account is known not to be suspended.
        self._known: dict[str, float] = {}

    async def has(self, account: str) -> bool:
        """Is it suspended? Raises StoreDown. One that cannot be read is not known to be."""
        now_s = self._clock_s()
        if now_s < self._known.get(account, 0.0):
            return False
        try:
            found = await self._accounts.account(account)
        except CorruptRecord:
            found = None
        if found is not None and found.status == "suspended":
            return True
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[account] = now_s + KNOWN_S
        return False
