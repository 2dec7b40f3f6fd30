"""The tools that differ between two policies, and what that means for who may call them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.policy import Policy
from gateway.manage.policy_changes import compare
from gateway.manage.policy_tools import ToolChange, mcp_words, tool_changes
from gateway.policies.load import load
from tests.kit.policies import write_policies

UPSTREAM = "http://127.0.0.1:9"
ROUTES = 'routes:\n  tools: {{match: "* /mcp", upstream: api, plan_limits: false{}}}\n'


def policy(folder: Path, section: str) -> Policy:
    """With one route, `tools`; section: "": it has no `mcp`"""
    routes = ROUTES.format(f", mcp: {section}" if section else "")
    return load(write_policies(folder, UPSTREAM, routes=routes))


def changes(folder: Path, old: str, new: str) -> list[ToolChange]:
    policies = policy(folder / "old", old), policy(folder / "new", new)
    return list(tool_changes(*policies, {}))


@pytest.mark.parametrize(
    ("old", "new", "effect", "words"),
    [
        ("{permission: 'a:b'}", "allow", "less_access", ("permission a:b", "any key")),
        ("deny", "allow", "less_access", ("denied", "any key")),
        ("deny", "{permission: 'a:b'}", "less_access", ("denied", "permission a:b")),
        ("{permission: 'a:b'}", "{permission: 'a:c'}", "less_access", None),
        ("allow", "{permission: 'a:b'}", "more_access", ("any key", "permission a:b")),
        ("allow", "deny", "more_access", ("any key", "denied")),
        ("{permission: 'a:b'}", "deny", "more_access", None),
        ("{cost: 2}", "{cost: 3}", "route", ("any key, cost 2", "any key, cost 3")),
    ],
)
def test_one_tool(
    tmp_path: Path, old: str, new: str, effect: str, words: tuple[str, str] | None
) -> None:
    """What a key needs is compared, and then what a call costs."""
    (change,) = changes(tmp_path, f"{{tools: {{x: {old}}}}}", f"{{tools: {{x: {new}}}}}")
    assert (change.effect, change.name) == (effect, "tools/x")
    assert words is None or (change.before, change.after) == words


def test_all_other_tools(tmp_path: Path) -> None:
    """A tool that one policy does not name has the rules of all others there."""
    found = changes(tmp_path, "{tools: {x: allow, '*': allow}}", "{tools: {y: allow, '*': deny}}")
    assert [(change.effect, change.name) for change in found] == [
        ("more_access", "tools/x"),
        ("more_access", "tools/*"),
    ]


def test_without_the_section(tmp_path: Path) -> None:
    """The gateway then knows no tools: all of them can be called."""
    (change,) = changes(tmp_path, "{tools: {x: {permission: 'a:b'}}}", "")
    assert (change.effect, change.after) == ("less_access", "any key")
    assert changes(tmp_path, "", "{}") == []
    assert changes(tmp_path, "", "") == []


def test_in_a_comparison(tmp_path: Path) -> None:
    """Tools come by what they mean; rates of tools are limits; other settings are the route's."""
    old = policy(tmp_path / "old", "{tools: {x: {permission: 'a:b', rate: 5/minute}}}")
    new = policy(tmp_path / "new", "{list: as-is, tools: {x: {rate: 9/minute}}}")
    assert [str(change) for change in compare(old, new)] == [
        "needs less: tool tools/x: permission a:b → any key",
        "limit: tools/x, route tools: 5/minute, per key → 9/minute, per key; counters are kept",
        "route: tools: mcp limited_calls 429, keepalive 15s, list filtered"
        " → mcp limited_calls 429, keepalive 15s, list as-is",
    ]


def test_a_renamed_route(tmp_path: Path) -> None:
    """Its tools are compared with those that it had."""
    old = policy(tmp_path / "old", "{tools: {x: deny}}")
    text = ROUTES.format(", was: tools, mcp: {tools: {x: allow}}").replace("  tools:", "  other:")
    new = load(write_policies(tmp_path / "new", UPSTREAM, routes=text))
    assert "needs less: tool other/x: denied → any key" in map(str, compare(old, new))


def test_no_section_in_words() -> None:
    assert mcp_words(None) == "none"
