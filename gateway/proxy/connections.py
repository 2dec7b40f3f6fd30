"""The client connections of a worker: how many there may be, and how many bytes they may hold.

One connection holds little by design: what is read ahead of it and what it has not taken of its
answers are bounded each (`downstream`). The budget here is over all of them together, so that many
connections that each keep within their bounds do not use up the memory of the process. Where it is
exceeded, the connections that hold most are cut off, those of strangers before those of known keys.
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

#: Connections beyond the bound are told so, up to this share of it; further ones are just closed.
TOLD_SHARE: Final = 16
#: Less than this is not worth a look: it is what any connection holds now and then.
HEAVY_BYTES: Final = 4 * 1024
#: What one connection holds at most, in round figures.
MOST_EACH_BYTES: Final = 128 * 1024
#: So much was freed: it is worth to give it back to the system.
WORTH_GIVING_BACK_BYTES: Final = 4 * 1024 * 1024
#: Beyond the budget it is looked at again after so many more: adding up takes a while.
MOST_UNSEEN: Final = 16
#: Of the descriptors of the process, so many are not for clients but for upstream connections, the
#: store, logs and policy files: a quarter, and these.
_OTHER_SHARE: Final = 4
_OTHER_DESCRIPTORS: Final = 64


class Entry(Enum):
    """What becomes of a new connection."""

    TAKEN = "it is served"
    TOLD = "it is told that there are too many"
    DROPPED = "it is closed unheard"


class Member(Protocol):
    """A client connection, as it is seen from here and by whoever goes through all of them."""

    @property
    def is_busy(self) -> bool:
        """Does it carry a request?"""
        ...

    def held_bytes(self) -> int:
        """What is kept for it in this process now."""
        ...

    def is_known(self) -> bool:
        """Has it shown a good key?"""
        ...

    def shed(self) -> None:
        """Cut it off at once."""
        ...

    def check_deadline(self, now: float) -> None:
        """Act if what it waits for has not come in time; now: the loop's clock."""
        ...

    def failed(self) -> None:
        """To be called where an exception was caught: it costs this connection's request alone."""
        ...

    def drain(self) -> bool:
        """The worker is to end: close once what was begun is over; True: something was."""
        ...

    def tear_down(self) -> None:
        """Close at once, and so that what has been sent cannot look complete."""
        ...


class Connections:
    """Those that are open. Iterating gives all of them as they are at that moment.

    budget_bytes:     asked each time: what all together may hold
    most_descriptors: of this process
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
        #: How many of them each subject has: an address, or the network of an IPv6 one.
        self._of: dict[str, int] = {}
        #: Those that may hold more than a little, the longest marked first: of those that hold as
        #: much as each other it is cut off first. A handshake that goes on has just begun.
        self._heavy: dict[Member, None] = {}
        #: With so many of these it is worth to add up what they hold.
        self._look_at = 0
        #: So much that was held was freed since memory was last given back.
        self._freed_bytes = 0
        self._throttle = LogThrottle()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._open))

    # -- how many ---------------------------------------------------------------------------------
    def add(self, connection: Member) -> None:
        """It was accepted."""
        self._open.add(connection)
        self._none.clear()
        self._metrics.connections("downstream", "open", 1)

    def discard(self, connection: Member) -> None:
        """It is closed."""
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
        """Count one that was added to its subject, and say what becomes of it."""
        of_subject = self._of[subject] = self._of.get(subject, 0) + 1
        most = min(bounds.connections, self._most)
        if len(self._open) > most + most // TOLD_SHARE:
            return Entry.DROPPED
        if len(self._open) > most:
            return Entry.TOLD
        if of_subject > bounds.connections_per_address and not is_trusted:
            return Entry.TOLD
        return Entry.TAKEN

    def leave(self, subject: str) -> None:
        """One of this subject, which was counted, has gone, or turned out to be another's."""
        left = self._of[subject] = self._of[subject] - 1
        if not left:
            del self._of[subject]

    # -- how much ---------------------------------------------------------------------------------
    def mark(self, connection: Member) -> None:
        """It has begun to hold more than a little."""
        self._heavy[connection] = None
        if len(self._heavy) > self._look_at:
            self.keep_to_budget()

    def look(self) -> None:
        """To be called a few times a second."""
        self.keep_to_budget()
        if self._freed_bytes > WORTH_GIVING_BACK_BYTES:
            self._freed_bytes = 0
            give_memory_back()

    def keep_to_budget(self) -> None:
        """Add up what is held; beyond the budget, cut off those that hold most."""
        budget = self._budget_bytes()
        held = {one: size for one in self._heavy if (size := one.held_bytes()) > HEAVY_BYTES}
        self._freed_bytes += (len(self._heavy) - len(held)) * HEAVY_BYTES
        self._heavy = dict.fromkeys(held)
        excess = sum(held.values()) - budget
        if excess > 0:
            self._shed(held, excess, budget)
        # The next look is due when those that are new since then could use up what is free.
        free = max(0, budget - sum(held[one] for one in self._heavy))
        self._look_at = len(self._heavy) + max(MOST_UNSEEN, free // MOST_EACH_BYTES)

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
