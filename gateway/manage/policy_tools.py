"""The tools of MCP routes that differ between two policies: who may call them, and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gateway.domain.mcp.settings import Mcp, Tool
from gateway.domain.policy import Policy

#: Of a route without `mcp`, where the gateway knows no tools.
_NO_TOOLS: Final = Mcp()


@dataclass(frozen=True, slots=True)
class ToolChange:
    """A tool that differs. name: "ROUTE/TOOL"; before, after: in words"""

    effect: Literal["less_access", "more_access", "route"]
    name: str
    before: str
    after: str


def tool_changes(old: Policy, new: Policy, renamed: Mapping[str, str]) -> Iterator[ToolChange]:
    """The tools that differ on routes that both have; `*` is all that neither names.

    renamed: routes' names -> their earlier ones
    """
    for name, route in new.routes.items():
        earlier = old.routes.get(renamed.get(name, name))
        if earlier is None or (earlier.mcp is None and route.mcp is None):
            continue
        before, after = earlier.mcp or _NO_TOOLS, route.mcp or _NO_TOOLS
        for tool in {**before.rules, **after.rules}:
            pair = before.tool(tool), after.tool(tool)
            words = [tool_words(one) for one in pair]
            if words[0] != words[1]:
                yield ToolChange(_effect(*pair), f"{name}/{tool}", *words)


def tool_words(tool: Tool) -> str:
    """Who may call it, and what a call costs."""
    if tool.is_denied:
        return "denied"
    needed = "any key" if tool.permission is None else f"permission {':'.join(tool.permission)}"
    return needed if tool.cost is None else f"{needed}, cost {tool.cost}"


def mcp_words(mcp: Mcp | None) -> str:
    """The settings, without the tools."""
    if mcp is None:
        return "none"
    listed = "filtered" if mcp.is_filtered else "as-is"
    return f"limited_calls {mcp.limited_calls}, keepalive {mcp.keepalive_s:g}s, list {listed}"


def _effect(before: Tool, after: Tool) -> Literal["less_access", "more_access", "route"]:
    needs = [(tool.is_denied, tool.permission) for tool in (before, after)]
    if needs[0] == needs[1]:
        return "route"
    if after.is_denied or (not before.is_denied and before.permission is None):
        return "more_access"
    return "less_access"
