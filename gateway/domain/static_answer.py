"""`respond` of a route: an answer that needs no upstream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: RFC 9110, 6.4.1: these have no body.
BODILESS: Final = frozenset({204, 205, 304})


@dataclass(frozen=True, slots=True)
class StaticAnswer:
    """status: 200 to 599; content_type: of the body"""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
