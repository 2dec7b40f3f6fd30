"""`gateway simulate`: decides the lines of an access log like the gateway itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli import replay
from gateway.cli.main import cli
from tests.kit.gateway import command
from tests.kit.policies import PLANS, ROUTES, write_policies
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.suites.limiter import vectors

START = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    routes = ROUTES + (
        '  mcp: {match: "* /mcp/**", upstream: api, plan_limits: false,\n'
        "        limits: [{name: mcp, rate: 100/minute}, {name: mcp_daily, quota: 10000/day},\n"
        "                 {name: mcp_connections, concurrency: 1}]}\n"
        '  held: {match: "* /held", upstream: api, plan_limits: false,\n'
        "         limits: [{name: held, concurrency: 1}]}\n"
        '  bare: {match: "* /bare/**", upstream: api, plan_limits: false}\n'
        '  heavy: {match: "* /heavy", upstream: api, cost: 7}\n'
        '  watched: {match: "* /watched", upstream: api,\n'
        "            limits: [{name: watch, rate: 1/minute, mode: shadow}]}\n"
        '  door: {match: "* /door", upstream: api, auth: none,\n'
        "         limits: [{name: door, rate: 1/minute, per: ip}]}\n"
        '  keyed: {match: "* /keyed", upstream: api, plan_limits: false,\n'
        "          limits: [{name: keyed, rate: 1/minute, per: ip}]}\n"
    )
    # Every plan admits the cost of /heavy.
    plans = "".join(one for one in PLANS.splitlines(keepends=True) if "brisk" not in one)
    return write_policies(tmp_path / "policies", "http://127.0.0.1:9", plans=plans, routes=routes)


def line(path: str = "/api/x", *, after_s: float = 0, **more: Any) -> dict[str, Any]:
    moment = START + timedelta(seconds=after_s)
    return {
        "time": moment.isoformat().replace("+00:00", "Z"),
        "client_ip": "192.0.2.1",
        "method": "GET",
        "path": path,
        "key_id": "k1",
        "account": "acme",
        "plan": "free",
        "decision": "admitted",
        **more,
    }


def run(policies: Path, *options: str, lines: list[Any], **environ: str) -> Result:
    text = "".join(x if isinstance(x, str) else json.dumps(x) + "\n" for x in lines)
    arguments = ["--policies", str(policies), *options, "-"]
    return CliRunner(env=environ).invoke(cli, ["simulate", *arguments], input=text)


def answers(policies: Path, *options: str, lines: list[Any]) -> list[dict[str, Any]]:
    result = run(policies, "--json", *options, lines=lines)
    return [json.loads(text) for text in result.stdout.splitlines()]


CASES = {"free": "/api/x", "pro": "/api/x", "search": "/api/search/x", "mcp": "/mcp/x"}


def as_log(case: dict[str, Any]) -> list[dict[str, Any]]:
    name = case["case"].partition("/")[0]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [
        line(CASES[name], plan="pro" if name == "pro" else "free", cost=cost)
        | {"time": (epoch + timedelta(microseconds=now_us)).isoformat()}
        for now_us, cost, _ in case["steps"]
    ]


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_recorded_traces(policies: Path, redis_server: RedisServer, store: str) -> None:
    """A recorded trace, written as a log, is decided as recorded, in process and in Redis."""
    url = redis_server.url if store == "redis" else "memory://"
    for case in vectors("limiter"):
        if case["case"].partition("/")[0] in CASES:
            found = answers(policies, "--store", url, lines=as_log(case))
            assert found == [wanted for *_, wanted in case["steps"]]
    with redis_server.client() as client:
        assert client.dbsize() == 0


def test_which_lines_count_together(policies: Path) -> None:
    """Each key counts separately; if the log has no account, the key's id replaces it."""
    lines = [line("/api/search/x", key_id=key, account=None) for key in ("k1", "k2", "k1")]
    assert [answer["remaining"] for answer in answers(policies, lines=lines)] == [29, 29, 28]


