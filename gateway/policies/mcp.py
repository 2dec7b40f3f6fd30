"""`mcp` of a route, and `mcp_sessions`: the secrets that seal session ids."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from gateway.domain import patterns
from gateway.domain.limits import MAX_AMOUNT
from gateway.domain.mcp.settings import OTHERS, LimitedCalls, Mcp, Tool
from gateway.domain.route import Route
from gateway.policies.limits import read_rate_and_burst
from gateway.policies.secrets import read_secret_lines
from gateway.policies.settings import read_permission, read_size_up_to, read_timeout
from gateway.policies.values import Fields, Value, setting

MCP: Final = ("max_body", "limited_calls", "keepalive", "tools", "list")
TOOL: Final = ("permission", "cost", "rate", "burst")
NAME_EXPECTED: Final = "a tool's name: up to 128 letters, digits, '_', '-', '.' and '/'; or *"
MOST_TOOLS: Final = 1_000
#: A message is read whole, before its key's limits are known: the bound of what one may send.
MOST_BODY_BYTES: Final = 16 * 1024 * 1024
#: Settings that have no meaning where the gateway reads messages.
_OTHER_READINGS: Final = ("body", "json_rpc", "respond", "rewrite", "retries", "canary")

#: The shortest secret, and the most: one that seals, and one that was used before.
LEAST_SECRET: Final = 32
MOST_SECRETS: Final = 2


def read_mcp(given: Fields, route: Route) -> Mcp | None:
    """The section of a route. given: all entries of the route"""
    at = given["mcp"]
    entries = at.fields(MCP)
    if entries is None:
        return None
    for key in _OTHER_READINGS:
        if key in given:
            given[key].add_fault(f"no {key} on a route with mcp", key)
    if route.costing is not None:
        given["cost"].add_fault("a number on a route with mcp", "a cost that the request says")
    if route.methods.isdisjoint(("*", "POST")):
        at.add_fault("a match with POST, by which clients send messages", f"mcp on {route.pattern}")
    default = Mcp()
    none: tuple[dict[str, Tool], Tool] = ({}, default.others)
    tools, others = setting(entries, "tools", _read_tools, none)
    if route.auth == "none" and any(one.permission for one in (*tools.values(), others)):
        entries["tools"].add_fault("no permission, as auth: none uses no key", "a permission")
    return Mcp(
        body_bytes=setting(
            entries, "max_body", partial(read_size_up_to, MOST_BODY_BYTES), default.body_bytes
        ),
        limited_calls=setting(entries, "limited_calls", _read_calls, default.limited_calls),
        keepalive_s=setting(entries, "keepalive", read_timeout, default.keepalive_s),
        tools=MappingProxyType({name: _of_route(tool, route) for name, tool in tools.items()}),
        others=others,
        is_filtered=setting(entries, "list", _read_list, default.is_filtered),
    )


def _read_calls(value: Value) -> LimitedCalls | None:
    text = str(value.node.value)  # a status is a number in YAML
    if text not in ("429", "result"):
        value.add_fault("429 or result")
        return None
    return "429" if text == "429" else "result"


def _read_list(value: Value) -> bool | None:
    text = value.choice("filtered", "as-is")
    return None if text is None else text == "filtered"


def _read_tools(value: Value) -> tuple[dict[str, Tool], Tool] | None:
    named = value.entries("a mapping of tools to their rules")
    if named is None:
        return None
    if len(named) > MOST_TOOLS:
        value.add_fault(f"at most {MOST_TOOLS} tools", f"{len(named)} tools")
        return None
    tools: dict[str, Tool] = {}
    for name, entry in named.items():
        tool = _read_tool(name, entry)
        if tool is not None:
            tools[name] = tool
    return tools, tools.pop(OTHERS, Tool())


def _read_tool(name: str, value: Value) -> Tool | None:
    """One tool: allow, deny, or its rules."""
    if name != OTHERS and not re.fullmatch(patterns.TOOL, name):
        value.add_fault(NAME_EXPECTED, name[:128])
        return None
    if not value.is_mapping:
        text = value.choice("allow", "deny")
        return None if text is None else Tool(is_denied=text == "deny")
    given = value.fields(TOOL)
    if given is None:
        return None
    limit = None
    if name == OTHERS and (key := next((key for key in ("rate", "burst") if key in given), None)):
        given[key].add_fault(f"no {key} for all other tools: a limit of the route counts them")
    elif "rate" in given:
        limit = read_rate_and_burst(given, name)
    elif "burst" in given:
        given["burst"].add_fault("a rate with it", "a burst without a rate")
    return Tool(
        permission=setting(given, "permission", read_permission, None),
        cost=setting(given, "cost", lambda one: one.integer(1, MAX_AMOUNT), None),
        limit=limit,
    )


def _of_route(tool: Tool, route: Route) -> Tool:
    """The tool with its limit named after the route: two servers may have tools of one name."""
    if tool.limit is None:
        return tool
    name = tool.limit.name
    was = tuple(f"{earlier}/{name}" for earlier in route.was)
    return replace(tool, limit=replace(tool.limit, name=f"{route.name}/{name}", was=was))


def read_secrets(value: Value) -> tuple[bytes, ...] | None:
    """`mcp_sessions`: the file with the secrets, one in a line; the first one seals."""
    given = value.fields(("secrets",), required=("secrets",))
    if not given:
        return None
    expected = f"one or two lines of at least {LEAST_SECRET} characters each"
    secrets = read_secret_lines(given["secrets"], MOST_SECRETS, expected)
    if secrets is None:
        return None
    shortest = min(map(len, secrets))
    if shortest < LEAST_SECRET:
        given["secrets"].add_fault(expected, f"{given['secrets'].found} with {shortest} characters")
        return None
    return secrets
