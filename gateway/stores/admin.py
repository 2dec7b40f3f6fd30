"""State shared by the admin APIs and consoles of several gateways, in Redis or in process.

gw:{keys}:admin:ended:NAME  exists for an ended session, until the session would have expired
gw:{keys}:admin:token       "DIGEST HOST PATH" of a generated admin token, percent-encoded; expires
                            ten minutes after the last gateway with this token
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, unquote

from redis.asyncio import Redis, RedisCluster

from gateway.domain.ports import TokenMark
from gateway.stores.names import ADMIN_TOKEN, ENDED_PREFIX
from gateway.stores.redis.errors import translated

# Idempotent: the client retries a command whose reply was lost.
_MARK: Final = """
local there = redis.call('GET', KEYS[1])
if there and string.match(there, '^%x+') ~= ARGV[2] then return there end
redis.call('SET', KEYS[1], there or ARGV[1], 'EX', ARGV[3])
return there or ARGV[1]
"""


class RedisAdminStore:
    """domain.ports.AdminStore over a redis-py client, which its owner closes."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client

    async def end_session(self, name: str, for_s: int) -> None:
        """Mark a session as ended. for_s: how long the mark is kept"""
        async with translated():
            await self._redis.set(ENDED_PREFIX + name, b"1", ex=for_s)

    async def has_ended(self, name: str) -> bool:
        """Was the session ended?"""
        async with translated():
            return await self._redis.get(ENDED_PREFIX + name) is not None

    async def mark_token(self, mark: TokenMark, for_s: int) -> TokenMark:
        """Set the mark if there is none, or renew one with the same digest; the current mark."""
        written = " ".join(quote(part, safe="/") for part in (mark.digest, mark.host, mark.path))
        async with translated():
            there = await self._redis.eval(_MARK, 1, ADMIN_TOKEN, written, mark.digest, for_s)
        return _read_mark(there)


class MemoryAdminStore:
    """domain.ports.AdminStore in process, for memory:// and tests; never raises StoreDown."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        #: By the name of an ended session: when its mark expires.
        self._ended: dict[str, float] = {}
        self._mark: TokenMark | None = None
        self._marked_until_s = 0.0

    async def end_session(self, name: str, for_s: int) -> None:
        """Mark a session as ended. for_s: how long the mark is kept"""
        now_s = self._clock_s()
        self._ended = {other: end_s for other, end_s in self._ended.items() if end_s > now_s}
        self._ended[name] = now_s + for_s

    async def has_ended(self, name: str) -> bool:
        """Was the session ended?"""
        return self._ended.get(name, 0.0) > self._clock_s()

    async def mark_token(self, mark: TokenMark, for_s: int) -> TokenMark:
        """Set the mark if there is none, or renew one with the same digest; the current mark."""
        now_s = self._clock_s()
        if self._mark is None or self._marked_until_s <= now_s:
            self._mark = mark
        if self._mark.digest == mark.digest:
            self._marked_until_s = now_s + for_s
        return self._mark


def _read_mark(content: bytes) -> TokenMark:
    """A mark; an empty one where the content is malformed."""
    parts = content.decode("ascii", "replace").split(" ")
    return TokenMark(*map(unquote, parts)) if len(parts) == 3 else TokenMark("", "", "")
