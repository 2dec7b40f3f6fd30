"""What the limits of routes with `mcp` count."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gateway.domain.limits import LEASE_US, Limit
from gateway.domain.route import Route
from gateway.policies.checks import check_overrides
from gateway.policies.faults import Fault
from gateway.policies.limits import check_of, parse_override, read_entries, read_plan
from gateway.policies.routes import RouteEntry
from gateway.policies.values import Value
from gateway.policies.warnings import _changed_kinds
from tests.policies.folder import complaints, write


def at(text: str, faults: list[Fault] | None = None) -> Value:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None
    return Value(node, "routes.yaml", "routes.r.limits", 1, [] if faults is None else faults)


def read(text: str, *, is_mcp: bool) -> tuple[list[Limit], list[str]]:
    """The limits of a list in a route, and the faults."""
    faults: list[Fault] = []
    entries = read_entries(at(text, faults), 16)
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


def test_connections() -> None:
    """A concurrency limit may count connections, up to a thousand; so does its candidate."""
    entry = (
        "{name: a, concurrency: 1000, of: connections, per: account, candidate: {concurrency: 3}}"
    )
    (limit,), faults = read(f"[{entry}]", is_mcp=True)
    assert faults == []
    assert limit.candidate is not None
    assert (limit.kind, limit.amount, limit.per, limit.of) == (
        *("connections", 1_000),
        *("account", "requests"),
    )
    assert (limit.candidate.kind, limit.candidate.amount) == ("connections", 3)
    assert limit.counter == f"a:connections:{LEASE_US}"


MOST = "at most 1000 with of: connections, as each check reads all of them"


@pytest.mark.parametrize(
    ("entry", "at", "expected"),
    [
        (
            "rate: 5/minute, of: words",
            "of",
            "found 'words', expected one of requests, messages, connections",
        ),
        ("concurrency: 5, of: messages", "of", "of: messages only with a rate or a quota"),
        ("rate: 5/minute, of: connections", "of", "of: connections only with concurrency"),
        ("quota: 5/day, of: connections", "of", "of: connections only with concurrency"),
        ("concurrency: 1001, of: connections", "concurrency", MOST),
        (
            "concurrency: 9, of: connections, candidate: {concurrency: 1001}",
            "candidate.concurrency",
            MOST,
        ),
        (
            "concurrency: 9, of: connections, candidate: {rate: 1/day}",
            "candidate",
            "found rate, expected concurrency, as of the limit itself",
        ),
    ],
)
def test_faults(entry: str, at: str, expected: str) -> None:
    """What is counted must be known, and fit the kind of limit and its amount."""
    _, (fault,) = read(f"[{{name: a, {entry}}}]", is_mcp=True)
    assert f"routes.r.limits[0].{at}: found" in fault
    assert expected in fault


@pytest.mark.parametrize(("amount", "kept"), [("1000", True), ("1001", False), ("0", False)])
def test_connections_of_a_key(amount: str, kept: bool) -> None:
    """A key's own number of connections is at most what a policy may have."""
    limit = Limit("a", "connections", 5, LEASE_US)
    if kept:
        assert parse_override("a", amount, limit) == Limit("a", "concurrency", 1_000, LEASE_US)
    else:
        with pytest.raises(ValueError, match="a number of connections, 1 to 1000"):
            parse_override("a", amount, limit)


def entry_of(limit: Limit) -> RouteEntry:
    route = Route("r", "*", (), True, "api", limits=(limit,))
    return RouteEntry("r", route, at("x"), {}, (at("x"),))


@pytest.mark.parametrize(("amount", "fault"), [(1_000, None), (1_001, MOST)])
def test_connections_of_a_plan(amount: int, fault: str | None) -> None:
    """So are a plan's, which are written as `concurrency` and are of no other kind."""
    faults: list[Fault] = []
    given = at(f"{{rate: 1/day, routes: {{a: {{concurrency: {amount}}}}}}}", faults)
    plan = read_plan("free", given)
    assert plan is not None
    route = entry_of(Limit("a", "connections", 5, LEASE_US))
    check_overrides([plan], [route])
    assert [one.expected for one in faults] == ([] if fault is None else [fault])
    assert list(_changed_kinds([route], [plan])) == []


@pytest.mark.parametrize("entry", ["rate: 6/day, of: messages", "concurrency: 6, of: connections"])
@pytest.mark.parametrize("where", ["plans", "routes"])
def test_only_with_mcp(tmp_path: Path, where: str, entry: str) -> None:
    """In plans and in other routes only requests are counted."""
    limits = f"limits: [{{name: a, rate: 5/day, of: requests}}, {{name: b, {entry}}}]"
    text = {
        "plans": f"plans: {{free: {{rate: 1/day, {limits}}}}}",
        "routes": f"routes: {{r: {{match: GET /, upstream: api, {limits}}}}}",
    }[where]
    (found,) = complaints(write(tmp_path, **{where: text}))
    of = entry.rpartition(" ")[2]
    assert f".limits[1]: found of: {of}, expected of: {of} only in a route with mcp" in found
