"""Many calls, a few at a time."""

from __future__ import annotations

import asyncio

import pytest

from gateway.manage.batches import AT_ONCE, ask_each


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 200])
async def test_few_calls_at_a_time(count: int) -> None:
    """The results are in order, and never more than a few calls are in progress."""
    under_way = most = 0

    async def ask(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return number * number

    assert await ask_each(ask, iter(range(count))) == [number**2 for number in range(count)]
    assert most == min(count, AT_ONCE)


async def test_a_failure_ends_the_batch() -> None:
    """An exception of one call is raised, and the calls after it are not made."""
    asked = []

    async def ask(number: int) -> int:
        asked.append(number)
        if number == 3:
            raise LookupError("three")
        return number

    with pytest.raises(LookupError, match="three"):
        await ask_each(ask, range(100))
    assert len(asked) <= AT_ONCE
