"""Many requests to the store, a few at a time.

Each request in progress takes a connection. A page of 200 keys that sent 200 at once opened 200
connections, more than the client permits, and kept their descriptors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

AT_ONCE: Final = 8

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


async def ask_each(
    ask: Callable[[_Asked], Awaitable[_Answer]], subjects: Iterable[_Asked]
) -> list[_Answer]:
    """The answers, in the order of the subjects."""
    rest, answers = iter(subjects), list[_Answer]()
    while batch := list(islice(rest, AT_ONCE)):
        answers += await asyncio.gather(*map(ask, batch))
    return answers
