"""Turns of calls of the API: a few are served at once, and no account has them all.

Calls share the connections to the store with deliveries; 100 at once left none for those.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from gateway.manage.refusals import TOO_MANY_CALLS, Refused

#: The most calls that are served at once, and those of them of one account; others wait.
AT_ONCE: Final = 24
OF_ACCOUNT: Final = AT_ONCE // 4
#: The most calls of one account, those that wait included.
MOST_OF_ACCOUNT: Final = AT_ONCE


class Turns:
    """The turns of one courier."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._accounts: dict[str, _Account] = {}

    @asynccontextmanager
    async def of(self, account: str) -> AsyncIterator[None]:
        """The turn of a call, which waits for it. Raises Refused: too many of the account wait."""
        its = self._accounts.setdefault(account, _Account())
        if its.calls >= MOST_OF_ACCOUNT:
            raise Refused(TOO_MANY_CALLS)
        its.calls += 1
        try:
            # In this order: what waits for its account's turn takes nobody else's.
            async with its.turns, self._all:
                yield
        finally:
            its.calls -= 1
            if not its.calls:
                del self._accounts[account]


class _Account:
    """calls: in progress, or waiting"""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(OF_ACCOUNT)
        self.calls = 0
