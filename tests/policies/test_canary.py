"""`canary` of a route."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.canary import Canary
from gateway.manage.policy_changes import compare
from gateway.policies.load import load
from tests.policies.folder import complaints, write

UPSTREAMS = 'upstreams:\n  api: {servers: ["http://a"]}\n  beta: {servers: ["http://b"]}\n'


def folder(path: Path, canary: str) -> Path:
    path.mkdir(exist_ok=True)
    route = f'routes:\n  r: {{match: "* /**", upstream: api, canary: {canary}}}\n'
    return write(path, upstreams=UPSTREAMS, routes=route)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{upstream: beta, share: 5%}", Canary("beta", 5.0)),
        ("{upstream: beta, share: 0%}", Canary("beta", 0.0)),
        ("{upstream: beta, share: 0.125%, by: ip}", Canary("beta", 0.125, "ip")),
        (
            "{upstream: beta, share: 100%, by: 'header:X-S', header: X-Canary, value: a b}",
            Canary("beta", 100.0, "header:x-s", "x-canary", "a b"),
        ),
        ("{upstream: beta, header: X-Canary}", Canary("beta", header="x-canary")),
    ],
)
def test_canaries(tmp_path: Path, text: str, expected: Canary) -> None:
    """A share, a header, or both; the headers are kept of each request."""
    policy = load(folder(tmp_path, text))
    assert policy.routes["r"].canary == expected
    assert policy.counted_headers == set(expected.headers)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("5%", ["canary: found '5%', expected a mapping with one of upstream, share, by"]),
        ("{share: 5%}", ["canary: found a mapping without 'upstream', expected the key 'upst"]),
        ("{upstream: beta}", ["canary: found neither share nor header, expected a share such"]),
        ("{upstream: bet, share: 5%}", ["canary.upstream: found 'bet', expected one of api, beta"]),
        ("{upstream: api, share: 5%}", ["canary.upstream: found 'api', expected another upst"]),
        (
            "{upstream: beta, share: 5}",
            ["canary.share: found the number 5, expected a percentage"],
        ),
        ("{upstream: beta, share: 101%}", ["canary.share: found '101%', expected a percentage"]),
        ("{upstream: beta, share: -1%}", ["canary.share: found '-1%', expected a percentage"]),
        ("{upstream: beta, share: 1%, by: x}", ["canary.by: found 'x', expected key, account"]),
        ("{upstream: beta, share: 1%, value: x}", ["canary.value: found value without header"]),
        ("{upstream: beta, header: X, by: ip}", ["canary.by: found by without share, expected"]),
        ("{upstream: beta, header: Cookie}", ["canary.header: found 'Cookie', expected the name"]),
        ("{upstream: beta, header: X, value: ' '}", ["canary.value: found ' ', expected a value"]),
        ("{upstream: beta, shares: 5%, header: X}", ["canary.shares: found the key 'shares'"]),
    ],
)
def test_faults(tmp_path: Path, text: str, faults: list[str]) -> None:
    """Each says what was found, what was expected, and where."""
    found = complaints(folder(tmp_path, text))
    assert len(found) == len(faults), found
    for line, fault in zip(found, faults, strict=True):
        assert line.startswith(f"routes.yaml:2: routes.r.{fault}"), line


def test_a_change_is_shown(tmp_path: Path) -> None:
    """By `gateway diff`, in words."""
    old = load(folder(tmp_path / "a", "{upstream: beta, share: 5%}"))
    new = load(folder(tmp_path / "b", "{upstream: beta, share: 50%}"))
    assert list(map(str, compare(old, new))) == [
        "route: r: canary 5% by key to beta → canary 50% by key to beta"
    ]
