"""What would happen now to the requests of a log, and which of these answers differ from then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.cli.log_lines import Line
from gateway.cli.outcome import Answer, answer_now, answer_then, expect, is_same
from gateway.cli.replay import open_replay
from gateway.domain.policy import Policy
from gateway.policies.load import load
from gateway.stores.redis.address import StoreAddress
from tests.kit.policies import PLANS, ROUTES, write_policies

#: A request that was admitted.
LINE = Line(
    time_us=1_767_323_045_000_006,
    method="GET",
    path="/api/x",
    client_ip="192.0.2.1",
    key_id="k1",
    account="acme",
    plan="free",
    cost=1,
    status=200,
    decision="admitted",
    limit="plan",
    is_own=True,
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = tmp_path_factory.mktemp("policies")
    routes = ROUTES + "  none: {match: GET /none, upstream: api, rate: 1/minute, cost: 1}\n"
    gateway = "failed_auth: {rate: 1/minute}\n"
    plans = PLANS + "  one: {rate: 1/minute}\n"
    return load(write_policies(folder, "http://h:1", routes=routes, plans=plans, gateway=gateway))


def refused(status: int, reason: str, **more: Any) -> dict[str, Any]:
    """The changes of a line that was refused before its limits were counted."""
    return {
        **{"decision": "refused", "status": status, "reason": reason},
        **{"limit": "failed_auth", "cost": 0, **more},
    }


NO_KEY = {"key_id": None, "account": None, "plan": None}


def outcome(policy: Policy, line: Line, count: int = 1) -> tuple[str, bool]:
    """The answer to the last of `count` such requests in words, and whether it is as then."""
    with open_replay(StoreAddress("memory")) as replay:
        for _ in range(count):
            expected = expect(policy, line)
            check = expected.check
            (decision,) = [None] if check is None else replay.decide([(line.time_us, check)])
    then, now = answer_then(line), answer_now(line, expected, decision)
    assert then is not None
    cost = "" if check is None else f" {check.cost}"
    detail = f" {now.status} {now.detail}".replace("None", "").rstrip()
    return f"{now.kind}{detail}{cost}", is_same(line, then, now)


@pytest.mark.parametrize(
    ("change", "now", "same"),
    [
        # Admitted then.
        ({}, "admitted 1", True),
        ({"cost": 3}, "admitted 3", True),
        ({"path": "/none", "cost": None}, "admitted 1", True),
        ({"path": "/nowhere"}, "refused 404 not_found", False),
        ({"path": "/public/x", "method": "POST"}, "refused 405 method_not_allowed", False),
        ({"path": "/api/a%2Fb"}, "refused 400 bad_target", False),
        ({"path": "/api/" + "x" * 9_000}, "refused 414 url_too_long", False),
        ({"plan": "gone"}, "refused 503 plan_unknown", False),
        ({"path": "/health", **NO_KEY}, "admitted", True),
        ({"status": 503}, "admitted 1", True),
        # Limited then.
        ({"decision": "limited", "status": 429}, "admitted 1", False),
        # Not authenticated then: the address is counted.
        (refused(401, "key_missing", cost=1, **NO_KEY), "refused 401 key_missing 1", True),
        (refused(401, "key_revoked", cost=1), "refused 401 key_revoked 1", True),
        (refused(401, "key_missing", path="/public/x", **NO_KEY), "admitted", False),
        (
            {"decision": "limited", "status": 429, "limit": "failed_auth", **NO_KEY},
            "refused 401 key_missing 1",
            False,
        ),
        # No access then: it depends on what the route requires now.
        (refused(403, "insufficient_scope", path="/v1/connectors"), REFUSED := "refused 403", True),
        (refused(403, "insufficient_scope"), "admitted 1", False),
        (refused(403, "insufficient_permission", path="/v1/tickets/1"), REFUSED, True),
        (refused(403, "insufficient_permission"), "admitted 1", False),
        (refused(403, "service_not_enabled", path="/v1/scm/x"), REFUSED, True),
        (refused(403, "service_not_enabled"), "admitted 1", False),
        (refused(403, "ip_not_allowed"), REFUSED, True),
        (refused(403, "ip_not_allowed", path="/public/x", **NO_KEY), "admitted", False),
        # Without a route then: their keys were not read.
        (refused(404, "not_found", path="/nowhere", **NO_KEY), "refused 404 not_found", True),
        (refused(404, "not_found", **NO_KEY), "unknown", False),
        (refused(404, "not_found", path="/public/x", **NO_KEY), "admitted", False),
        (refused(405, "method_not_allowed", path="/no", **NO_KEY), "refused 404 not_found", False),
        # Never read, or refused for their bodies.
        (refused(400, "bad_header", path="", method="", **NO_KEY), "refused 400 bad_header", True),
        (refused(400, "bad_target", path="", **NO_KEY), "refused 400 bad_target", True),
        (refused(413, "body_too_large"), "refused 413 body_too_large 0", True),
        (
            refused(413, "body_too_large", limit="plan", cost=1),
            "refused 413 body_too_large 1",
            True,
        ),
        # Failed then.
        (
            {"decision": "failed", "status": 503, "reason": "plan_unknown", "cost": 0},
            "admitted 1",
            False,
        ),
        (
            {"decision": "failed", "status": 503, "reason": "store_unavailable", "cost": 0}
            | {"limit": None},
            "admitted 1",
            True,
        ),
        ({"decision": "failed", "status": 499, "reason": "client_gone"}, "admitted 1", True),
        ({"decision": "failed", "status": 503, "path": "", **NO_KEY}, "failed 503", True),
    ],
)
def test_the_gateways_log(policy: Policy, change: dict[str, Any], now: str, same: bool) -> None:
    """Each kind of request that the gateway logs."""
    line = replace(LINE, **change)
    words, is_as_then = outcome(policy, line)
    if now == REFUSED:
        now = f"refused 403 {line.reason} 0"
    assert (words, is_as_then) == (now, same)


@pytest.mark.parametrize(
    ("change", "now", "same"),
    [
        ({"path": "/none"}, "limited 429 none 1", False),
        ({"path": "/none", "status": 429, "decision": "limited"}, "limited 429 none 1", True),
        ({"plan": "one"}, "limited 429 plan 1", False),
        (refused(401, "key_missing", **NO_KEY), "limited 429 failed_auth 1", False),
        (refused(413, "body_too_large", path="/none"), "refused 413 body_too_large 0", True),
    ],
)
def test_the_second_request(policy: Policy, change: dict[str, Any], now: str, same: bool) -> None:
    """A limit of one a minute refuses it, unless it costs nothing."""
    assert outcome(policy, replace(LINE, **change), 2) == (now, same)


@pytest.mark.parametrize(
    ("change", "now", "same"),
    [
        ({}, "admitted 1", True),
        ({"status": 404}, "admitted 1", True),
        ({"status": 404, "path": "/nowhere"}, "refused 404 not_found", True),
        ({"status": 200, "path": "/nowhere"}, "refused 404 not_found", False),
        ({"status": 429, "decision": "limited"}, "admitted 1", False),
        ({"status": 401, "decision": "refused"}, "refused 401 key_missing 1", True),
        ({"status": 401, "decision": "refused", "path": "/public/x"}, "admitted", True),
        ({"status": 400, "decision": "refused", "path": ""}, "refused 400", True),
    ],
)
def test_logs_of_other_servers(
    policy: Policy, change: dict[str, Any], now: str, same: bool
) -> None:
    """What the client gets decides: the server behind the gateway answers as before."""
    line = replace(LINE, is_own=False, cost=None, limit=None, **change)
    assert outcome(policy, line) == (now, same)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (NO_KEY, "key_id: found none, and route 'api' requires a key"),
        ({"plan": None}, "plan: found null, expected one of the policies'; see --plan"),
        (
            refused(401, "key_missing", client_ip="somewhere", **NO_KEY),
            'client_ip: found "somewhere", expected an IP address such as 192.0.2.7',
        ),
    ],
)
def test_what_cannot_be_said(policy: Policy, change: dict[str, Any], words: str) -> None:
    """A line that lacks what decides is a fault."""
    with pytest.raises(ValueError) as raised:
        expect(policy, replace(LINE, **change))
    assert str(raised.value) == words


def test_the_plan_of_lines_without_one(policy: Policy) -> None:
    """It is used only where the line has none: a key without a plan has an empty one."""
    line = replace(LINE, plan=None)
    assert expect(policy, line, "pro").check is not None
    assert expect(policy, replace(LINE, plan=""), "pro").refusal is not None


def test_lines_without_a_status() -> None:
    """They say nothing about then."""
    assert answer_then(replace(LINE, status=None)) is None
    assert answer_then(replace(LINE, reason="x" * 99)) == Answer("admitted", 200, "")


def test_preflights_are_answered_as_then(policy: Policy) -> None:
    """The log has neither their origin nor the method that they asked for, on which it depends."""
    preflight = {**NO_KEY, "method": "OPTIONS", "path": "/v1/connectors", "limit": "failed_auth"}
    admitted = replace(LINE, **preflight, status=204, cost=0)
    assert outcome(policy, admitted) == ("admitted", True)
    for status, reason in ((403, "origin_not_allowed"), (401, "key_missing")):
        line = replace(LINE, **{**preflight, **refused(status, reason)})
        assert outcome(policy, line)[1]
    other = replace(admitted, key_id="k1", account="acme", plan="free")
    assert outcome(policy, other)[0] != "refused 405"
