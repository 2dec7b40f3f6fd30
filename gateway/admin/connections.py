"""The open connections of the admin listener: their number, and which one makes room for another.

When all are in use, one is closed for each new one: of the address that has the most, the one that
has waited longest. A probe sends its request at once, and often from an address of its own, so it
is answered even while thousands of other clients connect.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from enum import Enum
from typing import Final, Protocol

from gateway.admin.access import subject_of
from gateway.observe.log_throttle import LogThrottle

_log = logging.getLogger("gateway")

_LOG_EVERY_S: Final = 60.0


class State(Enum):
    """What is known here of a connection.

    WAITING  for its client, or for an answer that several requests share: it may make room
    WORKING  a handler works on its request
    CLOSED   it does not count any more; its handler may still run
    """

    WAITING = "waiting"
    WORKING = "working"
    CLOSED = "closed"


class Event(Enum):
    """What happens to a connection."""

    WORKS = "a handler begins or resumes to work"
    WAITS = "its handler waits, or has finished"
    CLOSES = "it was closed"


TABLE: Final = {
    (State.WAITING, Event.WORKS): State.WORKING,
    (State.WAITING, Event.CLOSES): State.CLOSED,
    (State.WORKING, Event.WAITS): State.WAITING,
    (State.WORKING, Event.CLOSES): State.CLOSED,
    **{(State.CLOSED, event): State.CLOSED for event in Event},
}


class Connection(Protocol):
    """What is needed here of a connection. state: written by `Connections` alone"""

    state: State

    def drop(self) -> None: ...


class Connections:
    """The open connections. most: their greatest number"""

    def __init__(self, most: int) -> None:
        self.most = most
        #: Connection -> what its address counts as.
        self._open: dict[Connection, str] = {}
        self._by_address: Counter[str] = Counter()
        #: Those that are waiting, the longest first.
        self._waiting: dict[Connection, None] = {}
        self._emptied = asyncio.Event()
        self._throttle = LogThrottle(_LOG_EVERY_S)

    def __len__(self) -> int:
        return len(self._open)

    def make_room(self, now_s: float) -> bool:
        """Whether there is room for one more. If all are in use, one that waits is closed."""
        if len(self._open) < self.most:
            return True
        # Of several with the same key, max() gives the first, which has waited longest.
        longest = max(
            self._waiting, key=lambda one: self._by_address[self._open[one]], default=None
        )
        if self._throttle.suppressed("full", now_s) is not None:
            _log.warning(
                "admin: all %d connections are in use; %s",
                self.most,
                "all of them work on requests, so new ones are refused"
                if longest is None
                else "each new one closes one that waits",
            )
        if longest is None:
            return False
        # The event loop closes its descriptor in its next iteration.
        self.step(longest, Event.CLOSES)
        longest.drop()
        return True

    def add(self, connection: Connection, address: str) -> None:
        """A new one, which waits for its client's request."""
        self._open[connection] = subject = subject_of(address)
        self._by_address[subject] += 1
        self._waiting[connection] = None

    def step(self, connection: Connection, event: Event) -> None:
        """Something happened to a connection. Raises KeyError where the table has no next state."""
        before, connection.state = connection.state, TABLE[connection.state, event]
        if connection.state is before:
            return
        if connection.state is State.WAITING:
            self._waiting[connection] = None
        else:
            self._waiting.pop(connection, None)
        if connection.state is State.CLOSED:
            self._remove(connection)

    async def all_closed(self) -> None:
        """Wait until there is no connection."""
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()

    def drop_all(self) -> None:
        for connection in tuple(self._open):
            connection.drop()

    def _remove(self, connection: Connection) -> None:
        subject = self._open.pop(connection)
        self._by_address[subject] -= 1
        if not self._by_address[subject]:
            del self._by_address[subject]
        if not self._open:
            self._emptied.set()
