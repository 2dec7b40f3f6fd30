"""`maintenance` of a route, or of all: its requests are refused for now."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.domain.networks import Network, is_within, parse_address


@dataclass(frozen=True, slots=True)
class Maintenance:
    """How requests are refused.

    message:       for the client; None: the refusal's own
    retry_after_s: whole seconds
    allow:         addresses that are served
    """

    message: str | None = None
    retry_after_s: float = 300.0
    allow: tuple[Network, ...] = ()

    def admits(self, address: str) -> bool:
        """Is a client of this address served?"""
        return bool(self.allow) and is_within(parse_address(address), self.allow)
