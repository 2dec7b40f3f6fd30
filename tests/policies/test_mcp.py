"""`mcp` of a route and `mcp_sessions`: what is read, and each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.limits import Limit
from gateway.domain.mcp.settings import Mcp, Tool
from gateway.policies.load import load
from tests.policies.folder import complaints, write

ROUTE = """
routes:
  mcp: {{match: "* /mcp/**", upstream: api, was: [tools], mcp: {0}{1}}}
"""
RATE = Limit("mcp/a", "rate", 5, 60_000_000, was=("tools/a",))


def read(folder: Path, section: str, more: str = "") -> Mcp:
    mcp = load(write(folder, routes=ROUTE.format(section, more))).routes["mcp"].mcp
    assert mcp is not None
    return mcp


def test_defaults(tmp_path: Path) -> None:
    """An empty section has all defaults; the bound of bodies is that of messages."""
    folder = write(tmp_path, routes=ROUTE.format("{}", ""))
    route = load(folder).routes["mcp"]
    assert route.mcp == Mcp()
    assert route.body_bytes == 1024 * 1024
    assert "mcp-session-id" in load(folder).counted_headers


def test_all_settings(tmp_path: Path) -> None:
    """Tools have names of their own limits, which stay when the route is renamed."""
    section = (
        "{max_body: 4MiB, limited_calls: result, keepalive: 5s, list: as-is, tools: {"
        'a: {permission: "scm:read", cost: 5, rate: 5/minute}, b: allow, c: deny, "*": deny}}'
    )
    mcp = read(tmp_path, section)
    assert dict(mcp.tools) == {
        "a": Tool(permission=("scm", "read"), cost=5, limit=RATE),
        "b": Tool(),
        "c": Tool(is_denied=True),
    }
    assert mcp.others == Tool(is_denied=True)
    assert (mcp.body_bytes, mcp.limited_calls) == (4 * 1024 * 1024, "result")
    assert (mcp.keepalive_s, mcp.is_filtered) == (5.0, False)
    assert read(tmp_path, "{limited_calls: 429}").limited_calls == "429"


def test_plans_override_limits_of_tools(tmp_path: Path) -> None:
    """By their names; a tool without a rate has no limit to override."""
    routes = ROUTE.format("{tools: {a: {rate: 5/minute}, b: allow}}", "")
    plans = "plans:\n  free: {{rate: 9/minute, routes: {{{}: 7/minute}}}}\n"
    folder = write(tmp_path, routes=routes, plans=plans.format("mcp/a"))
    assert load(folder).plans["free"].overrides["mcp/a"].amount == 7
    (told,) = complaints(write(tmp_path, routes=routes, plans=plans.format("mcp/b")))
    assert "found 'mcp/b', expected one of" in told
    assert "did you mean 'mcp/a'" in told


@pytest.mark.parametrize(
    ("section", "faults"),
    [
        ("true", [".mcp: found true"]),
        ("{tool: {}}", [".mcp.tool: found the key 'tool', expected one of max_body"]),
        ("{max_body: 17MiB}", [".max_body: found '17MiB', expected a size up to 16MiB"]),
        ("{limited_calls: 430}", [".limited_calls: found the number 430, expected 429 or result"]),
        ("{keepalive: 0s}", [".keepalive: found '0s', expected a duration above 0s"]),
        ("{list: all}", [".list: found 'all', expected one of filtered, as-is"]),
        ("{tools: [a]}", [".tools: found a list, expected a mapping of tools"]),
        ("{tools: {a: maybe}}", [".tools.a: found 'maybe', expected one of allow, deny"]),
        ('{tools: {"a b": allow}}', ["expected a tool's name"]),
        ("{tools: {a: {permission: read}}}", ["expected a service area and an action"]),
        ("{tools: {a: {cost: 0}}}", [".cost: found the number 0"]),
        ("{tools: {a: {burst: 5}}}", [".burst: found a burst without a rate"]),
        ('{tools: {"*": {rate: 5/minute}}}', ["expected no rate for all other tools"]),
    ],
)
def test_faults(tmp_path: Path, section: str, faults: list[str]) -> None:
    """Each says what was found, what was expected, and where."""
    found = complaints(write(tmp_path, routes=ROUTE.format(section, "")))
    assert len(found) == len(faults), found
    for fault, expected in zip(found, faults, strict=True):
        assert expected in fault


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (", body: 1MiB", "expected no body on a route with mcp"),
        (", json_rpc: true", "expected no json_rpc on a route with mcp"),
        (", rewrite: /x", "expected no rewrite on a route with mcp"),
        (", cost: {json: ids, max: 9}", "expected a number on a route with mcp"),
    ],
)
def test_settings_that_do_not_go_together(tmp_path: Path, more: str, fault: str) -> None:
    """Where messages are read, the section has its own."""
    found = complaints(write(tmp_path, routes=ROUTE.format("{}", more)))
    assert len(found) == 1
    assert fault in found[0]


@pytest.mark.parametrize(
    ("route", "fault"),
    [
        ("match: GET /m, mcp: {}", ".mcp: found mcp on GET /m, expected a match with POST"),
        (
            "match: POST /m, auth: none, mcp: {tools: {x: {permission: 'a:b'}}}",
            ".mcp.tools: found a permission, expected no permission, as auth: none uses no key",
        ),
        (
            "match: POST /m, rate: 10/minute, mcp: {tools: {x: {cost: 11}}}",
            ".mcp: found tools.x.cost: 11, expected at most 10: more is never admitted by its "
            "limit 'r'",
        ),
        (
            "match: POST /m, mcp: {tools: {'*': {cost: 101}}}",
            "found tools.*.cost: 101, expected at most 100: more is never admitted by plan free's "
            "limit 'plan'",
        ),
    ],
)
def test_what_could_never_be_admitted(tmp_path: Path, route: str, fault: str) -> None:
    """A route without POST has no messages, one without keys no permissions; costs have bounds."""
    routes = f"routes:\n  r: {{{route}, upstream: api}}\n"
    plans = "plans:\n  free: {rate: 60/minute, burst: 100}\n"
    (found,) = complaints(write(tmp_path, routes=routes, plans=plans))
    assert fault in found


def test_costs_that_are_admitted(tmp_path: Path) -> None:
    """Limits of messages and of connections do not count them."""
    routes = (
        "routes:\n  r: {match: POST /m, upstream: api, mcp: {tools: {x: {cost: 60}}}, limits: ["
        "{name: c, rate: 9/minute, of: messages}, {name: d, concurrency: 2, of: connections}]}\n"
    )
    plans = "plans:\n  free: {rate: 60/minute}\n"
    assert complaints(write(tmp_path, routes=routes, plans=plans)) == []


def test_secrets(tmp_path: Path) -> None:
    """The lines of a file; they are in no representation of the policy."""
    folder = write(tmp_path, more="mcp_sessions: {secrets: mcp.txt}")
    (folder / "mcp.txt").write_text("n" * 32 + "\n\n" + "o" * 40 + "\n")
    policy = load(folder)
    assert policy.mcp_secrets == (b"n" * 32, b"o" * 40)
    assert "n" * 32 not in repr(policy)
    (folder / "mcp.txt").write_text("n" * 32)
    assert load(folder).contents != policy.contents


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "with 0 lines, expected one or two lines of at least 32 characters each"),
        ("x" * 31, "with 31 characters, expected one or two lines"),
        ("\n".join(["x" * 32] * 3), "with 3 lines, expected one or two lines"),
    ],
)
def test_faults_of_secrets(tmp_path: Path, text: str, expected: str) -> None:
    """What is in the file is not in the fault."""
    folder = write(tmp_path, more="mcp_sessions: {secrets: mcp.txt}")
    (folder / "mcp.txt").write_text(text)
    (fault,) = complaints(folder)
    assert expected in fault
    assert "xxx" not in fault
    (folder / "mcp.txt").unlink()
    (fault,) = complaints(folder)
    assert "expected a file that can be read" in fault
