"""Who does something, for the audit log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Actor:
    """name: "anna"; via: "api", "console" or "cli"; address: where from, where that is a network"""

    name: str
    via: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(filter(None, (self.via, self.address)))})"
