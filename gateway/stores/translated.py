"""What redis-py raises, in the words of `domain.ports`: no answer from the store is StoreDown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.exceptions import RedisClusterException, RedisError

from gateway.domain.ports import StoreDown


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Around whatever asks the store; the words of an error never hold values of ours."""
    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        raise StoreDown(f"the store could not be asked: {error}") from error
