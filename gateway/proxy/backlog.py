"""Connections that have sent more requests than one ahead: served in turn, a bounded time a turn.

A client may pipeline thousands of requests that are answered at once (401, 404, a remembered 429,
/health). Served in a row, they would keep everybody else waiting. So a connection takes up one
request when its bytes arrive; those behind it wait here, and each turn of the event loop spends at
most `TURN_S` on all that wait, however many connections they come from.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from time import perf_counter
from typing import Final, Protocol

#: What one turn of the event loop spends on requests that were sent ahead. Whoever sends one at a
#: time waits for this much longer, and for nothing else that pipelining clients do.
TURN_S: Final = 0.002
#: Requests of one connection in a row: so few that the clock is looked at often enough, and so many
#: that a look costs little.
MOST_IN_A_ROW: Final = 8


class Pipelining(Protocol):
    """A connection with requests ahead."""

    def take_up_more(self, most: int) -> bool:
        """Take up so many at most; True: more could be taken up now."""
        ...


class Backlog:
    """Who waits, in order. One for all connections of a worker."""

    __slots__ = ("_is_due", "_loop", "_waiting")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Pipelining] = deque()
        self._is_due = False

    def add(self, connection: Pipelining) -> None:
        """Have the connection take up more in a later turn of the loop. Add none twice."""
        self._waiting.append(connection)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        waiting = self._waiting
        end = perf_counter() + TURN_S
        # Who joins meanwhile has its turn in the next one.
        for _ in range(len(waiting)):
            connection = waiting.popleft()
            if connection.take_up_more(MOST_IN_A_ROW):
                waiting.append(connection)
            if perf_counter() >= end:
                break
        if waiting and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)
