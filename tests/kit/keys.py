"""Keys that a test makes without a command."""

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
    """Make a key, which no store has yet; return its text and its record.

    spell:  returns a random number below its argument, as `secrets.randbelow`
    fields: of its record, in place of the defaults: its own account, the plan `free`
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
