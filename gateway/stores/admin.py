"""What the admin sides of several gateways share, in Redis. `domain.ports.AdminStore`

gw:{keys}:admin:ended:NAME  exists for an ended session, until it would have expired anyway
gw:{keys}:admin:token       "DIGEST HOST PATH" of a generated admin token, percent-encoded; expires
                            ten minutes after the last gateway with this token
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, unquote

from redis.asyncio import Redis, RedisCluster

from gateway.domain.ports import TokenMark
from gateway.stores.records import KEYS_TAG
from gateway.stores.translated import translated

ENDED_PREFIX: Final = KEYS_TAG + "admin:ended:"
TOKEN: Final = KEYS_TAG + "admin:token"

# Idempotent: the client repeats a command whose answer was lost.
_MARK: Final = """
local there = redis.call('GET', KEYS[1])
if there and string.match(there, '^%x+') ~= ARGV[2] then return there end
redis.call('SET', KEYS[1], there or ARGV[1], 'EX', ARGV[3])
return there or ARGV[1]
"""


class RedisAdminStore:
    """domain.ports.AdminStore over a redis-py client, which stays its owner's to close."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client

    async def end_session(self, name: str, for_s: int) -> None:
        """Note that a session was ended. for_s: how long the note is needed"""
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
            there = await self._redis.eval(_MARK, 1, TOKEN, written, mark.digest, for_s)
        return _read_mark(there)


def _read_mark(content: bytes) -> TokenMark:
    """A mark; an empty one where the content is malformed."""
    parts = content.decode("ascii", "replace").split(" ")
    return TokenMark(*map(unquote, parts)) if len(parts) == 3 else TokenMark("", "", "")
