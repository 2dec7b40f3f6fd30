"""Warnings of limits for people: the newest of them, in pages, of all keys or of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.domain.ports import WarningStore
from gateway.domain.warnings import KeptWarning
from gateway.manage.views import moment

#: Warnings asked for at once, where only those of one key are wanted.
CHUNK: Final = 1_000
#: How an id is spelled.
ID: Final = "[0-9]{1,15}-[0-9]{1,15}"


@dataclass(frozen=True, slots=True)
class WarningPage:
    """Some warnings, newest first. next: what `before` is for those that follow; None: no more."""

    warnings: tuple[KeptWarning, ...]
    next: str | None


class Warnings:
    """The warnings that a store has kept."""

    def __init__(self, store: WarningStore) -> None:
        self._store = store

    async def page(
        self, before: str | None = None, count: int = 50, *, key_id: str | None = None
    ) -> WarningPage:
        """The newest of those before an id, up to `count`; key_id: of this key alone."""
        found: list[KeptWarning] = []
        asked = CHUNK if key_id else count + 1
        while len(found) <= count:
            chunk = await self._store.newest(before=before, count=asked)
            found += [one for one in chunk if not key_id or one.key_id == key_id]
            if len(chunk) < asked:
                break
            before = chunk[-1].id
        shown = tuple(found[:count])
        return WarningPage(shown, shown[-1].id if len(found) > count else None)


def is_id(text: str) -> bool:
    """Is it spelled as an id of a warning?"""
    return re.fullmatch(ID, text) is not None


def warning_as_json(warning: KeptWarning) -> dict[str, object]:
    """All of a warning."""
    return {
        "id": warning.id,
        "time": moment(warning.at_us),
        "key_id": warning.key_id,
        "plan": warning.plan,
        "limit": warning.limit,
        "level": warning.level,
    }
