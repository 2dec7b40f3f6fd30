"""What a policy does not protect any more that the one before did."""

from __future__ import annotations

from pathlib import Path

from gateway.domain.policy import Policy
from gateway.policies.load import load
from gateway.policies.losses import losses
from tests.kit.rows import each_row
from tests.policies.folder import write

LIMITED = "limits: [{name: l, rate: 5/minute}]"
# The settings of a route before and after, and what is lost.
ROUTES = (
    ("", "", ()),
    ("", "auth: none", ("route r: auth",)),
    ("auth: none", "", ()),
    ("scopes: [a, b]", "scopes: [b]", ("route r: scope a",)),
    ("scopes: [a]", "scopes: [a, b]", ()),
    ("permission: 'scm:read'", "", ("route r: permission",)),
    ("service: scm", "", ("route r: service",)),
    ("access: {allow: [10.0.0.0/8]}", "", ("route r: access: allow",)),
    (
        "access: {deny: [10.0.0.1, 10.0.0.3]}",
        "access: {deny: [10.0.0.1]}",
        ("route r: access: deny",),
    ),
    ("access: {deny: [10.0.0.1]}", "access: {deny: [10.0.0.1, 10.0.0.3]}", ()),
    ("", "plan_limits: false", ("route r: limits of plans",)),
    (LIMITED, "", ("route r: limit l",)),
    (LIMITED, "limits: [{name: m, was: l, rate: 6/minute}]", ()),
    ("mcp: {tools: {t: deny}}", "", ("route r: mcp",)),
    ("mcp: {tools: {t: deny, '*': allow}}", "mcp: {tools: {'*': allow}}", ("route r: tool t",)),
)


def policy(folder: Path, routes: str, gateway: str = "") -> Policy:
    folder.mkdir()
    return load(write(folder, routes=f"routes:\n{routes}", gateway=gateway))


def with_settings(folder: Path, settings: str) -> Policy:
    more = f", {settings}" if settings else ""
    return policy(folder, f'  r: {{match: "* /r", upstream: api{more}}}\n')


@each_row(("before", "after", "lost"), ROUTES)
def test_rules_of_a_route(tmp_path: Path, before: str, after: str, lost: tuple[str, ...]) -> None:
    """A rule that is missing is lost; one that was added or renamed is not."""
    old, new = with_settings(tmp_path / "old", before), with_settings(tmp_path / "new", after)
    assert losses(new, old) == lost
    assert losses(old, old) == ()


def test_routes(tmp_path: Path) -> None:
    """A route that is missing is lost, but not one that has another name."""
    old = policy(tmp_path / "old", ONE + OTHER)
    assert losses(policy(tmp_path / "less", ONE), old) == ("route b",)
    renamed = OTHER.replace("b:", "c:").replace("{", "{was: b, ")
    assert losses(policy(tmp_path / "renamed", ONE + renamed), old) == ()
    assert losses(old, policy(tmp_path / "fewer", ONE)) == ()


ONE = '  a: {match: "* /a", upstream: api}\n'
OTHER = '  b: {match: "* /b", upstream: api}\n'


def test_lists_of_the_policy(tmp_path: Path) -> None:
    """Lists of addresses for all routes are compared as well."""
    old = policy(tmp_path / "old", ONE, "access: {deny: [10.0.0.1], allow: [10.0.0.0/8]}\n")
    assert losses(policy(tmp_path / "new", ONE), old) == ("access: allow", "access: deny")
