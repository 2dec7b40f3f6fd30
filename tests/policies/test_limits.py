"""What the limits of routes with `mcp` count."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gateway.domain.limits import Limit
from gateway.policies.faults import Fault
from gateway.policies.limits import check_of, read_entries
from gateway.policies.values import Value
from tests.policies.folder import complaints, write


def read(text: str, *, is_mcp: bool) -> tuple[list[Limit], list[str]]:
    """The limits of a list in a route, and the faults."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None
    faults: list[Fault] = []
    entries = read_entries(Value(node, "routes.yaml", "routes.r.limits", 1, faults), 16)
    check_of(entries, is_mcp)
    return [limit for limit, _ in entries], list(map(str, faults))


def test_messages() -> None:
    """A rate or a quota of a route with `mcp` may count all messages, and so does its candidate."""
    first = "{name: a, rate: 5/minute, of: messages, candidate: {rate: 4/minute}}"
    text = f"[{first}, {{name: b, quota: 9/day}}]"
    (messages, requests), faults = read(text, is_mcp=True)
    assert faults == []
    assert messages.candidate is not None
    assert (messages.of, messages.candidate.of, requests.of) == ("messages", "messages", "requests")
    assert messages.counter == "a:rate:60000000"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("rate: 5/minute, of: words", "of: found 'words', expected one of requests, messages"),
        ("concurrency: 5, of: messages", "of: messages only with a rate or a quota"),
    ],
)
def test_faults(entry: str, expected: str) -> None:
    """What is counted must be known, and fit the kind of limit."""
    _, (fault,) = read(f"[{{name: a, {entry}}}]", is_mcp=True)
    assert "routes.r.limits[0].of: found" in fault
    assert expected in fault


@pytest.mark.parametrize("where", ["plans", "routes"])
def test_only_with_mcp(tmp_path: Path, where: str) -> None:
    """In plans and in other routes only requests are counted."""
    limits = "limits: [{name: a, rate: 5/day, of: requests}, {name: b, rate: 6/day, of: messages}]"
    text = {
        "plans": f"plans: {{free: {{rate: 1/day, {limits}}}}}",
        "routes": f"routes: {{r: {{match: GET /, upstream: api, {limits}}}}}",
    }[where]
    (found,) = complaints(write(tmp_path, **{where: text}))
    assert ".limits[1]: found of: messages, expected of: messages only in a route with mcp" in found
