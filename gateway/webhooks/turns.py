"""Turns: a few calls are served at once, and no account has them all.

Calls of the API share the connections to the store with deliveries; 100 at once left none for
those. Large bodies share the event loop with all else: they are read one at a time.
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
    """The turns of one courier.

    at_once, of_account: calls that are served at once, in all and of one account
    most_of_account:     calls of one account, those that wait included; None: any number
    """

    def __init__(
        self,
        at_once: int = AT_ONCE,
        of_account: int = OF_ACCOUNT,
        most_of_account: int | None = MOST_OF_ACCOUNT,
    ) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._of_account = of_account
        self._most = most_of_account
        self._accounts: dict[str, _Account] = {}

    @asynccontextmanager
    async def of(self, account: str) -> AsyncIterator[None]:
        """The turn of a call, which waits for it. Raises Refused: too many of the account wait."""
        its = self._accounts.setdefault(account, _Account(self._of_account))
        if self._most is not None and its.calls >= self._most:
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

    def __init__(self, at_once: int) -> None:
        self.turns = asyncio.Semaphore(at_once)
        self.calls = 0
