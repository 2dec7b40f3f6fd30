"""Keys that a test makes by itself, in place of the command that operators have."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gateway.domain import key_format
from gateway.domain.keys import KeyRecord


def make_key(
    spell: Callable[[int], int], environment: str = "production", **fields: Any
) -> tuple[str, KeyRecord]:
    """A new key that no store knows yet: its text and its record.

    spell:  gives a number below another, as `secrets.randbelow` does
    fields: of its record, in place of the plainest: an account of its own, on the plan `free`
    """
    text, key_id = key_format.mint(environment, spell)
    record = KeyRecord(
        id=key_id,
        digest=key_format.digest(text.encode()),
        name="test",
        account=key_id,
        plan="free",
        environment=environment,
        lineage=key_id,
        created_us=time.time_ns() // 1000,
    )
    return text, replace(record, **fields)
