"""Limit warnings in pages."""

from __future__ import annotations

import pytest

from gateway.manage import warnings as managed
from gateway.manage.warnings import WarningPage, Warnings, is_id, warning_as_json
from gateway.stores.warnings.memory import MemoryWarningStore
from tests.suites.warnings import warning


async def filled(*key_ids) -> MemoryWarningStore:
    store = MemoryWarningStore()
    for number, key_id in enumerate(key_ids):
        await store.warn(warning(str(number), key_id=key_id))
    return store


def keys(page: WarningPage):
    return [one.key_id for one in page.warnings]


async def test_pages():
    """Pages go from the newest to the oldest warning; each says where the next begins."""
    book = Warnings(await filled(*"abcdefg"))
    first = await book.page(count=3)
    second = await book.page(first.next, 3)
    third = await book.page(second.next, 3)
    assert [keys(page) for page in (first, second, third)] == [list("gfe"), list("dcb"), ["a"]]
    assert third.next is None
    assert (await book.page(count=7)).next is None
    assert await Warnings(MemoryWarningStore()).page() == WarningPage((), None)


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
async def test_those_of_one_key(monkeypatch, chunk):
    """All warnings of a key are found, however old, and no others."""
    monkeypatch.setattr(managed, "CHUNK", chunk)
    book = Warnings(await filled(*"abbabbbba"))
    first = await book.page(count=2, key_id="a")
    second = await book.page(first.next, 2, key_id="a")
    assert [keys(page) for page in (first, second)] == [["a", "a"], ["a"]]
    assert second.next is None
    assert keys(await book.page(key_id="c")) == []


async def test_a_warning_is_shown_whole():
    """All fields of a warning, its time in RFC 3339."""
    (kept,) = await (await filled("7h3k9m2p4q6r")).newest()
    assert warning_as_json(kept) == {
        "id": "1-0",
        "time": "2027-01-15T08:00:00.123456Z",
        "key_id": "7h3k9m2p4q6r",
        "plan": "free",
        "limit": "search",
        "level": 80,
    }


def test_ids():
    """An id is two numbers; anything else is not sent to the store."""
    assert is_id("1800000000000-0")
    for text in ("", "5", "5-", "-5", "5-0\n", "(5-0", "+", "9" * 16 + "-0", "\u0666-0"):
        assert not is_id(text)
