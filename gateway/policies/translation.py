"""`translate` of a route: which fields of answers get the client's places."""

from __future__ import annotations

from typing import Final, get_args

from gateway.domain.rewrites import Rewrite
from gateway.domain.translation import Part, Translation
from gateway.policies.values import Value

PARTS: Final = get_args(Part)


def read_translation(value: Value, rewrite: Rewrite | None) -> Translation | None:
    """rewrite: of the same route"""
    items = value.items("a list of location and cookies")
    if items is None:
        return None
    if not items:
        value.add_fault("location, cookies or both", "an empty list")
    parts: dict[str, None] = {}
    for item in items:
        part = item.choice(*PARTS)
        if part in parts:
            item.add_fault("each once", f"{item.found} again")
        elif part is not None:
            parts[part] = None
    if "location" in parts and rewrite is not None and rewrite.back is None:
        value.add_fault(
            "no location, or a rewrite with all of match: each name and its **, and no *",
            "location, with a rewrite that leaves something out",
        )
    return Translation("location" in parts, "cookies" in parts)
