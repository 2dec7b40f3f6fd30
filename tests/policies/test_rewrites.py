"""`strip_prefix` and `rewrite`: what is valid, and what the faults say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.manage.policy_changes import compare
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from tests.kit.policies import write_policies


def routes(match: str, settings: str) -> str:
    return f"routes:\n  a: {{match: '{match}', upstream: api, {settings}}}\n"


def fault_of(folder: Path, match: str, settings: str) -> str:
    with pytest.raises(PolicyFaults) as caught:
        load(write_policies(folder, "http://127.0.0.1:1", routes=routes(match, settings)))
    (fault,) = caught.value.faults
    assert fault.line == 2
    return str(fault)


@pytest.mark.parametrize(
    ("match", "settings", "text"),
    [
        ("GET /shop/**", "strip_prefix: /shop", "strip_prefix /shop"),
        ("GET /Shop/**", "strip_prefix: /shop/", "strip_prefix /Shop"),
        ("GET /a/b", "strip_prefix: /a/b", "strip_prefix /a/b"),
        ("GET /a%20b/x", "strip_prefix: /a%20b", "strip_prefix /a%20b"),
        ("GET /old/*", "rewrite: '/new/*'", "rewrite /new/*"),
        ("GET /a/{id}/**", "rewrite: '/{id}/x/**'", "rewrite /{id}/x/**"),
        ("GET /a", "rewrite: /", "rewrite /"),
    ],
)
def test_valid(tmp_path: Path, match: str, settings: str, text: str) -> None:
    """A route has what its settings say; a final slash and letter case make no difference."""
    policy = load(write_policies(tmp_path, "http://127.0.0.1:1", routes=routes(match, settings)))
    rewrite = policy.routes["a"].rewrite
    assert rewrite is not None
    assert rewrite.text == text


@pytest.mark.parametrize(
    ("match", "settings", "expected"),
    [
        ("GET /shop/**", "strip_prefix: /sho", "with which the pattern of match begins"),
        ("GET /shop/**", "strip_prefix: shop", "a path such as /shop"),
        ("GET /shop/**", "strip_prefix: /", "a path such as /shop"),
        ("GET /shop/**", "strip_prefix: /shop/x", "with which the pattern"),
        ("GET /{t}/**", "strip_prefix: '/{t}'", "in the braces"),
        ("GET /**", "strip_prefix: '/**'", "without wildcards"),
        ("GET /Shop/**", "case_sensitive: true, strip_prefix: /shop", "with which the pattern"),
        ("GET /shop/**", "strip_prefix: /../x", "without dot segments"),
        ("GET /a/**", "strip_prefix: /a, rewrite: /b", "strip_prefix or rewrite"),
        ("GET /a/{id}", "rewrite: '/b/{name}'", "what the pattern of match has, unlike {name}"),
        ("GET /a/{id}", "rewrite: '/b/**'", "what the pattern of match has, unlike **"),
        ("GET /a/*/x", "rewrite: '/b/*/x'", "a name such as {id} in place of *"),
        ("GET /a/**/b/**", "rewrite: '/b/**'", "a pattern with one ** at most"),
        ("GET /a/**", "rewrite: '/**/b/**'", "one ** at most"),
        ("GET /a/**/{id}/b", "rewrite: '/{id}'", "right after **"),
        ("GET /a/{id}", "rewrite: '/{id}/{id}'", "each name once"),
        ("GET /a/{id}", "rewrite: '/x-{id}'", "braces only around a whole segment"),
        ("GET /a/{id}", "rewrite: '/{id}?x=1'", "braces only around"),
        ("GET /a", "rewrite: '/b?x=1'", "plain or percent-encoded"),
        ("GET /a", "rewrite: '/b#x'", "plain or percent-encoded"),
        ("GET /a", "rewrite: '/b/%2e%2e/c'", "without dot segments"),
        ("GET /a", "rewrite: '/b//c'", "without empty segments"),
        ("GET /a", "rewrite: '/b%2Fc'", "only one spelling"),
        ("GET /a", "rewrite: '/b%0D%0AX: y'", "a path such as"),
        ("GET /a", "rewrite: http://x/b", "a path such as"),
        ("GET /a", "rewrite: ''", "a path such as"),
        ("GET /a", "rewrite: 7", "in quotes"),
        ("GET /a", f"rewrite: '{'/x' * 65}'", "at most 64 segments"),
    ],
)
def test_faults(tmp_path: Path, match: str, settings: str, expected: str) -> None:
    """One fault, at the setting, which says what would be right."""
    assert expected in fault_of(tmp_path, match, settings)


def test_a_change_is_shown(tmp_path: Path) -> None:
    """`gateway diff` shows another path, and another base path of a server."""
    old = load(write_policies(tmp_path / "a", "http://h:1", routes=routes("GET /a/**", "cost: 1")))
    new = load(
        write_policies(
            tmp_path / "b", "http://h:1/v1/", routes=routes("GET /a/**", "strip_prefix: /a")
        )
    )
    assert [str(change) for change in compare(old, new)] == [
        "route: a: path as sent → path strip_prefix /a",
        "upstream: api.servers: [http://h:1] → [http://h:1/v1]",
    ]
