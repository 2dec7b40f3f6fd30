"""The keys with MCP connections in Redis, by the reports of workers.

gw:{keys}:mcp:WORKER   "ID=COUNT ID=COUNT": the keys with most connections at one worker; expires

Finding them among the counters of limits would take a scan of all names in Redis. This takes one
short text for each worker that has connections, every other second, however many keys there are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from gateway.stores.limits.membership import read_ids
from gateway.stores.names import MCP_PREFIX, WORKERS
from gateway.stores.redis.errors import translated

#: How long a report holds: two later ones may fail.
HOLDS_MS: Final = 6_000
#: The most workers that are read, in steps, and the most bytes of a report.
_MOST_WORKERS: Final = 1_000
_STEP: Final = 100
_MOST_BYTES: Final = 4_000
_ENTRY: Final = re.compile(rb"([0-9A-Za-z]{1,12})=([0-9]{1,9})")

# KEYS: reports; ARGV: the most bytes of one. A value of another type is ''.
_READ: Final = """
local found = {}
for at, name in ipairs(KEYS) do
  local text = redis.pcall('GETRANGE', name, 0, ARGV[1] - 1)
  if type(text) == 'table' then
    if not string.find(text.err, 'WRONGTYPE') then return text end
    text = ''
  end
  found[at] = text
end
return found
"""

#: Sends a command and returns its reply; it may raise.
Ask = Callable[..., Awaitable[Any]]


class RedisConnectionStore:
    """domain.ports.ConnectionStore over any function that sends commands."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def report(self, worker: str, connected: Mapping[str, int]) -> None:
        """How many connections keys have open at a worker, by id. It holds for some seconds."""
        text = " ".join(f"{key_id}={count}" for key_id, count in connected.items())
        async with translated():
            if text:
                await self._ask("SET", MCP_PREFIX + worker, text, "PX", HOLDS_MS)
            else:
                await self._ask("DEL", MCP_PREFIX + worker)

    async def connected(self) -> Mapping[str, int]:
        """The same, of all live workers added up."""
        found: Counter[str] = Counter()
        async with translated():
            workers = await self._ask("ZRANGE", WORKERS, 0, _MOST_WORKERS - 1)
            names = [MCP_PREFIX + worker for worker in read_ids(workers)]
            for start in range(0, len(names), _STEP):
                some = names[start : start + _STEP]
                for text in await self._ask("EVAL", _READ, len(some), *some, _MOST_BYTES):
                    for entry in text.split(b" "):
                        if (read := _ENTRY.fullmatch(entry)) is not None:
                            found[read[1].decode()] += int(read[2])
        return found
