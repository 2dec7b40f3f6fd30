"""What differs between two policies: access, counters, limits and settings, by importance."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.policy import Policy
from gateway.manage.policy_changes import LABELS, change_as_json, compare, listed, summary
from gateway.policies.load import load
from tests.kit.certificates import write_pair
from tests.policies.folder import write

KEYED = "{match: GET /a, upstream: api}"
SCOPED = "{match: GET /a, upstream: api, scopes: [x]}"
OPEN = "{match: GET /a, upstream: api, auth: none}"
REST = 'rest: {match: "* /**", upstream: api}'


def policy(folder: Path, routes: str = "", plans: str = "", settings: str = "") -> Policy:
    """A policy of these routes, one a line without indentation, plans and settings."""
    folder.mkdir(parents=True)
    files = {"settings": settings}
    if routes:
        lines = "".join(f"  {line.strip()}\n" for line in routes.strip().split("\n"))
        files["routes"] = f"routes:\n{lines}"
    if plans:
        files["plans"] = f"plans: {plans}\n"
    return load(write(folder, **files))


@pytest.fixture
def changes(tmp_path: Path):
    """Compares two policies, given by their parts; returns the changes as lines."""

    def changes_of(old: dict[str, str], new: dict[str, str]) -> list[str]:
        found = compare(policy(tmp_path / "old", **old), policy(tmp_path / "new", **new))
        assert len(json.loads(json.dumps(list(map(change_as_json, found))))) == len(found)
        return list(map(str, found))

    return changes_of


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (f"r: {KEYED}", f"r: {KEYED}", []),
        # Access.
        (
            f"r: {SCOPED}",
            f"r: {OPEN}",
            ["becomes public: route r (GET /a): a key, with the scopes x → anyone, without a key"],
        ),
        (
            f"r: {SCOPED}",
            f"r: {KEYED}",
            ["needs less: route r (GET /a): a key, with the scopes x → a key"],
        ),
        (
            f"r: {KEYED}",
            f"r: {SCOPED}",
            ["needs more: route r (GET /a): a key → a key, with the scopes x"],
        ),
        (
            "r: {match: GET /a, upstream: api, permission: 't:read', service: s}",
            "r: {match: GET /a, upstream: api, permission: 't:write', service: s}",
            [
                "needs less: route r (GET /a): a key, with the permission t:read, whose account "
                "has the service s → a key, with the permission t:write, whose account has the "
                "service s"
            ],
        ),
        # A route that is gone: its requests are of another one, or of none.
        (
            f"r: {SCOPED}\n{REST}",
            REST,
            [
                "needs less: route r (GET /a): a key, with the scopes x (route r) → "
                "a key (route rest)",
                "route: r: GET /a to api; a key, with the scopes x → none",
            ],
        ),
        (
            "r: {match: GET /a, upstream: api, rate: 5/minute}\n" + REST,
            REST,
            [
                "limit: r (GET /a), routes r, rest: 5/minute, per key → none",
                "route: r: GET /a to api; a key; limit r 5/minute, per key → none",
            ],
        ),
        (
            f"r: {KEYED}\nq: {{match: GET /b, upstream: api}}",
            f"r: {KEYED}",
            [
                "no longer served: route q (GET /b): a key → none",
                "route: q: GET /b to api; a key → none",
            ],
        ),
        # A new route takes requests of another one.
        (
            REST,
            f"r: {OPEN}\n{REST}",
            [
                "becomes public: route rest (GET /a): a key (route rest) → "
                "anyone, without a key (route r)",
                "route: r: none → GET /a to api; anyone, without a key",
            ],
        ),
        # A route that is public from the beginning.
        (
            f"r: {KEYED}",
            f"r: {KEYED}\nq: {{match: GET /b, upstream: api, auth: none}}",
            [
                "becomes public: route q (GET /b): none → anyone, without a key",
                "route: q: none → GET /b to api; anyone, without a key",
            ],
        ),
        # Patterns of which neither is within the other have a common request.
        (
            "r: {match: GET /a/*/c, upstream: api, scopes: [x]}",
            'r: {match: GET /a/*/c, upstream: api, scopes: [x]}\nq: {match: "* /a/b/c/d", '
            "upstream: api, auth: none}",
            [
                "becomes public: route q (GET /a/b/c/d): none → anyone, without a key",
                "route: q: none → * /a/b/c/d to api; anyone, without a key",
            ],
        ),
        # Names and settings of routes.
        (
            "r: {match: GET /a, upstream: api, limits: [{name: l, rate: 5/minute}]}",
            "q: {match: GET /a, upstream: api, limits: [{name: l, rate: 5/minute}]}",
            ["route: r: name r → name q"],
        ),
        (
            f"r: {KEYED}",
            "r: {match: GET /a, upstream: api, cors: {origins: ['https://b.test']}}",
            [
                "route: r: cors none → cors origins [https://b.test], methods [], headers "
                "[Accept, Accept-Language, apiKey, Authorization, Cont…"
            ],
        ),
        (
            "r: {match: GET /a, upstream: api, cors: {origins: ['https://a.test']}}",
            "r: {match: GET /a, upstream: api, cors: {origins: ['https://b.test'], max_age: 1m}}",
            [
                "route: r: cors.origins [https://a.test], cors.max_age none → cors.origins "
                "[https://b.test], cors.max_age 1m"
            ],
        ),
        (
            "r: {match: GET /a, upstream: api}",
            "r: {match: GET /a, upstream: api, cost: 2, json_rpc: true, case_sensitive: true}",
            [
                "route: r: cost 1, json_rpc false, case_sensitive false → cost 2, json_rpc true, "
                "case_sensitive true"
            ],
        ),
        # Limits and their counters.
        (
            "r: {match: GET /a, upstream: api, rate: 5/minute}",
            "r: {match: GET /a, upstream: api, rate: 6/minute, burst: 9}",
            ["limit: r: 5/minute, per key → 6/minute, burst 9, per key; counters are kept"],
        ),
        (
            "r: {match: GET /a, upstream: api, rate: 5/minute}",
            "r: {match: GET /a, upstream: api, rate: 300/hour}",
            ["counters begin anew: limit r: 5/minute, per key → 300/hour, per key"],
        ),
        (
            "r: {match: GET /a, upstream: api, limits: [{name: l, rate: 5/minute}]}",
            "r: {match: GET /a, upstream: api, limits: [{name: l, rate: 5/minute, per: ip}]}",
            ["counters begin anew: limit l, route r: 5/minute, per key → 5/minute, per ip"],
        ),
        (
            "r: {match: GET /a, upstream: api, limits: [{name: l, quota: 5/day}]}",
            "r: {match: GET /a, upstream: api, limits: [{name: m, quota: 5/day}]}",
            [
                "counters begin anew: limit l, route r: l quota 5/day, per key → "
                "m quota 5/day, per key"
            ],
        ),
        (
            "r: {match: GET /a, upstream: api, limits: [{name: l, rate: 5/minute}]}",
            "r: {match: GET /a, upstream: api, limits: [{name: l, rate: 5/minute, mode: shadow}]}",
            [
                "limit: l, route r: 5/minute, per key → 5/minute, per key, shadow: never refuses; "
                "counters are kept"
            ],
        ),
        (
            "r: {match: GET /a, upstream: api, rate: 5/minute}",
            f"r: {KEYED}",
            ["limit: r: 5/minute, per key → none"],
        ),
        (
            "r: {match: GET /a, upstream: api, auth: none, limits: [{name: l, rate: 5/day, per: ip}]}",  # noqa: E501
            "r: {match: GET /a, upstream: api, auth: none, limits: [{name: l, rate: 6/day, per: ip}]}",  # noqa: E501
            ["limit: l, route r: 5/day, per ip → 6/day, per ip; counters are kept"],
        ),
        # A limit that another route counts already.
        (
            f"r: {KEYED}\nq: {{match: GET /b, upstream: api, limits: [{{name: l, rate: 5/day}}]}}",
            "r: {match: GET /a, upstream: api, limits: [{name: l, rate: 5/day}]}\n"
            "q: {match: GET /b, upstream: api, limits: [{name: l, rate: 5/day}]}",
            ["limit: l, route r: none → 5/day, per key; counters are kept"],
        ),
    ],
)
def test_routes(changes, old: str, new: str, expected: list[str]) -> None:
    """Each change of routes says what it means, for which requests."""
    assert changes({"routes": old}, {"routes": new}) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "{free: {rate: 1/minute}, pro: {rate: 2/minute}}",
            "{free: {rate: 1/minute}, pro: {rate: 3/minute}}",
            ["limit: plan, plan pro: 2/minute, per key → 3/minute, per key; counters are kept"],
        ),
        (
            "{free: {rate: 1/minute}, pro: {rate: 2/minute}}",
            "{free: {rate: 1/hour}, pro: {rate: 2/minute, routes: {r: 7/day}}}",
            [
                "counters begin anew: limit plan, plan free: 1/minute, per key → 1/hour, per key",
                "counters begin anew: limit r, plan pro: 5/minute, per key → 7/day, per key",
            ],
        ),
        (
            "{free: {rate: 1/minute}, pro: {rate: 2/minute}}",
            "{free: {rate: 1/minute}, max: {rate: 3/minute}}",
            [
                "no longer served: plan pro: 2/minute, per key → none",
                "plan: max: none → 3/minute, per key",
            ],
        ),
    ],
)
def test_plans(changes, old: str, new: str, expected: list[str]) -> None:
    """Values of plans, plans that are new, and plans that are gone, whose keys are refused."""
    routes = "r: {match: GET /a, upstream: api, rate: 5/minute}"
    assert changes({"routes": routes, "plans": old}, {"routes": routes, "plans": new}) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "timeouts: {header: 10s}", []),
        ("", "timeouts: {header: 1500ms, drain: 2h}", ["header: 10s → 1500ms", "drain: 30s → 2h"]),
        ("", "bounds: {body: 1MB}", ["bounds.body: 10MiB → 1000000B"]),
        ("", "headers: {ietf: true}", ["setting: headers.ietf: false → true"]),
        ("", "trusted_proxies: [10.0.0.0/8]", ["trusted_proxies: [] → [10.0.0.0/8]"]),
        (
            "trusted_proxies: [10.0.0.0/8, 10.1.0.0/16, 192.0.2.1]",
            "trusted_proxies: [10.0.0.0/8, 10.1.0.0/16, 192.0.2.2]",
            ["trusted_proxies: [192.0.2.1/32] → [192.0.2.2/32]"],
        ),
        ("tracing: {}", "tracing: {sample: 2.5%}", ["setting: tracing.sample: 1% → 2.5%"]),
        ("", "error_docs: https://x.example/y", ["error_docs: none → https://x.example/y"]),
        (
            "",
            "environment: staging\nipv6_prefix: 56",
            ["no longer served: setting environment: production → staging", "setting: ipv6_prefix"],
        ),
        ("", "failed_auth: {rate: 9/minute}", ["limit: failed_auth: 60/minute, per ip → 9/minute"]),
        # Of routes that have the policy's, it is said once.
        (
            "cors: {origins: ['https://a.test']}",
            "cors: {origins: ['https://b.test']}\nmaintenance: true",
            [
                "setting: cors.origins: [https://a.test] → [https://b.test]",
                "setting: maintenance: none → retry_after 5m, allow []",
            ],
        ),
        ("", "auth_verify: {rate: 9/hour}", ["counters begin anew: limit auth_verify: 60/minute"]),
    ],
)
def test_settings(changes, old: str, new: str, expected: list[str]) -> None:
    """Settings have their names and formats in policy files; a default written out is the same."""
    found = changes({"settings": old}, {"settings": new})
    assert len(found) == len(expected)
    for line, words in zip(found, expected, strict=True):
        assert words in line


def test_upstreams_and_files_of_tls(tmp_path: Path) -> None:
    """Upstreams by their settings; paths are compared relative to each folder."""
    found = []
    for name, timeout in (("a", "1s"), ("b", "2s")):
        folder = tmp_path / name
        folder.mkdir()
        for file in ("c.pem", "d.pem"):
            write_pair(folder / file, folder / "k.pem")
        tls = f"tls: {{certificate: {'c' if name == 'a' else 'd'}.pem, key: k.pem}}\n"
        servers = "servers: ['http://127.0.0.1:9000']"
        upstreams = f"upstreams:\n  api: {{{servers}, connect: {timeout}}}\n"
        found.append(load(write(folder, gateway=tls, upstreams=upstreams)))
    assert list(map(str, compare(*found))) == [
        "upstream: api.connect: 1s → 2s",
        "setting: tls.certificate: c.pem → d.pem",
    ]


def test_weights_and_rules(tmp_path: Path) -> None:
    """Weights are shown with their servers, and a rule with what it goes by."""
    found = []
    for name, server, balance in (
        ("a", "'http://a'", "random"),
        ("b", "{url: 'http://a', weight: 3}", "{hash: key}"),
    ):
        (tmp_path / name).mkdir()
        text = f"upstreams:\n  api: {{servers: [{server}], balance: {balance}}}\n"
        found.append(load(write(tmp_path / name, upstreams=text)))
    assert list(map(str, compare(*found))) == [
        "upstream: api.servers: [http://a] → [http://a (weight 3)]",
        "upstream: api.balance.rule: random → hash",
        "upstream: api.balance.by: none → key",
    ]


def test_a_summary_is_bounded(tmp_path: Path) -> None:
    """In full where there is room, else by name, and never longer than asked for."""
    routes = "\n".join(f"r{at}: {{match: GET /{at}, upstream: api}}" for at in range(200))
    old = policy(tmp_path / "old", routes=routes)
    new = policy(tmp_path / "new", routes=routes.replace("upstream", "auth: none, upstream"))
    found = compare(old, new)
    assert len(found) == 200
    assert summary(found, 500) == "becomes public: r0, r1, r2, r3 and 196 more"
    assert str(found[0]).endswith(": a key → anyone, without a key")
    assert summary(found[:1], 500) == str(found[0]).replace("→", "->")
    assert len(summary(found, 30)) == 30
    assert summary([*found[:1], replace(found[1], before="x…")], 500).isascii()
    assert summary([], 500) == "no difference in effect"
    assert summary([replace(found[0], before="\x1b[2J\ud800")], 500).isprintable()
    assert listed(["a"]) == "a"


def test_the_most_important_comes_first(tmp_path: Path) -> None:
    """Changes are in the order of their labels."""
    old = policy(tmp_path / "old", routes=f"r: {SCOPED}\n{REST}", plans="{a: {rate: 1/day}}")
    new = policy(
        tmp_path / "new",
        routes=f"r: {OPEN}",
        plans="{a: {rate: 1/hour}, b: {rate: 1/day}}",
        settings="timeouts: {idle: 1s}",
    )
    order = list(LABELS)
    effects = [order.index(change.effect) for change in compare(old, new)]
    assert effects == sorted(effects)
    assert effects[0] == order.index("public")


def test_costs_and_earlier_names(tmp_path: Path) -> None:
    """A cost that varies is compared as a whole; so are earlier names, which change counters."""
    route = "r: {match: POST /r, upstream: api, rate: 100/day, cost: {json: ids, max: 50}}"
    plans = "plans: {free: {rate: 60/minute}}"

    def lines(name: str, changed: str, others: str = plans) -> list[str]:
        for each, routes, text in (("old", route, plans), (name, changed, others)):
            (tmp_path / each).mkdir(exist_ok=True)
            write(tmp_path / each, routes=f"routes: {{{routes}}}", plans=text)
        return [str(each) for each in compare(load(tmp_path / "old"), load(tmp_path / name))]

    assert lines("same", route) == []
    for name, cost in (("a", "cost: 1"), ("b", "cost: {json: idz, max: 50}")):
        (line,) = lines(name, route.replace("cost: {json: ids, max: 50}", cost))
        assert line.startswith("route: r: cost ")
    (line,) = lines("c", route, plans.replace("free: {", "free: {was: trial, "))
    assert line == "plan: free: none → was trial"
    (line,) = lines("d", route.replace("rate:", "was: old, rate:"))
    assert line.startswith("counters begin anew: limit r")
