"""The addresses of receivers' names.

Anybody may register a watch whose name is answered late, at length, or never. Such a name costs its
own deliveries only: no look-up holds a thread, there is one at a time for each name, and it has
little time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway import tasks
from gateway.proxy.resolver import Resolver

#: How long a look-up may take.
LIMIT_S: Final = 5.0
#: The most look-ups at once of names that were found lately, and as many of all others.
MOST_AT_ONCE: Final = 256
#: How long addresses are used: as long as their time to live, within these bounds.
LEAST_S: Final = 1.0
MOST_S: Final = 60.0
#: Names whose addresses are kept. Those that were found longest ago make room.
MOST_NAMES: Final = 10_000
#: Records of an answer that are read, and of all answers in a second: they take a fifth of it.
_BOUNDS: Final = (16, 4_000)
#: A route to the address is looked for with it; any would do.
_PORT: Final = 443


class NoAnswer(OSError):
    """DNS did not answer in time."""


@dataclass(slots=True)
class _Asked:
    """A look-up in progress: its addresses, None if it was late. waiting: how many wait for it"""

    task: asyncio.Task[list[str] | None]
    waiting: int = 0


class Names:
    """Looks names up for one sender, within one event loop.

    resolver: one that does not ask the system, which takes a thread
    now_s:    a monotonic clock
    """

    def __init__(
        self,
        resolver: Resolver | None = None,
        *,
        limit_s: float = LIMIT_S,
        most_at_once: int = MOST_AT_ONCE,
        most_names: int = MOST_NAMES,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resolver = resolver or Resolver(asks_system=False, bounds=_BOUNDS)
        self._limit_s = limit_s
        self._most_names = most_names
        self._now_s = now_s
        #: By name: the addresses, and until when they are used. Afterwards the name still does not
        #: wait in the line of those that were never found.
        self._found: dict[str, tuple[list[str], float]] = {}
        self._asked: dict[str, _Asked] = {}
        self._lines = {was_found: asyncio.Semaphore(most_at_once) for was_found in (True, False)}

    async def of(self, host: str) -> Sequence[str]:
        """The addresses of a name. Raises NoAnswer, OSError."""
        addresses, until_s = self._found.get(host, ([], 0.0))
        if not addresses or until_s <= self._now_s():
            addresses = await self._shared(host)
        return addresses

    async def _shared(self, host: str) -> list[str]:
        """Wait for the look-up of this name, which others may wait for as well."""
        asked = self._asked.get(host)
        if asked is None:
            asked = _Asked(tasks.spawn(self._look_up(host), "look-up of a receiver"))
            self._asked[host] = asked
        asked.waiting += 1
        try:
            addresses = await asyncio.shield(asked.task)
        finally:
            asked.waiting -= 1
            if not asked.waiting:
                del self._asked[host]
                asked.task.cancel()
        if addresses is None:
            raise NoAnswer("DNS did not answer in time")
        if not addresses:
            raise OSError("the name has no address")
        return addresses

    async def _look_up(self, host: str) -> list[str] | None:
        async with self._lines[host in self._found]:
            try:
                async with asyncio.timeout(self._limit_s):
                    addresses, ttl_s = await self._resolver.addresses(host, _PORT)
            except OSError as error:
                self._found.pop(host, None)
                return None if isinstance(error, TimeoutError) else []
        self._keep(host, addresses, min(max(ttl_s, LEAST_S), MOST_S))
        return addresses

    def _keep(self, host: str, addresses: list[str], for_s: float) -> None:
        self._found.pop(host, None)
        self._found[host] = (addresses, self._now_s() + for_s)
        if len(self._found) > self._most_names:
            del self._found[next(iter(self._found))]
