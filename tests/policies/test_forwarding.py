"""`timeouts`, `retries` and `body` of routes: values, and faults that say what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.forwarding import Retries
from gateway.domain.route import Route
from gateway.policies.load import load
from tests.policies.folder import faults_of, write


def route_of(folder: Path, settings: str) -> Route:
    return load(write(folder, routes=_routes(settings))).routes["one"]


def _routes(settings: str, match: str = "GET /one") -> str:
    return f'routes:\n  one: {{match: "{match}", upstream: api, {settings}}}\n'


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ("auth: key", (None, None, None, None)),
        ("timeouts: {total: 20s}", (20.0, None, None, None)),
        ("timeouts: {response: 500ms}", (None, 0.5, None, None)),
        ("body: 1MiB", (None, None, 2**20, None)),
        ("body: 100", (None, None, 100, None)),
        ("retries: 2", (None, None, None, Retries(2))),
        (
            'retries: {count: 1, causes: [reset, 503, "504"], budget: 12.5%}',
            (None, None, None, Retries(1, ("reset", "503", "504"), 0.125)),
        ),
    ],
)
def test_values(tmp_path: Path, settings: str, values: tuple[object, ...]) -> None:
    """Each setting by itself."""
    route = route_of(tmp_path, settings)
    assert (route.total_s, route.response_s, route.body_bytes, route.retries) == values


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("timeouts: 5s", "a mapping with one of total, response"),
        ("timeouts: {total: 0s}", "a duration above 0s and up to 1d"),
        ("timeouts: {respnse: 5s}", "did you mean 'response'?"),
        ("retries: 0", "a whole number from 1 to 10"),
        ("retries: 99", "a whole number from 1 to 10"),
        ("retries: {}", "the key 'count'"),
        ("retries: {count: 1, causes: []}", "at least one of reset, timeout, 502, 503, 504"),
        ("retries: {count: 1, causes: 503}", "a list of reset, timeout, 502, 503, 504"),
        ("retries: {count: 1, causes: [500]}", "one of reset, timeout, 502, 503, 504"),
        ("retries: {count: 1, causes: [timout]}", "did you mean 'timeout'?"),
        ("retries: {count: 1, causes: [[503]]}", "one of reset, timeout, 502, 503, 504"),
        ("retries: {count: 1, budget: 20}", "a percentage from 0.0001% to"),
        ("retries: {count: 1, budget: 0%}", "a percentage from 0.0001% to"),
        ("retries: {count: 1, budget: 101%}", "a percentage from 0.0001% to"),
        ("body: 0", "a whole number from 1"),
        ("body: 1 elephant", "bytes such as 32768 or 32KiB"),
    ],
)
def test_faults(tmp_path: Path, settings: str, expected: str) -> None:
    """Each says what was expected."""
    (fault,) = faults_of(write(tmp_path, routes=_routes(settings)))
    assert expected in fault.expected


@pytest.mark.parametrize(
    ("match", "faulty"),
    [("POST /one", True), ("PUT,DELETE /one", True), ("GET,POST /one", False), ("* /one", False)],
)
def test_a_route_without_safe_methods_has_no_retries(
    tmp_path: Path, match: str, faulty: bool
) -> None:
    """None of its requests could be sent again."""
    routes = _routes("retries: 1", match)
    if faulty:
        (fault,) = faults_of(write(tmp_path, routes=routes))
        assert "retries only on routes for GET, HEAD, OPTIONS" in fault.expected
    else:
        assert load(write(tmp_path, routes=routes)).routes["one"].retries == Retries(1)
