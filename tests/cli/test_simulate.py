"""`gateway simulate`: decides the lines of an access log like the gateway itself."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.replay import parse_time
from gateway.cli.simulate import simulate
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
    return write_policies(tmp_path / "policies", "http://127.0.0.1:9", plans=PLANS, routes=routes)


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
    return CliRunner(env=environ).invoke(simulate, arguments, input=text)


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
    lines = [line("/health", key_id=None, plan=None), line("/v1/auth/verify"), line("/bare/x")]
    lines += [line("/Health"), line("/BARE/%41")]
    lines.append(line("*", method="OPTIONS", key_id=None, plan=None))
    assert answers(policies, lines=lines) == [free] * 6


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
        ("[" * 100_000 + "\n", "invalid JSON"),
        ("\n", "invalid JSON"),
        ("[1]\n", "expected an object"),
        (line(time="yesterday"), "time: found"),
        (line(time="2026-01-02T03:04:05"), "time: found"),
        (line(time="9999-01-02T03:04:05Z"), "time: found"),
        (line(time=5), "time: found 5"),
        (line(method=None), "method: found null"),
        (line(path=7), "path: found 7"),
        (line(""), 'path: found ""'),
        (line("/api/search."), 'path: found "/api/search.", expected one that can be routed'),
        (line("/api/a%2Fb"), 'path: found "/api/a%2Fb"'),
        (line("/api/%2f"), "can be routed"),
        (line("/api/\udcff"), "can be routed"),
        (line("/nowhere/" + "x" * 100), "no route for GET"),
        (line(plan="gold"), 'plan: found "gold"'),
        (line(plan=None), "plan: found null"),
        (line(key_id=None), "requires a key"),
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
    """They are skipped without an error: 400, 408, 414, 431, and 429 without a key."""
    result = run(policies, lines=[line(), *UNREAD])
    assert (result.stderr, result.exit_code) == ("", 0)
    assert "7 lines read, 6 of them cost nothing, 0 could not be decided" in result.stdout


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
    assert (ended.returncode, ended.stderr) == (1, b"")


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
    result = CliRunner().invoke(simulate, arguments)
    assert [json.loads(text).get("remaining") for text in result.stdout.splitlines()] == [
        59,
        58,
        None,
    ]
    assert result.stderr.startswith(f"{paths[1]}:2: ")


def test_bad_usage(policies: Path, tmp_path: Path) -> None:
    """Bad usage is exit status 2; faulty policies are listed, with 1."""
    assert run(policies, "--store", "http://x", lines=[]).exit_code == 2
    missing = CliRunner().invoke(simulate, ["--policies", str(policies), str(tmp_path / "none")])
    assert missing.exit_code == 2
    (policies / "plans.yaml").write_text("plans: {free: {rate: 60/minut}}\n")
    faulty = run(policies, lines=[])
    assert faulty.exit_code == 1
    assert "plans.yaml:1" in faulty.stderr


def test_store_that_is_not_there(policies: Path) -> None:
    """A store that cannot be reached is one line and exit status 1."""
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


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("2026-01-02T03:04:05Z", 1_767_323_045_000_000),
        ("2026-01-02T03:04:05.000006Z", 1_767_323_045_000_006),
        ("2026-01-02T05:04:05.1+02:00", 1_767_323_045_100_000),
        ("2026-01-02T03:04:05.9999999Z", 1_767_323_045_999_999),
    ],
)
def test_times(text: str, time_us: int) -> None:
    """A time is read to the microsecond, in any time zone."""
    assert parse_time(text) == time_us
