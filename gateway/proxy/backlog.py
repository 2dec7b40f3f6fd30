"""Connections with pipelined requests: served in turn, for a bounded time per event loop turn.

A client may pipeline thousands of requests that are answered at once (401, 404, a cached 429,
/health). Served in a row, they would block all other clients. So a connection serves one request
when its bytes arrive; for the others it waits here. Each turn of the event loop spends at most
`TURN_S` on all waiting connections together.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from time import perf_counter
from typing import Final, Protocol

#: The time that one turn of the event loop spends on pipelined requests. Pipelining delays clients
#: that send one request at a time by no more than this.
TURN_S: Final = 0.002
#: Requests of one connection in a row: few enough to read the clock often, and enough to make
#: reading it cheap.
MOST_IN_A_ROW: Final = 8


class Pipelining(Protocol):
    """A connection with pipelined requests."""

    def serve_queued(self, most: int) -> bool:
        """Serve at most `most` of them; True: there are more."""
        ...


class Backlog:
    """The waiting connections of a worker, in order."""

    __slots__ = ("_is_due", "_loop", "_waiting")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Pipelining] = deque()
        self._is_due = False

    def add(self, connection: Pipelining) -> None:
        """Have the connection serve more in a later turn of the loop. Do not add it twice."""
        self._waiting.append(connection)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        waiting = self._waiting
        end = perf_counter() + TURN_S
        # Connections added meanwhile are served in the next turn.
        for _ in range(len(waiting)):
            connection = waiting.popleft()
            if connection.serve_queued(MOST_IN_A_ROW):
                waiting.append(connection)
            if perf_counter() >= end:
                break
        if waiting and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)
