"""Many questions to the store, a few at a time.

Each question that is under way has a connection of its own. All at once, a page of 200 keys would
open 200, more than a client may have, and keep as many descriptors.
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
    """The answers about all of these, in order."""
    rest, answers = iter(subjects), list[_Answer]()
    while batch := list(islice(rest, AT_ONCE)):
        answers += await asyncio.gather(*map(ask, batch))
    return answers
