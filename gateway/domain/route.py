"""A route: one entry of the policy's `routes`. `domain/routes.py` matches requests to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gateway.domain.limits import Limit

Auth = Literal["key", "none"]


@dataclass(frozen=True, slots=True)
class Route:
    """One entry of `routes`.

    method:   "GET", or "*" for any
    segments: the pattern's path, decoded, split at slashes: ("api", "*", "batch");
              "*" is one segment
    rest:     the pattern ends in /* or /**: it matches any further segments, or none
    limits:   its own, in the order of the policy file
    cost:     how many units one request counts
    json_rpc: a 429's body is a JSON-RPC error, as clients of an MCP route expect
    case_sensitive: its upstream distinguishes paths that differ in letter case only
    keeps_slashes: its upstream treats an encoded slash as a part of its segment
    where:    "routes.yaml:3", for messages
    """

    name: str
    method: str
    segments: tuple[str, ...]
    rest: bool
    upstream: str
    auth: Auth = "key"
    scopes: tuple[str, ...] = ()
    permission: tuple[str, str] | None = None
    service: str | None = None
    plan_limits: bool = True
    limits: tuple[Limit, ...] = ()
    cost: int = 1
    json_rpc: bool = False
    case_sensitive: bool = False
    keeps_slashes: bool = False
    where: str = ""

    @property
    def pattern(self) -> str:
        """As it is written in a policy file: "GET /api/search/*"."""
        path = "/" + "/".join((*self.segments, *(("**",) if self.rest else ())))
        return f"{self.method} {path}"
