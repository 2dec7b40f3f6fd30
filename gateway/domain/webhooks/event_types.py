"""Types of events, such as `pull_request.merged`, and the patterns by which watches choose them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

#: The longest type or pattern, in characters.
MOST_TYPE: Final = 128
#: Of patterns, which are types as well.
PATTERN: Final = r"[a-z0-9_]+(?:\.[a-z0-9_]+)*\.(?:\*|[a-z0-9_]+)"
_TYPE = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)+").fullmatch
_PATTERN = re.compile(PATTERN).fullmatch


def is_type(text: str) -> bool:
    """Is it the type of an event: segments of lower-case letters, digits and _, at least two?"""
    return len(text) <= MOST_TYPE and _TYPE(text) is not None


def is_pattern(text: str) -> bool:
    """Is it a type, or `PREFIX.*`?"""
    return len(text) <= MOST_TYPE and _PATTERN(text) is not None


def takes(patterns: Collection[str], event_type: str) -> bool:
    """Does a watch with these patterns get events of this type?

    By segment: `pull_request.*` takes `pull_request.merged` and `pull_request.review.submitted`,
    not `pull_request_review.submitted`.
    """
    if event_type in patterns:
        return True
    prefix = event_type
    while "." in prefix:
        prefix = prefix.rpartition(".")[0]
        if f"{prefix}.*" in patterns:
            return True
    return False
