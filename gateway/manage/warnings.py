"""Warnings of limits: the newest, in pages, of all keys or of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.domain.ports import WarningStore
from gateway.domain.warnings import KeptWarning
from gateway.manage.views import moment

#: Warnings per request to the store, if only those of one key are wanted.
CHUNK: Final = 1_000
#: The format of an id.
ID: Final = "[0-9]{1,15}-[0-9]{1,15}"


@dataclass(frozen=True, slots=True)
class WarningPage:
    """A page of warnings, newest first. next: the `before` of the next page; None: there is none"""

    warnings: tuple[KeptWarning, ...]
    next: str | None


class Warnings:
    """The warnings in a store."""

    def __init__(self, store: WarningStore) -> None:
        self._store = store

    async def page(
        self, before: str | None = None, count: int = 50, *, key_id: str | None = None
    ) -> WarningPage:
        """The newest before an id, up to `count`. key_id: only those of this key"""
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
    """Does it have the format of a warning's id?"""
    return re.fullmatch(ID, text) is not None


def warning_as_json(warning: KeptWarning) -> dict[str, object]:
    """A warning as JSON."""
    return {
        "id": warning.id,
        "time": moment(warning.at_us),
        "key_id": warning.key_id,
        "plan": warning.plan,
        "limit": warning.limit,
        "level": warning.level,
    }
