"""`hosts` of a route: what is a host, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.policies.faults import PolicyFaults
from gateway.policies.hosts import MOST_HOSTS, read_host
from gateway.policies.load import load
from tests.kit.policies import write_policies


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("api.example.com", "api.example.com"),
        ("API.Example.com.", "api.example.com"),
        ("*.Example.com", "*.example.com"),
        ("localhost", "localhost"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("my_service.internal", "my_service.internal"),
        ("10.0.0.5", "10.0.0.5"),
    ],
)
def test_hosts(text: str, host: str) -> None:
    """Names, and one wildcard at the beginning; letter case and a final dot are ignored."""
    assert read_host(text) == host


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", "a route without hosts, which serves all"),
        ("api.example.com:8443", "a host without a port"),
        ("https://api.example.com", "a host such as"),
        ("api.example.com/x", "a host such as"),
        ("user@example.com", "a host such as"),
        ("bücher.example", "punycode"),
        ("a.*.example", "a host such as"),
        ("*example.com", "a host such as"),
        ("*.*.example", "a host such as"),
        ("a..example", "a host such as"),
        (".example", "a host such as"),
        ("-a.example", "a host such as"),
        ("a.example\r\nX: y", "a host such as"),
        ("[::1]", "a host such as"),
        ("", "a host such as"),
        ("a" * 64 + ".example", "a host such as"),
        (".".join(["a" * 60] * 5), "a host such as"),
    ],
)
def test_what_is_no_host(text: str, expected: str) -> None:
    """The error says what would be one."""
    with pytest.raises(ValueError, match=expected):
        read_host(text)


def faults_of(folder: Path, routes: str) -> str:
    with pytest.raises(PolicyFaults) as caught:
        load(write_policies(folder, "http://127.0.0.1:1", routes=f"routes:\n{routes}"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("hosts", "fault"),
    [
        ("[]", "found 0 hosts, expected 1 to 256 hosts; without hosts a route serves all"),
        (f"[{', '.join(f'h{n}.x' for n in range(MOST_HOSTS + 1))}]", "found 257 hosts"),
        ("a.example", "found 'a.example', expected a list of hosts"),
        ("[a.example, A.example.]", "found 'A.example.' again, expected each host once"),
        ("[7]", "expected a host such as api.example.com"),
    ],
)
def test_faults(tmp_path: Path, hosts: str, fault: str) -> None:
    """A faulty list is a fault of its line."""
    found = faults_of(tmp_path, f"  a: {{match: GET /a, upstream: api, hosts: {hosts}}}\n")
    assert "routes.yaml:2: routes.a.hosts" in found
    assert fault in found


def test_conflicts(tmp_path: Path) -> None:
    """The same pattern on a common host is a fault, and none on different hosts."""
    one = "  {}: {{match: GET /a, upstream: api, hosts: [{}]}}\n"
    assert "routes.a (routes.yaml:2) matches GET /a on y.example too" in faults_of(
        tmp_path / "1", one.format("a", "x.example, y.example") + one.format("b", "Y.example")
    )
    routes = one.format("a", "x.example") + one.format("b", "'*.example'")
    policy = load(write_policies(tmp_path / "2", "http://127.0.0.1:1", routes=f"routes:\n{routes}"))
    assert policy.hosts is not None
    assert policy.table_at(b"X.example:80").match("GET", ("a",)) is policy.routes["a"]
    assert policy.table_at(b"y.example").match("GET", ("a",)) is policy.routes["b"]
    assert policy.table_at(b"example").match("GET", ("a",)) is None


def test_warnings_are_by_host(tmp_path: Path) -> None:
    """A wider route of the same host is found; one of another host admits none of its requests."""
    routes = (
        "routes:\n"
        "  a: {match: GET /a, upstream: api, hosts: [x.example], scopes: [s]}\n"
        "  wide: {match: '* /**', upstream: api, hosts: [%s]}\n"
    )
    for host, words in (("x.example", "routes.wide"), ("y.example", "")):
        policy = load(write_policies(tmp_path, "http://127.0.0.1:1", routes=routes % host))
        assert words in "".join(policy.warnings)
        assert bool(policy.warnings) is bool(words)