def test_concurrency_is_left_out(policies: Path) -> None:
    """A log has no concurrent requests: such limits refuse nothing and are not shown."""
    found = answers(policies, lines=[line("/mcp/x")] * 3 + [line("/held")] * 2)
    assert [answer["limit"] for answer in found] == ["mcp"] * 3 + [None] * 2
    assert all(answer["allowed"] for answer in found)
    shown = run(policies, lines=[line("/mcp/x")] * 3).stdout
    assert "mcp_daily" in shown
    assert "mcp_connections" not in shown


def test_cost(policies: Path) -> None:
    """The line's cost counts, else the route's; a request refused before limits costs nothing."""
    lines = [
        line("/heavy"),
        line("/heavy", cost=2),
        line("/heavy", decision="refused", status=403),
        line("/heavy", cost=0),
        line("/heavy", decision="limited"),
        line("/heavy", decision="failed"),
    ]
    found = [answer["remaining"] for answer in answers(policies, lines=lines)]
    assert found == [53, 51, 51, 51, 44, 37]


def test_refusals(policies: Path) -> None:
    """A refusal has the time until it would be admitted; null: never."""
    lines = [line("/api/webhooks/test", method="POST", cost=cost) for cost in (5, 1, 6)]
    _, refused, never = answers(policies, lines=lines)
    assert refused == {
        "allowed": False,
        "limit": "webhook-test",
        "remaining": 0,
        "reset_us": 60_999_994,
        "retry_us": 60_999_994,
    }
    assert never["retry_us"] is None


def test_where_no_limit_applies(policies: Path) -> None:
    """The gateway's own paths and routes without limits admit everything."""
    free = {"allowed": True, "limit": None, "remaining": None, "reset_us": None}
    lines = [line("/health", key_id=None, plan=None), line("/bare/x")]
    lines += [line("/Health"), line("/BARE/%41")]
    lines.append(line("*", method="OPTIONS", key_id=None, plan=None))
    assert answers(policies, lines=lines) == [free] * 5


def test_verify_has_its_own_limit(policies: Path) -> None:
    """A request to /v1/auth/verify counts there, though its line shows the plan's at cost 0."""
    lines = [line("/v1/auth/verify", limit="plan", cost=0), line(), line("/v1/auth/verify")]
    (policies / "auth_verify.yaml").write_text("auth_verify: {rate: 2/minute}\n")
    found = answers(policies, lines=lines)
    assert [(each["limit"], each["remaining"]) for each in found] == [
        ("auth_verify", 1),
        ("plan", 59),
        ("auth_verify", 0),
    ]


def test_route_without_keys(policies: Path) -> None:
    """On a route without keys, limits per address apply, and the plan is ignored."""
    lines = [line("/door", key_id=None, plan=None)] * 2
    assert [answer["allowed"] for answer in answers(policies, lines=lines)] == [True, False]


@pytest.mark.parametrize("route", ["/door", "/keyed"])
def test_addresses_of_one_ipv6_network(policies: Path, route: str) -> None:
    """They share a limit per address, as in the gateway."""
    ips = ["2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1", "2001:DB8:1:3::2"]
    lines = [line(route, client_ip=ip) for ip in (*ips, "192.0.2.1", "192.0.2.2")]
    found = [answer["allowed"] for answer in answers(policies, lines=lines)]
    assert found == [True, False, True, False, True, True]


