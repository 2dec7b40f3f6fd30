"""Work that waits for its turn: what comes first is served first, for a bounded time per turn.

A client may pipeline thousands of requests that are answered at once (401, 404, a cached 429,
/health). Served in a row, they would block all other clients. So a connection serves one request
when its bytes arrive; for the others it waits here. Each turn of the event loop spends at most
`TURN_S` on all waiting connections together.

Requests whose bodies are counted wait in a backlog of their own: a body can take more than a turn,
and hundreds of clients can send their last bytes at once. The turn ends after the body in which its
time is up. After one that took `LONG_TURN_S`, others have as long before the next: a plain request
needs several turns, and would otherwise wait for a body in each.
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


#: A turn that took this long is followed by a pause of the same length, in a backlog that rests.
LONG_TURN_S: Final = 0.004


class Queued(Protocol):
    """A connection with pipelined requests, or a request whose whole body has arrived."""

    def serve_queued(self, most: int) -> bool:
        """Serve at most `most` requests; True: there are more."""
        ...


class Backlog:
    """What waits in a worker, in order. rests: long turns are followed by a pause"""

    __slots__ = ("_is_due", "_loop", "_rests", "_waiting")

    def __init__(self, loop: AbstractEventLoop, *, rests: bool = False) -> None:
        self._loop = loop
        self._rests = rests
        self._waiting: deque[Queued] = deque()
        self._is_due = False

    def add(self, connection: Queued) -> None:
        """Have the connection serve more in a later turn of the loop. Do not add it twice."""
        self._waiting.append(connection)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        # What is added meanwhile is served in the next turn.
        waiting = self._waiting
        begun = now = perf_counter()
        try:
            for _ in range(len(waiting)):
                connection = waiting.popleft()
                if connection.serve_queued(MOST_IN_A_ROW):
                    waiting.append(connection)
                now = perf_counter()
                if now >= begun + TURN_S:
                    break
        finally:
            is_long = self._rests and now >= begun + LONG_TURN_S
            self._is_due = is_long or bool(waiting)
            if is_long:  # also if nothing waits: what is added meanwhile waits for its end
                self._loop.call_later(now - begun, self._run)
            elif waiting:
                self._loop.call_soon(self._run)
