"""`servers` with weights, and `balance`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.upstreams import Balance, Server
from gateway.policies.load import load
from tests.policies.folder import complaints, write


def upstream(servers: str = '["http://a:1"]', more: str = "") -> str:
    return f"upstreams:\n  api: {{servers: {servers}{more}}}\n"


def test_weights(tmp_path: Path) -> None:
    """A server is a text, or has a weight; the default is 1."""
    text = upstream('["http://a:1", {url: "http://b:1", weight: 3}, {url: "https://[::1]"}]')
    assert load(write(tmp_path, upstreams=text)).upstreams["api"].servers == (
        Server("http", "a", 1),
        Server("http", "b", 1, weight=3),
        Server("https", "::1", 443, asked="[::1]"),
    )


def test_services(tmp_path: Path) -> None:
    """The name of SRV records has no port and no weight."""
    (server,) = (
        load(write(tmp_path, upstreams=upstream('["srv+https://_API._tcp.example.com"]')))
        .upstreams["api"]
        .servers
    )
    assert server == Server(
        "https", "_api._tcp.example.com", 443, srv=True, asked="_api._tcp.example.com"
    )
    assert server.url == "srv+https://_api._tcp.example.com"


@pytest.mark.parametrize(
    ("server", "faults"),
    [
        (
            "srv+http://_a._tcp.test:80",
            ["servers[1]: found 'srv+http://_a._tcp.test:80', expected a"],
        ),
        (
            "srv+http://10.0.0.5",
            ["servers[1]: found 'srv+http://10.0.0.5', expected a name of SRV"],
        ),
        ("srv+ftp://a.test", ["servers[1]: found 'srv+ftp://a.test', expected a name of SRV rec"]),
        (
            "{url: srv+http://a.test, weight: 2}",
            ["servers[1].weight: found the number 2, expected no weight, as the SRV records"],
        ),
        (
            "{url: 'http://b', weight: 0}",
            ["servers[1].weight: found the number 0, expected a whole"],
        ),
        ("{url: 'http://b', weight: 1001}", ["servers[1].weight: found the number 1001"]),
        ("{url: 'http://b', weight: 50%}", ["servers[1].weight: found '50%', expected a whole"]),
        ("{weight: 1}", ["servers[1]: found a mapping without 'url', expected the key 'url'"]),
        (
            "{url: 'http://b', wieght: 1}",
            ["servers[1].wieght: found the key 'wieght', expected one"],
        ),
        ("{url: ftp://b}", ["servers[1].url: found 'ftp://b', expected an address such as"]),
        ("{url: 'http://a:1', weight: 2}", ["servers[1]: found http://a:1 again, expected each"]),
    ],
)
def test_faults_of_servers(tmp_path: Path, server: str, faults: list[str]) -> None:
    """Each says what was found, and where."""
    found = complaints(write(tmp_path, upstreams=upstream(f'["http://a:1", {server}]')))
    assert len(found) == len(faults), found
    for line, fault in zip(found, faults, strict=True):
        assert line.startswith(f"upstreams.yaml:2: upstreams.api.{fault}")


@pytest.mark.parametrize(
    ("balance", "expected"),
    [
        ("least_busy", Balance()),
        ("round_robin", Balance("round_robin")),
        ("random", Balance("random")),
        ("{hash: key}", Balance("hash", "key")),
        ("{hash: ip}", Balance("hash", "ip")),
        ("{hash: 'header:X-Session'}", Balance("hash", "header:x-session")),
    ],
)
def test_rules(tmp_path: Path, balance: str, expected: Balance) -> None:
    """By name, or with what it goes by; a header that it goes by is kept of each request."""
    policy = load(write(tmp_path, upstreams=upstream(more=f", balance: {balance}")))
    assert policy.upstreams["api"].balance == expected
    assert policy.counted_headers == ({"x-session"} if "session" in (expected.by or "") else set())


@pytest.mark.parametrize(
    ("balance", "fault"),
    [
        (
            "least_bussy",
            "balance: found 'least_bussy', expected one of least_busy, round_robin, random, hash "
            "(did you mean 'least_busy'?)",
        ),
        ("hash", "balance: found 'hash', expected what it goes by: {hash: key} (key, account, ip"),
        ("3", "balance: found the number 3, expected one of least_busy, round_robin"),
        ("{}", "balance: found 0 rules, expected one rule such as {hash: key}"),
        ("{random: key}", "balance.random: found the key 'random', expected one of hash"),
        ("{hash: cookie}", "balance.hash: found 'cookie', expected key, account, ip or header"),
        ("{hash: 'header:Cookie'}", "balance.hash: found 'header:Cookie', expected key, or a"),
        ("{hash: 3}", "balance.hash: found the number 3, expected key, account, ip or header"),
    ],
)
def test_faults_of_rules(tmp_path: Path, balance: str, fault: str) -> None:
    """Each says what was found, and how it is written."""
    found = complaints(write(tmp_path, upstreams=upstream(more=f", balance: {balance}")))
    assert found[0].startswith(f"upstreams.yaml:2: upstreams.api.{fault}"), found