def test_an_address_that_is_none(policies: Path) -> None:
    """A limit per address cannot count it; other limits ignore it."""
    bad = {"client_ip": "unknown"}
    found = answers(
        policies, lines=[line("/door", **bad), line(**bad), line("/door", client_ip="")]
    )
    assert found[0] == {
        "allowed": False,
        "error": 'client_ip: found "unknown", expected an IP address such as 192.0.2.7',
    }
    assert [answer["allowed"] for answer in found[1:]] == [True, True]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("nonsense\n", "invalid JSON"),
        ("[" * 100_000 + "\n", "found 101 levels of arrays and objects at byte 101"),
        ("\n", "invalid JSON"),
        ("[1]\n", "expected an object"),
        (line(time="yesterday"), "time: found"),
        (line(time="2026-01-02T03:04:05"), "time: found"),
        (line(time="9999-01-02T03:04:05Z"), "time: found"),
        (line(time=5), "time: found 5"),
        (line(method=None), "method: found null"),
        (line(path=7), "path: found 7"),
        (line(""), 'path: found ""'),
        (line(plan=None), "plan: found null"),
        (line(key_id=None), "requires a key"),
        (line(key_id="k" * 300), "key_id: found 300 characters, expected at most 256"),
        (line(status="2oo"), 'status: found "2oo", expected a status such as 200'),
        (line(decision="passed"), 'decision: found "passed", expected one of admitted,'),
        ("{" + " " * 2**20 + "}\n", "found a longer line, expected at most 1048576 bytes"),
        ('{"time": "\xff"}\n', "time: found"),
        (line(key_id=["k"]), "key_id: found"),
        (line(cost=-1), "cost: found -1"),
        (line(cost=True), "cost: found true"),
        (line(cost=1.5), "cost: found 1.5"),
        (line(cost=2**40), "cost: found"),
    ],
)
def test_lines_that_cannot_be_checked(policies: Path, bad: Any, words: str) -> None:
    """Such a line is reported with its fault; the others are decided, and the status is 1."""
    result = run(policies, "--json", lines=[line(), bad, line()])
    first, wrong, last = map(json.loads, result.stdout.splitlines())
    assert (first["remaining"], last["remaining"]) == (59, 58)
    assert wrong["allowed"] is False
    assert words in wrong["error"]
    assert result.stderr == f"-:2: {wrong['error']}\n"
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("changed", "words", "reason"),
    [
        (line("/api/search."), 'path: found "/api/search.", expected', "400 ambiguous_path"),
        (line("/api/a%2Fb"), 'path: found "/api/a%2Fb"', "400 bad_target"),
        (line("/api/\udcff"), "can be routed", "400 bad_request_line"),
        (line("/nowhere/" + "x" * 100), "no route for GET", "404 not_found"),
        (line(method="PUT", path="/v1/connectors/x y"), "can be routed", "400 bad_request_line"),
        (line(method="POST", path="/public/x"), "no route for POST", "405 method_not_allowed"),
        (line(plan="gold"), 'plan: found "gold"', "503 plan_unknown"),
    ],
)
def test_what_the_policies_refuse_now(
    policies: Path, changed: dict[str, Any], words: str, reason: str
) -> None:
    """That is a result, not a fault: status 0, and a reason in the summary."""
    lines = [line(), changed | {"status": 200}, line()]
    result = run(policies, "--json", lines=lines)
    first, wrong, last = map(json.loads, result.stdout.splitlines())
    assert (first["remaining"], last["remaining"]) == (59, 58)
    assert words in wrong.pop("error")
    assert wrong == {"allowed": False, "then": "admitted", "now": "refused"}
    assert (result.stderr, result.exit_code) == ("", 0)
    shown = run(policies, lines=lines).stdout
    assert f"refused, but not by a limit: {reason}: 1" in shown
    assert f"admitted then, refused now: 1 ({reason}: 1)" in shown


def test_refused_without_a_key(policies: Path) -> None:
    """Requests that were refused without a key or a route are skipped without an error."""
    lines = [line(key_id=None, plan=None, decision="refused"), line("/no", decision="refused")]
    result = run(policies, "--json", lines=lines)
    assert [set(json.loads(text)) for text in result.stdout.splitlines()] == [
        {"allowed", "error"}
    ] * 2
    assert (result.stderr, result.exit_code) == ("", 0)


#: One line of each kind that the gateway logs without a key, a path or a method.
UNREAD: list[dict[str, Any]] = [
    line("", method="", key_id=None, plan=None, decision="refused", limit="failed_auth", cost=0),
    line("", key_id=None, plan=None, decision="refused", limit="failed_auth", cost=0),
    line(key_id=None, plan=None, decision="refused", limit="failed_auth", cost=1),
    line(key_id=None, plan=None, decision="limited", limit="failed_auth", cost=1),
    line(key_id=None, plan=None, decision="failed"),
    line("", method="", key_id=None, plan=None, decision="failed"),
]


