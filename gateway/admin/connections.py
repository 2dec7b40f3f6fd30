"""The open connections of the admin listener, and which one is closed when there are too many.

When all are in use, each new one closes another: of the address with the most connections, the one
that has waited longest. A probe sends its request immediately, and often from its own address, so
it is answered even while thousands of other clients connect.
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
    """The state of a connection.

    WAITING  for its client, or for an answer that several requests share: it may be closed
    WORKING  a handler works on its request
    CLOSED   it no longer counts; its handler may still run
    """

    WAITING = "waiting"
    WORKING = "working"
    CLOSED = "closed"


class Event(Enum):
    """What happens to a connection."""

    WORKS = "a handler starts or resumes work"
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
    """The part of a connection that is used here. state: written only by `Connections`"""

    state: State

    def drop(self) -> None: ...


class Connections:
    """The open connections. most: their maximum number"""

    def __init__(self, most: int) -> None:
        self.most = most
        #: Connection -> the subject of its address.
        self._open: dict[Connection, str] = {}
        self._by_address: Counter[str] = Counter()
        #: The waiting connections, the longest waiting first.
        self._waiting: dict[Connection, None] = {}
        self._emptied = asyncio.Event()
        self._throttle = LogThrottle(_LOG_EVERY_S)

    def __len__(self) -> int:
        return len(self._open)

    def make_room(self, now_s: float) -> bool:
        """Is there room for one more? If all are in use, a waiting one is closed."""
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
        """Add a new connection, which waits for its client's request."""
        self._open[connection] = subject = subject_of(address)
        self._by_address[subject] += 1
        self._waiting[connection] = None

    def step(self, connection: Connection, event: Event) -> None:
        """Change the state of a connection. Raises KeyError if the table has no next state."""
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
        """Wait until all connections are closed."""
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
