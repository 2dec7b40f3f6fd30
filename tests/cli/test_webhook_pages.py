"""Lists of webhooks that take several pages of the store."""

from __future__ import annotations

from gateway.cli.webhooks import paged
from gateway.domain.webhooks.deliveries import Page


async def test_a_list_has_as_many_pages_as_it_takes() -> None:
    """Also after pages that are short or empty, and no more than it needs."""
    pages = {0: Page(["a"], 9), 9: Page[str]([], 7), 7: Page(["b", "c"], 5), 5: Page(["d"], 0)}
    asked: list[tuple[int, int]] = []

    async def read(most: int, before_us: int) -> Page[str]:
        asked.append((most, before_us))
        return pages[before_us]

    assert await paged(read, 3, 0) == ["a", "b", "c"]
    assert asked == [(3, 0), (2, 9), (2, 7)]
    assert await paged(read, 50, 0) == ["a", "b", "c", "d"]
