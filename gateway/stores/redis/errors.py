"""Translates the errors of redis-py into those of `domain.ports`: a failed command is StoreDown.

A reply of another type than expected, such as a number in place of a list, is StoreDown as well. It
raises one of a few errors of Python, in redis-py or in the code that reads the reply: so
`translating` wraps a store as a whole. A record that cannot be read is a CorruptRecord instead:
others may have written it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction
from typing import Any, Final, Literal, TypeVar, cast

from redis.exceptions import RedisClusterException, RedisError

from gateway.domain.ports import StoreDown, WrongType
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.redis.reasons import with_cure
from gateway.tasks import cancellable

log = logging.getLogger("gateway")

Store = TypeVar("Store")

#: Types of values, as Redis calls them.
Kind = Literal["set", "zset", "stream"]

_throttle: Final = LogThrottle()

#: What reading an unexpected reply raises. LookupError: it has too few parts.
_MISREAD: Final = (TypeError, ValueError, AttributeError, LookupError)


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Translate the errors of commands to the store. The messages never contain values."""
    try:
        async with cancellable():
            yield
    except (RedisError, RedisClusterException, OSError) as error:
        raise StoreDown(with_cure(f"the store is unavailable: {error}")) from error
    except _MISREAD as error:
        # It may also be a bug of the gateway, which the traceback shows.
        if (suppressed := _throttle.suppressed("misread", time.monotonic())) is not None:
            more = f" ({suppressed} such errors were suppressed)" if suppressed else ""
            log.warning("a reply of the store cannot be read%s", more, exc_info=error)
        raise StoreDown("the store sent an unexpected reply") from error


@asynccontextmanager
async def typed(client: Any, name: str, kind: Kind) -> AsyncIterator[None]:
    """Like `translated`; raises WrongType where the value under this name has another type."""
    try:
        async with translated():
            yield
    except StoreDown as error:
        if "WRONGTYPE" in str(error.__cause__):
            await check_type(client, name, kind)
        raise


async def check_type(client: Any, name: str, kind: Kind) -> None:
    """Raise WrongType where the value under the name has another type."""
    async with translated():
        found = (await client.type(name)).decode("ascii", "replace")
    if found not in (kind, "none"):
        raise WrongType(name, found, kind)


def translating(store: Store) -> Store:
    """The store, with the errors of each of its methods translated."""
    return cast(Store, _Translating(store))


class _Translating:
    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return translated()(found) if iscoroutinefunction(found) else found
