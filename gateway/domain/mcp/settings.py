"""The `mcp` section of a route, which is then in front of an MCP server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from gateway.domain.keys import KeyRecord
from gateway.domain.limits import Limit

LimitedCalls = Literal["429", "result"]

#: Of all that a client can send, the one that names a tool.
CALL: Final = "tools/call"
LIST: Final = "tools/list"
#: The entry of all tools that have none of their own.
OTHERS: Final = "*"


@dataclass(frozen=True, slots=True)
class Tool:
    """The rules of one tool.

    is_denied:  no key may call it, as if the server did not have it
    permission: that a key needs: ("scm", "read"); None: none
    cost:       how many units a call counts; None: as any request of the route
    limit:      on calls of this tool, in addition to the route's; None: there is none
    """

    is_denied: bool = False
    permission: tuple[str, str] | None = None
    cost: int | None = None
    limit: Limit | None = None

    def is_permitted(self, record: KeyRecord) -> bool:
        """Has a key the permission that it needs?"""
        if self.permission is None:
            return True
        area, action = self.permission
        return action in record.permissions.get(area, ())


@dataclass(frozen=True, slots=True)
class Mcp:
    """The settings.

    body_bytes:    the largest message. One is read in three steps, in each of which the event loop
                   of a worker does nothing else, for up to 10 ms a MiB
    limited_calls: how a refused call is answered: status 429, or status 200 and a result that
                   says that the call failed
    keepalive_s:   the longest silence of an event stream
    tools:         rules by name
    others:        rules of all other tools
    is_filtered:   lists of tools have only those that the key may call
    """

    body_bytes: int = 1024 * 1024
    limited_calls: LimitedCalls = "429"
    keepalive_s: float = 15.0
    tools: Mapping[str, Tool] = field(default_factory=lambda: MappingProxyType({}))
    others: Tool = Tool()
    is_filtered: bool = True

    def tool(self, name: str) -> Tool:
        """The rules of a tool."""
        return self.tools.get(name, self.others)

    @property
    def rules(self) -> Mapping[str, Tool]:
        """All rules by name, those of all other tools as OTHERS."""
        return {**self.tools, OTHERS: self.others}

    @property
    def permissions(self) -> frozenset[tuple[str, str]]:
        """Those that tools need."""
        tools = self.rules.values()
        return frozenset(tool.permission for tool in tools if tool.permission is not None)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Those of its tools."""
        return tuple(tool.limit for tool in self.tools.values() if tool.limit is not None)
