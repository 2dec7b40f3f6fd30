"""`maintenance` of a route and of a policy: what is read, and each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.maintenance import Maintenance
from gateway.domain.networks import parse_network
from gateway.policies.load import load
from tests.policies.folder import complaints, write

ROUTES = """
routes:
  own: {{match: GET /own, upstream: api, maintenance: {0}}}
  all: {{match: GET /all, upstream: api}}
maintenance: {1}
"""


@pytest.mark.parametrize(
    ("own", "shared", "expected"),
    [
        ("true", "false", (Maintenance(), None)),
        ("false", "true", (None, Maintenance())),
        (
            "{message: ' Back soon. ', retry_after: 90s, allow: [192.0.2.1]}",
            "{retry_after: 1h}",
            (
                Maintenance("Back soon.", 90.0, (parse_network("192.0.2.1"),)),
                Maintenance(retry_after_s=3600.0),
            ),
        ),
        ("{}", "{}", (Maintenance(), Maintenance())),
    ],
)
def test_a_routes_replaces_the_policys(
    tmp_path: Path, own: str, shared: str, expected: tuple[Maintenance | None, ...]
) -> None:
    """They are not merged."""
    routes = load(write(tmp_path, routes=ROUTES.format(own, shared))).routes
    assert (routes["own"].maintenance, routes["all"].maintenance) == expected


@pytest.mark.parametrize(
    ("setting", "faults"),
    [
        ("on it", [": found 'on it', expected true, false, or a mapping with message"]),
        ("[]", [": found a list, expected true, false"]),
        ("{mesage: x}", [".mesage: found the key 'mesage', expected one of message, retry_after"]),
        ("{message: ' '}", [".message: found ' ', expected a message of one line"]),
        ('{message: "a\\nb"}', [".message: found 'a\\nb', expected a message of one line"]),
        (f"{{message: {'x' * 301}}}", [".message: found 'xxx"]),
        ("{retry_after: 0s}", [".retry_after: found '0s', expected a duration of whole seconds"]),
        ("{retry_after: 2d}", [".retry_after: found '2d'"]),
        ("{retry_after: 1500ms}", [".retry_after: found '1500ms'"]),
        ("{retry_after: 5}", [".retry_after: found the number 5 without a unit"]),
        ("{allow: [x]}", [".allow[0]: found 'x', expected an address or a CIDR range"]),
    ],
)
def test_faults(tmp_path: Path, setting: str, faults: list[str]) -> None:
    """Each says what was found, what was expected, and where."""
    found = complaints(write(tmp_path, routes=ROUTES.format(setting, "false")))
    assert len(found) == len(faults), found
    for one, words in zip(found, faults, strict=True):
        assert one.startswith(f"routes.yaml:3: routes.own.maintenance{words}"), one
