"""The client connections of a worker: how many there may be, and how many bytes they may hold.

One connection holds little: its unprocessed and its unsent bytes are bounded
(`client_connection`). The budget here bounds all connections together, so that many of them within
their own bounds cannot use up the memory of the process. If it is exceeded, the connections that
hold most are cut off, those without a valid key first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, Protocol

from gateway.domain.policy import Bounds
from gateway.observe.log_throttle import LogThrottle
from gateway.observe.metrics import Metrics
from gateway.proxy.kernel import give_memory_back

log = logging.getLogger("gateway.proxy")

#: Connections beyond the bound get a refusal, up to a 16th more; further ones are just closed.
REFUSED_SHARE: Final = 16
#: Less than this is not counted: any connection holds it now and then.
HEAVY_BYTES: Final = 4 * 1024
#: About the most that one connection holds.
MOST_EACH_BYTES: Final = 128 * 1024
#: After this much was freed, it is returned to the system.
WORTH_GIVING_BACK_BYTES: Final = 4 * 1024 * 1024
#: The sum is computed again after at least this many marked connections: adding up takes a while.
MOST_UNCOUNTED: Final = 16
#: Descriptors that are kept for upstream connections, the store, logs and policy files: a quarter
#: of the process's, and 64.
_OTHER_SHARE: Final = 4
_OTHER_DESCRIPTORS: Final = 64


class Entry(Enum):
    """What happens to a new connection."""

    SERVED = "it is served"
    REFUSED = "it gets a refusal: too many connections"
    DROPPED = "it is closed without an answer"


class Member(Protocol):
    """A client connection, as `Connections` and those that iterate over it use it."""

    @property
    def is_busy(self) -> bool:
        """Does it carry a request?"""
        ...

    def held_bytes(self) -> int:
        """Bytes that this process holds for it now."""
        ...

    def is_known(self) -> bool:
        """Was its last request admitted by a valid key?"""
        ...

    def shed(self) -> None:
        """Close it at once."""
        ...

    def check_deadline(self, now: float) -> None:
        """Act if its deadline has passed. now: by the loop's clock"""
        ...

    def failed(self) -> None:
        """Handle an unexpected exception: only this connection's request fails."""
        ...

    def drain(self) -> bool:
        """Begin to drain: close after the request in progress; True: there is, or may be, one."""
        ...

    def tear_down(self) -> None:
        """Close at once, so that a partial answer cannot look complete."""
        ...


class Connections:
    """The open connections. Iterating uses a snapshot of them.

    budget_bytes:     called each time: what all together may hold
    most_descriptors: the limit of this process
    """

    def __init__(
        self, metrics: Metrics, budget_bytes: Callable[[], int], most_descriptors: int
    ) -> None:
        self._none = asyncio.Event()
        self._none.set()
        self._metrics = metrics
        self._budget_bytes = budget_bytes
        self._most = most_descriptors - most_descriptors // _OTHER_SHARE - _OTHER_DESCRIPTORS
        self._open: set[Member] = set()
        #: How many of them each subject has: an address, or an IPv6 network.
        self._of: dict[str, int] = {}
        #: Those that may hold more than a little, the first marked first: of those that hold the
        #: same, it is closed first. A handshake in progress was marked just now.
        self._heavy: dict[Member, None] = {}
        #: With more of these than this, their bytes are added up.
        self._recount_at = 0
        #: Bytes freed since memory was last returned to the system.
        self._freed_bytes = 0
        self._throttle = LogThrottle()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._open))

    # -- how many ---------------------------------------------------------------------------------
    def add(self, connection: Member) -> None:
        """Add a connection that was accepted."""
        self._open.add(connection)
        self._none.clear()
        self._metrics.connections("downstream", "open", 1)

    def discard(self, connection: Member) -> None:
        """Remove a closed connection."""
        self._open.discard(connection)
        if connection in self._heavy:
            del self._heavy[connection]
            self._freed_bytes += HEAVY_BYTES
        self._metrics.connections("downstream", "open", -1)
        if not self._open:
            self._none.set()

    async def all_gone(self) -> None:
        """Wait until none is open."""
        await self._none.wait()

    def enter(self, subject: str, bounds: Bounds, *, is_trusted: bool) -> Entry:
        """Count an added connection for its subject; return what happens to it."""
        of_subject = self._of[subject] = self._of.get(subject, 0) + 1
        most = min(bounds.connections, self._most)
        if len(self._open) > most + most // REFUSED_SHARE:
            return Entry.DROPPED
        if len(self._open) > most:
            return Entry.REFUSED
        if of_subject > bounds.connections_per_address and not is_trusted:
            return Entry.REFUSED
        return Entry.SERVED

    def leave(self, subject: str) -> None:
        """Stop counting one for this subject: it closed, or has another subject."""
        left = self._of[subject] = self._of[subject] - 1
        if not left:
            del self._of[subject]

    # -- how much ---------------------------------------------------------------------------------
    def mark(self, connection: Member) -> None:
        """Note that it may hold more than a little."""
        self._heavy[connection] = None
        if len(self._heavy) > self._recount_at:
            self.keep_to_budget()

    def check(self) -> None:
        """Enforce the budget, and return freed memory. Call it a few times a second."""
        self.keep_to_budget()
        if self._freed_bytes > WORTH_GIVING_BACK_BYTES:
            self._freed_bytes = 0
            give_memory_back()

    def keep_to_budget(self) -> None:
        """Add up the held bytes; over the budget, close the connections that hold most."""
        budget = self._budget_bytes()
        held = {one: size for one in self._heavy if (size := one.held_bytes()) > HEAVY_BYTES}
        self._freed_bytes += (len(self._heavy) - len(held)) * HEAVY_BYTES
        self._heavy = dict.fromkeys(held)
        excess = sum(held.values()) - budget
        if excess > 0:
            self._shed(held, excess, budget)
        # Add up again when newly marked ones could use up what is free.
        free = max(0, budget - sum(held[one] for one in self._heavy))
        self._recount_at = len(self._heavy) + max(MOST_UNCOUNTED, free // MOST_EACH_BYTES)

    def _shed(self, held: dict[Member, int], excess: int, budget: int) -> None:
        count = size = 0
        for one in sorted(held, key=lambda one: (one.is_known(), -held[one])):
            if size >= excess:
                break
            size += held[one]
            count += 1
            self._heavy.pop(one, None)
            one.shed()
        self._metrics.shed(count)
        self._freed_bytes += size
        suppressed = self._throttle.suppressed("", asyncio.get_running_loop().time())
        if suppressed is not None:
            log.warning(
                "client connections hold more than bounds.memory (%d bytes): cut off %d that held "
                "%d bytes%s",
                *(budget, count, size),
                f" (and more, {suppressed} times before)" if suppressed else "",
            )
