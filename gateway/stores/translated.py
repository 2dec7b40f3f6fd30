"""What redis-py raises, in the words of `domain.ports`: no answer from the store is StoreDown.

Nor is one that is not of the form that was asked for, such as a number in place of a list. What is
made of it then ends in one of a few errors of Python, in redis-py or in what reads the answer: so
`asked` is around a store as a whole. Records are another matter, and CorruptRecord: they are what
somebody has put into the store.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar, cast

from redis.exceptions import RedisClusterException, RedisError

from gateway.domain.ports import StoreDown
from gateway.observe.seldom import Seldom

log = logging.getLogger("gateway")

Store = TypeVar("Store")

_seldom: Final = Seldom()

#: What reading an answer of another form ends in. LookupError: one that has too few parts.
_MISREAD: Final = (TypeError, ValueError, AttributeError, LookupError)


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Around whatever asks the store; the words of an error never hold values of ours."""
    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        raise StoreDown(f"the store could not be asked: {error}") from error
    except _MISREAD as error:
        # Or a mistake of ours, which the traceback tells.
        if (left_out := _seldom.left_out("misread", time.monotonic())) is not None:
            more = f" ({left_out} such errors were left out)" if left_out else ""
            log.warning("an answer of the store cannot be read%s", more, exc_info=error)
        raise StoreDown("the store answered what was not asked for") from error


def asked(store: Store) -> Store:
    """The store; each of its methods as a whole is translated."""
    return cast(Store, _Asked(store))


class _Asked:
    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return translated()(found) if iscoroutinefunction(found) else found
