"""`translate` of a route: what is valid, and what the faults say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.translation import Translation
from gateway.manage.policy_changes import compare
from gateway.policies.load import load
from tests.policies.folder import faults_of, write

ROUTE = 'routes: {a: {match: "GET /a/*/{id}", upstream: api, %s}}\n'


def test_valid(tmp_path: Path) -> None:
    """Each part may be asked for alone; `gateway diff` shows a change."""
    policies = []
    for name, text in (("a", "cookies"), ("b", "cookies, location")):
        (tmp_path / name).mkdir()
        routes = ROUTE % f"translate: [{text}]"
        policies.append(load(write(tmp_path / name, routes=routes)))
    assert [policy.routes["a"].translate for policy in policies] == [
        Translation(False, True),
        Translation(True, True),
    ]
    assert [str(change) for change in compare(*policies)] == [
        "route: a: translate [cookies] → translate [location, cookies]"
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("translate: location", "a list of location and cookies"),
        ("translate: []", "location, cookies or both"),
        ("translate: [links]", "one of location, cookies"),
        ("translate: [cookies, cookies]", "each once"),
        ("translate: [location], rewrite: '/b/{id}'", "a rewrite with all of match"),
    ],
)
def test_faults(tmp_path: Path, settings: str, expected: str) -> None:
    """One fault, which says what would be right."""
    (fault,) = faults_of(write(tmp_path, routes=ROUTE % settings))
    assert expected in fault.expected


def test_cookies_need_no_way_back(tmp_path: Path) -> None:
    """With a template that leaves something out, cookies get the beginning of the route's paths."""
    assert not faults_of(write(tmp_path, routes=ROUTE % "translate: [cookies], rewrite: '/b'"))
