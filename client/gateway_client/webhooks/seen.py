"""What has been handled, so that an event that is sent again is not handled again.

An event is claimed before it is handled, and kept for 7 days once it is. If handling fails, it is
released, so that the sender's next attempt is handled. A claim ends by itself: a process that dies
with one loses no event.

So an event is handled at least once, and twice only if handling takes longer than a claim lasts, or
if the store fails between the handling and its note. Where that matters, write what the handler
does and the event's id in one transaction of your own database.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

#: What is kept of an event that is being handled, and of one that was.
BUSY: Final = "busy"
DONE: Final = "done"
#: How long a claim lasts, in seconds. The sender waits 15 s for an answer; its attempts after that
#: are 5 s and 5 minutes later, of which the second finds the claim of a dead process ended.
CLAIM_S: Final = 60
#: For so long the gateway gives an event that its provider sends again the same id.
KEEP_S: Final = 7 * 24 * 3600


class SeenStore(Protocol):
    """Texts by the ids of events, for all processes that receive.

    Whatever a method raises means that the store is unavailable. Receivers of different watches get
    the same ids: if they share a store, each puts a prefix of its own before the keys.
    """

    def add(self, key: str, value: str, seconds: int) -> str | bytes | None:
        """Keep the value for so long, unless there is one: in one step. SET NX EX of Redis.

        The value that is there; None: there was none
        """
        ...

    def put(self, key: str, value: str, seconds: int) -> None:
        """Keep the value for so long, in place of any other. SET EX of Redis."""
        ...

    def remove(self, key: str) -> None:
        """Forget the value, if there is one. DEL of Redis."""
        ...


class AsyncSeenStore(Protocol):
    """The same for `asgi.Receiver`, with methods that are awaited."""

    async def add(self, key: str, value: str, seconds: int) -> str | bytes | None: ...
    async def put(self, key: str, value: str, seconds: int) -> None: ...
    async def remove(self, key: str) -> None: ...


class MemorySeen:
    """A store for one process, which forgets everything when that ends. For threads as well.

    most:  keys; for a new one beyond them the one is dropped that was kept first
    clock: seconds, from any start
    """

    def __init__(self, most: int = 100_000, *, clock: Callable[[], float] = time.monotonic) -> None:
        if most < 1:
            raise ValueError(f"most: found {most}, expected at least 1")
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        #: The value, and when it ends, by key; what was kept first is first.
        self._kept: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def add(self, key: str, value: str, seconds: int) -> str | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None and found[1] > self._clock():
                return found[0]
            self._keep(key, value, seconds)
            return None

    def put(self, key: str, value: str, seconds: int) -> None:
        with self._lock:
            self._keep(key, value, seconds)

    def remove(self, key: str) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def __len__(self) -> int:
        return len(self._kept)

    def _keep(self, key: str, value: str, seconds: int) -> None:
        self._kept.pop(key, None)
        if len(self._kept) >= self._most:
            self._kept.popitem(last=False)
        self._kept[key] = (value, self._clock() + seconds)