def test_lines_of_requests_that_could_not_be_read(policies: Path) -> None:
    """They cost nothing; a failed authentication costs its address a unit."""
    result = run(policies, lines=[line(), *UNREAD])
    assert (result.stderr, result.exit_code) == ("", 0)
    assert re.search(r"^- +failed_auth +2 +2 +0 ", result.stdout, re.MULTILINE)
    assert "7 lines read, 4 of them cost nothing, 0 could not be decided" in result.stdout


def test_refused_after_it_was_counted(policies: Path) -> None:
    """A request with a malformed body was counted before its refusal."""
    bad_chunk = line(decision="refused", status=400, limit="plan", cost=1)
    no_scope = line(decision="refused", status=403, limit="plan", cost=0)
    found = answers(policies, lines=[bad_chunk, no_scope, line()])
    assert [answer["remaining"] for answer in found] == [59, 59, 58]


def test_a_closed_pipe(policies: Path, tmp_path: Path) -> None:
    """Like `head`: the command ends silently."""
    log = tmp_path / "access.log"
    log.write_text((json.dumps(line()) + "\n") * 5_000)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as output:
        ended = subprocess.run(
            command("simulate", "--policies", str(policies), "--json", str(log)),
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_summary(policies: Path) -> None:
    """Without --json a table shows which keys would have been limited, by which limit, and when."""
    lines = [line("/api/webhooks/test", method="POST", after_s=n) for n in range(7)]
    lines += [line("/watched")] * 2 + [
        line("/health"),
        line("/api/webhooks/test", method="POST", key_id="k2"),
    ]
    result = run(policies, lines=lines)
    assert result.exit_code == 0
    rows = [text.split() for text in result.stdout.splitlines()]
    assert ["free", "plan", "10", "8", "0", "2", "-", "-"] in rows
    assert [
        "free",
        "webhook-test",
        "8",
        "6",
        "2",
        "0",
        "2026-01-02T03:04:10.000006Z",
        "2026-01-02T03:04:11.000006Z",
    ] in rows
    moment = "2026-01-02T03:04:05.000006Z"
    assert ["free", "watch", "(shadow)", "2", "2", "1", "0", moment, moment] in rows
    assert rows[rows.index(["KEY", "LIMITED"]) + 1] == ["k1", "2"]
    assert "k2" not in result.stdout
    assert "11 lines read, 1 of them cost nothing, 0 could not be decided" in result.stdout


def test_candidates(tmp_path: Path) -> None:
    """A candidate is listed like a limit in shadow mode, and refuses nothing."""
    limit = "rate: 5/minute, candidate: {rate: 2/minute}"
    routes = f"routes: {{all: {{match: '* /**', upstream: api, {limit}}}}}"
    policies = write_policies(tmp_path / "p", "http://127.0.0.1:9", plans=PLANS, routes=routes)
    result = run(policies, lines=[line()] * 6)
    rows = [text.split()[:7] for text in result.stdout.splitlines()]
    assert ["free", "all", "6", "5", "1", "0"] in [row[:6] for row in rows]
    assert ["free", "all:candidate", "(shadow)", "6", "5", "4", "0"] in rows


def test_nothing_to_report(policies: Path) -> None:
    """An empty log is no error."""
    result = run(policies, lines=[])
    assert result.exit_code == 0
    assert "0 lines read" in result.stdout


def test_files_one_after_the_other(policies: Path, tmp_path: Path) -> None:
    """Several logs are counted together; errors name the file and line."""
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    paths[0].write_text(json.dumps(line()) + "\n")
    paths[1].write_text(json.dumps(line()) + "\n?\n")
    arguments = ["--json", "--policies", str(policies), *map(str, paths)]
    result = CliRunner().invoke(cli, ["simulate", *arguments])
    assert [json.loads(text).get("remaining") for text in result.stdout.splitlines()] == [
        59,
        58,
        None,
    ]
    assert result.stderr.startswith(f"{paths[1]}:2: ")


def test_bad_usage(policies: Path, tmp_path: Path) -> None:
    """Bad usage is exit status 2; faulty policies are listed, with 1."""
    assert run(policies, "--store", "http://x", lines=[]).exit_code == 2
    words = ["simulate", "--policies", str(policies), str(tmp_path / "none")]
    missing = CliRunner().invoke(cli, words)
    assert missing.exit_code == 2
    (policies / "plans.yaml").write_text("plans: {free: {rate: 60/minut}}\n")
    faulty = run(policies, lines=[])
    assert faulty.exit_code == 1
    assert "plans.yaml:1" in faulty.stderr


def test_store_that_is_not_there(policies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that cannot be reached is one line and exit status 1."""
    monkeypatch.setattr(replay, "_TIMEOUT_S", 0.1)
    result = run(policies, "--store", f"redis://127.0.0.1:{free_port()}", lines=[line()])
    assert result.exit_code == 1
    assert "cannot connect" in result.stderr


def test_live_store_is_not_touched(policies: Path, redis_server: RedisServer) -> None:
    """GATEWAY_STORE, which is the live store, is ignored; only --store counts."""
    result = run(policies, "--json", lines=[line()], GATEWAY_STORE="redis://127.0.0.1:1")
    assert result.exit_code == 0
    with redis_server.client() as client:
        client.set("gw:limit:{acme}:key:k1:plan:rate:60000000", "live")
        found = answers(policies, "--store", redis_server.url, lines=[line()] * 2)
        assert [answer["remaining"] for answer in found] == [59, 58]
        assert client.keys() == [b"gw:limit:{acme}:key:k1:plan:rate:60000000"]


def test_interrupted(
    policies: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle leaves nothing in the store, either."""

    def interrupt(_: Any) -> None:
        with redis_server.client() as client:
            assert client.dbsize() == 1
        raise KeyboardInterrupt

    monkeypatch.setattr("gateway.cli.simulate.Summary.add", lambda _, result: interrupt(result))
    result = run(policies, "--store", redis_server.url, lines=[line()])
    assert result.exit_code != 0
    with redis_server.client() as client:
        assert client.dbsize() == 0


NGINX = '192.0.2.{0} - - [02/Jan/2026:03:04:{1:02} +0000] "GET /api/{2} HTTP/1.1" {3} 1 "-" "-"\n'


def test_a_log_of_nginx(policies: Path) -> None:
    """Clients are known by their addresses, and all have the plan of --plan."""
    lines = [NGINX.format(1, at, "search/x", 200) for at in range(40)]
    lines += [
        NGINX.format(2, 50, "x", 429),
        NGINX.format(3, 50, "x", 404),
        NGINX.format(4, 1, "", "x"),
    ]
    result = run(policies, "--plan", "free", lines=lines)
    assert "42 requests compared with the log, 31 as then" in result.stdout
    assert "admitted then, refused now: 10 (by limit search: 10)" in result.stdout
    assert "429 then, admitted now: 1\n" in result.stdout
    assert result.stderr.startswith("-:43: found another format, expected a line such as 192.0.2.1")
    assert result.exit_code == 1


def test_a_log_by_a_template(policies: Path) -> None:
    """--template, or that of the policies; a sample is said."""
    template = "{time} {method} {path} {key_id} {plan} {status} {sample}"
    lines = [f"2026-01-02T03:04:05.{at:06}Z GET /api/x k1 free 200 0.1\n" for at in range(3)]
    result = run(policies, "--template", template, lines=lines)
    assert "3 requests compared with the log, 3 as then" in result.stdout
    assert "the log is a sample: 3 lines stand for more requests than one" in result.stdout
    missing = run(policies, "--format", "template", lines=lines)
    assert missing.exit_code == 2
    assert "access_log.format is json in the policies" in missing.output
    (policies / "log.yaml").write_text(f'access_log: {{format: "{template}"}}\n')
    assert run(policies, "--format", "template", lines=lines).stdout == result.stdout
    for wrong, words in (
        ("{time} {stauts}", "more (did you mean 'status'?)"),
        ("{time} {path}", "expected one with time, and method and path"),
    ):
        refused = run(policies, "--template", wrong, lines=lines)
        assert refused.exit_code == 2
        assert words in refused.output
    both = run(policies, "--template", template, "--format", "json", lines=lines)
    assert "--template: found --format json, expected none" in both.output


def test_the_plan_of_other_logs(policies: Path) -> None:
    """Without --plan each line is a fault, of which ten are printed; unless there is one plan."""
    lines = [NGINX.format(1, 0, "x", 200)] * 12
    result = run(policies, lines=lines)
    assert result.exit_code == 1
    *faults, last = result.stderr.splitlines()
    assert faults == [
        f"-:{number}: plan: found null, expected one of the policies'; see --plan"
        for number in range(1, 11)
    ]
    assert last == "2 more lines could not be read or decided"
    wrong = run(policies, "--plan", "gold", lines=lines)
    assert wrong.exit_code == 2
    assert "found 'gold', expected one of free, pro" in wrong.stderr
    (policies / "plans.yaml").write_text("plans: {only: {rate: 60/minute}}\n")
    assert run(policies, lines=lines).exit_code == 0


def test_fields_of_json(policies: Path) -> None:
    """--field says where JSON lines have a field; a name that is none is bad usage."""
    text = json.dumps({"ts": 1_767_323_045, "req": {"m": "GET", "u": "/api/x"}, "by": {"id": 7}})
    fields = ("time=ts", "method=req.m", "path=req.u", "key=by.id")
    options = [word for field in fields for word in ("--field", field)]
    found = answers(policies, "--plan", "free", *options, lines=[text + "\n"] * 2)
    assert [each["remaining"] for each in found] == [59, 58]
    for wrong in (("--field", "pth=x"), ("--field", "path=x", "--format", "envoy"), ("--json",)):
        assert run(policies, "--json-summary", *wrong, lines=[]).exit_code == 2


def test_requests_that_took_long(policies: Path) -> None:
    """A WebSocket's line comes after those of later requests, whose window it must not end."""
    searches = [line("/api/search/x", after_s=3600, duration_ms=1.5)] * 30
    socket = line("/api/search/x", duration_ms=3_600_500.0)
    found = answers(policies, lines=[*searches, socket, line("/api/search/x", after_s=3601)])
    assert [each["allowed"] for each in found] == [True] * 30 + [False, False]


def test_the_summary_as_json(policies: Path) -> None:
    """--json-summary is one object."""
    lines = [line("/api/search/x", status=200)] * 31
    shown = json.loads(run(policies, "--json-summary", lines=lines).stdout)
    assert (shown["lines"], shown["compared"], shown["same"]) == (31, 31, 30)
    assert shown["routes"] == [
        {"route": "search", "refused_now": 1, "admitted_now": 0, "otherwise": 0}
    ]


def test_hosts(tmp_path: Path) -> None:
    """A line is routed by its host; lines without one by the routes of all hosts, which is said."""
    routes = (
        "routes:\n"
        "  shop: {match: GET /a, upstream: api, hosts: [shop.example], rate: 1/minute}\n"
        "  all:  {match: GET /a, upstream: api, plan_limits: false, rate: 7/minute}\n"
    )
    policies = write_policies(tmp_path / "policies", "http://127.0.0.1:9", routes=routes)
    lines = [line("/a", host="Shop.example:80"), line("/a", host="x.example"), line("/a")]
    assert [each["limit"] for each in answers(policies, lines=lines)] == ["shop", "all", "all"]
    text = run(policies, lines=lines).output
    assert "1 lines have no host: decided by the routes without hosts" in text
    assert json.loads(run(policies, "--json-summary", lines=lines).output)["without_host"] == 1
    named = run(
        policies, "--json", "--field", "host=vhost", lines=[line("/a", vhost="shop.example")]
    )
    assert json.loads(named.output)["limit"] == "shop"
    assert "no host" not in run(policies, lines=lines[:2]).output


def test_without_hosts_nothing_is_said_of_them(policies: Path) -> None:
    """Policies whose routes name no host do not need it."""
    assert "host" not in run(policies, lines=[line("/api/x")]).output
