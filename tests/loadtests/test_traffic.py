"""The parts of a traffic run: its options, its inputs, and its verdict."""

from __future__ import annotations

import csv
import os
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.cli.demo_upstream import build_demo_upstream
from gateway.cli.shipped import find_policies
from gateway.policies.load import load
from loadtests.traffic import __main__ as tool
from loadtests.traffic import outage as outages
from loadtests.traffic import run as runs
from loadtests.traffic.drawing import draw
from loadtests.traffic.figures import Figures, Met
from loadtests.traffic.keychain import Keychain, Turns, read_keys
from loadtests.traffic.memory import Memory, growth
from loadtests.traffic.objectives import Measured, Objectives, is_enough, judge
from loadtests.traffic.objectives import describe as describe_run
from loadtests.traffic.outage import AWAY_S, Outage
from loadtests.traffic.outcome import measure, percentile
from loadtests.traffic.run import Asked, command, environment, verdict_lines
from loadtests.traffic.sites import Demo, Site, copy_policies, parse_demo
from loadtests.traffic.stages import Stage, callers_at, callers_until, parse_stages
from loadtests.traffic.truth import RETRY
from tests.kit.policies import write_policies
from tests.kit.rows import each_row

# -- the inputs of a run ---------------------------------------------------------------------------


def test_stages_are_read_and_followed() -> None:
    """Each stage lasts its time; after the last there is none."""
    stages = parse_stages("10:30s, 50:1m,5:1h")
    assert stages == (Stage(10, 30), Stage(50, 60), Stage(5, 3600))
    moments = [(0, 10), (29.9, 10), (30, 50), (89.9, 50), (90, 5), (3690, None)]
    assert [callers_at(stages, at_s) for at_s, _ in moments] == [most for _, most in moments]


@each_row(
    ("passed_s", "enough", "callers"),
    [
        (0.0, True, 10),
        (59.9, True, 50),
        (60.0, True, None),
        (60.0, False, 50),
        (65.9, False, 50),
        (66.0, False, None),
    ],
)
def test_the_last_stage_goes_on_until_it_is_enough(
    passed_s: float, enough: bool, callers: int | None
) -> None:
    """It ends after its time if enough was seen, and after the additional time in any case."""
    stages = parse_stages("10:30s,50:30s")
    assert callers_until(stages, passed_s, 6, lambda: enough) == callers


@each_row("text", ["", "10", "10:", "10:30", "10:30d", ":30s", "-1:30s", "1:1s,"])
def test_invalid_stages(text: str) -> None:
    """The error has an example of a stage."""
    with pytest.raises(ValueError, match="such as 10:30s"):
        parse_stages(text)


def test_keys_come_from_the_environment() -> None:
    """Keys are separated by commas, each is used once, and plans without keys are left out."""
    found = read_keys({"GATEWAY_KEY_FREE": "a, b,,a ", "GATEWAY_KEY_PRO": " ", "OTHER": "c"})
    assert found == {"free": ["a", "b"]}


def test_a_client_has_its_own_key_while_there_are_enough() -> None:
    """With two keys, the third client shares the first's until it gives it back."""
    chain = Keychain(["a", "b"])
    first, second, third = chain.take(), chain.take(), chain.take()
    assert (first.text, second.text, third.text) == ("a", "b", "a")
    assert [held.witness.is_alone for held in (first, second)] == [False, True]
    chain.give_back(third)
    assert first.witness.is_alone
    assert not Keychain(["a"], exclusive=False).take().witness.is_alone


def test_gateways_alternate() -> None:
    """Addresses alternate; a slash at the end of one is removed."""
    turns = Turns(["http://a:1/", "http://b:2"])
    assert [turns.next() for _ in range(3)] == ["http://a:1", "http://b:2", "http://a:1"]


DEMO = """a warning
Gateway   http://127.0.0.1:8123
Metrics   http://127.0.0.1:9/metrics
Store     a private Redis

A key for each plan, valid until the demo ends:
  free        gwk_production_7h3k9m2p4q6r_one
  pro         gwk_production_8h3k9m2p4q6r_two

# 200, and how much remains
curl -i -H 'Authorization: Bearer gwk_production_8h3k9m2p4q6r_two' http://127.0.0.1:8123/v1/x

Ctrl-C ends the demo and removes its data.
"""


def test_the_output_of_the_demo_is_parsed() -> None:
    """The demo's address and keys are read once it has printed everything."""
    keys = {
        "free": "gwk_production_7h3k9m2p4q6r_one",
        "pro": "gwk_production_8h3k9m2p4q6r_two",
    }
    assert parse_demo(DEMO) == Demo("http://127.0.0.1:8123", keys)
    assert parse_demo(DEMO[:-60]) is None


# -- the limits of a request ----------------------------------------------------------------------

ROUTES = """
routes:
  search: {match: GET /api/search/*, upstream: api, rate: 30/minute}
  linked: {match: GET /v1/c, upstream: api, scopes: ["c:read"], plan_limits: false,
           limits: [{name: linked, rate: 5/minute}, {name: places, concurrency: 3}]}
  costly: {match: GET /costly, upstream: api, cost: 2}
  shared: {match: GET /shared, upstream: api, limits: [{name: a, rate: 7/minute, per: ip}]}
  shadow: {match: GET /shadow, upstream: api, plan_limits: false,
           limits: [{name: s, rate: 9/minute, mode: shadow}]}
  open:   {match: GET /open, upstream: api, auth: none}
"""


@each_row(
    ("path", "names", "told", "waits"),
    [
        ("/api/search/x", {"plan", "search"}, {60, 30}, True),
        ("/v1/c", {"linked", "places"}, {5, 3}, False),  # the end of a request is unknown
        ("/costly", {"plan"}, {60}, True),
        ("/shared", {"plan"}, {60, 7}, False),  # other clients share the address's limit
        ("/shadow", set(), {9}, True),
        ("/open", set(), set(), False),
        ("/nowhere", set(), set(), False),
        ("/v1/auth/verify", {"plan"}, {60, 6000}, False),
    ],
)
def test_what_a_request_meets(
    tmp_path: Path, path: str, names: set[str], told: set[int], waits: bool
) -> None:
    """The enforced limits that are counted per key, and the amounts that may be reported."""
    figures = Figures(load(write_policies(tmp_path, "http://127.0.0.1:9", routes=ROUTES)), "free")
    met = figures.meets("GET", path)
    assert {limit.name for limit in met.limits} == names
    assert (met.told, met.waits) == (told, waits)
    assert met is figures.meets("GET", path)


def test_what_a_request_costs_and_needs(tmp_path: Path) -> None:
    """Cost and scopes are the route's; the gateway's own answers cost nothing."""
    figures = Figures(load(write_policies(tmp_path, "http://127.0.0.1:9", routes=ROUTES)), "free")
    costs = [figures.meets("GET", path).cost for path in ("/costly", "/v1/auth/verify", "/shared")]
    assert costs == [2, 0, 1]
    assert figures.meets("GET", "/v1/c").scopes == {"c:read"}
    assert figures.meets("GET", "/shared").shared == {7}
    assert figures.meets("POST", "/v1/c") == Met()


@each_row(("path", "told"), [("/v1/auth/verify", {600, 60}), ("/v1/health", {600})])
def test_the_gateways_own_answers(path: str, told: set[int]) -> None:
    """The plan's limit is reported, and by /v1/auth/verify its own, which other clients share."""
    met = Figures(load(find_policies()), "pro").meets("GET", path)
    assert (met.told, met.shared, met.cost) == (told, told - {600}, 0)
    assert [limit.name for limit in met.limits] == ["plan"]


def test_the_paths_of_the_callers_are_the_shipped_routes() -> None:
    """Each path meets its limit, and the demo's upstream answers it."""
    figures = Figures(load(find_policies()), "pro")
    limits = {
        ("GET", "/api/search/issues"): "search",
        ("POST", "/api/tickets/batch"): "batch",
        ("POST", "/api/webhooks/test"): "webhook-test",
        ("POST", "/mcp"): "mcp",
        ("GET", "/whoami"): "plan",
    }
    for (method, path), name in limits.items():
        assert name in {limit.name for limit in figures.meets(method, path).limits}
    assert figures.meets("GET", "/v1/connectors").scopes
    assert "/whoami" in {
        route.resource.canonical for route in build_demo_upstream().router.routes()
    }


def test_the_shipped_policies_are_copied_with_their_values(tmp_path: Path) -> None:
    """Only the store's timeout, the upstream and the report of a fallback differ."""
    shipped = load(find_policies())
    patient = load(copy_policies(tmp_path / "a", patient=True, upstream=7123))
    hasty = load(copy_policies(tmp_path / "b", patient=False))
    assert (patient.plans, hasty.plans) == (shipped.plans, shipped.plans)
    assert (patient.store.timeout_s, hasty.store.timeout_s) == (5.0, shipped.store.timeout_s)
    assert patient.fallback_header
    assert hasty.fallback_header
    assert patient.upstreams["api"].servers[0].port == 7123


def test_a_changed_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the shipped files have changed, the run fails, instead of using other policies."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "gateway.yaml").write_text("environment: production\n")
    monkeypatch.setattr("loadtests.traffic.sites.find_policies", lambda: tmp_path / "old")
    with pytest.raises(ValueError, match="nothing reads 'fallback: false'"):
        copy_policies(tmp_path / "new", patient=True)


# -- objectives -----------------------------------------------------------------------------------

WELL = Measured(requests=100, errors=0, limited=9, p99_ms=40.0, checks={RETRY: 2, "other": 5})


@each_row(
    ("asked", "measured", "unmet"),
    [
        (Objectives(), WELL, []),
        (Objectives(p99_ms=40, least_waits=2, least_requests=100), WELL, []),
        (Objectives(p99_ms=39), WELL, ["p99 of what was admitted 40 ms, at most 39 ms"]),
        (Objectives(least_waits=3), WELL, ["2 waits for Retry-After, at least 3"]),
        (Objectives(least_requests=101), WELL, ["100 requests, at least 101"]),
        (Objectives(most_errors=0.02), Measured(100, 2, 0, 1.0), []),
        (
            Objectives(most_errors=0.01),
            Measured(100, 2, 0, 1.0),
            ["2 errors (2.00%), at most 1.00%"],
        ),
        (Objectives(), Measured(0, 0, 0, None), ["0 requests, at least 1"]),
        (
            Objectives(p99_ms=1),
            Measured(5, 0, 5, None),
            ["p99 of what was admitted nothing, at most 1 ms"],
        ),
        (
            Objectives(),
            Measured(5, 0, 0, 1.0, broken={"b": 1, "a": 2}, checks={"a": 9}),
            ["3 truths broken in 9 checks; a: 2; b: 1"],
        ),
        (
            Objectives(),
            Measured(5, 0, 0, 1.0, exceptions=1),
            ["1 exceptions in the load test itself"],
        ),
        (Objectives(all_checked=True), WELL, []),
        (Objectives(), replace(WELL, unchecked=frozenset("ba")), []),
        (
            Objectives(all_checked=True),
            replace(WELL, unchecked=frozenset("ba")),
            ["2 truths unchecked; a; b"],
        ),
    ],
)
def test_objectives(asked: Objectives, measured: Measured, unmet: list[str]) -> None:
    """An unmet objective says what was found and what was expected."""
    findings = judge(asked, measured)
    assert [finding.words for finding in findings if not finding.is_met] == unmet
    assert all(str(finding).startswith(("met: ", "NOT MET: ")) for finding in findings)


@each_row(
    ("asked", "enough"),
    [
        (Objectives(p99_ms=1, least_requests=100, least_waits=2), True),
        (Objectives(least_requests=101), False),
        (Objectives(least_waits=3), False),
        (Objectives(all_checked=True), False),
    ],
)
def test_a_longer_run_can_meet_some_objectives(asked: Objectives, enough: bool) -> None:
    """It sends more, waits more often and checks more; it is no faster."""
    assert is_enough(asked, replace(WELL, unchecked=frozenset("a"))) is enough


def test_a_run_says_what_it_tested() -> None:
    """The result lists only assertions that were checked."""
    assert describe_run(WELL) == [
        "tested 5 times: other",
        f"tested 2 times: {RETRY}",
        "100 requests, of them 9 with 429",
    ]


def test_what_locust_counted() -> None:
    """Broken assertions are no requests, and refusals do not count for p99."""

    def entry(method: str, name: str, requests: int, failures: int, took_ms: int) -> Any:
        return SimpleNamespace(
            method=method,
            name=name,
            num_requests=requests,
            num_failures=failures,
            response_times={took_ms: requests},
        )

    entries = [
        entry("GET", "/a", 90, 2, 10),
        entry("POST", "/b", 10, 0, 30),
        entry("GET", "/a 429", 500, 0, 1),
        entry("GET", "/c 403", 7, 0, 900),
        entry("truth", "it is so", 3, 3, 0),
    ]
    locust: Any = SimpleNamespace(
        stats=SimpleNamespace(entries=dict(enumerate(entries))),
        runner=SimpleNamespace(exceptions={"x": {"count": 4}}),
    )
    found = measure(locust, {"it is so": 9})
    assert found == Measured(607, 2, 500, 30, {"it is so": 3}, {"it is so": 9}, exceptions=4)
    assert percentile({10: 90, 30: 10}, 0.9) == 10
    assert percentile({}, 0.9) is None


# -- memory ---------------------------------------------------------------------------------------


def test_growth_is_that_of_the_second_half() -> None:
    """Growth in the first half of a run is ignored."""
    warm = [(float(at_s), min(at_s, 50) * 1000) for at_s in range(1, 101)]
    assert growth(warm) == pytest.approx(0.0, abs=0.001)
    leak = [(float(at_s), 1000 + 10 * at_s) for at_s in range(100)]
    found = growth(leak)
    assert found is not None
    assert found > 0.2
    assert growth(warm[:30]) is None


def test_a_curve_is_written_and_drawn(tmp_path: Path) -> None:
    """A curve is a CSV file, and an image whose scale begins at zero."""
    memory = Memory()
    memory.series = {"one <&>": [(0.0, 50 << 20), (9.5, 61 << 20)], "two": [(0.0, 20 << 20)]}
    memory.write(tmp_path / "memory.csv")
    with (tmp_path / "memory.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[:2] == [["seconds", "process", "rss_bytes"], ["0.0", "one <&>", str(50 << 20)]]
    drawn = ET.fromstring(draw("A title", memory.series))
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"A title", "one <&>", "two", "0", "70", "MiB"} <= set(texts)
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
    assert draw("Nothing", {}).count("<polyline") == 0


def test_memory_of_what_a_process_started(tmp_path: Path) -> None:
    """The memory of this process is sampled; a process id that does not exist is skipped."""
    memory = Memory()
    memory.sample(1.0, {"us": os.getpid(), "nobody": 2**22 + 1})
    assert memory.series["us"][0][1] > 1 << 20
    assert "nobody" not in memory.series


# -- an outage ------------------------------------------------------------------------------------


class FakeRedis:
    """killed: a file that it makes when it is killed"""

    def __init__(self, killed: Path | None = None) -> None:
        self.calls: list[str] = []
        self._killed = killed

    def kill(self) -> None:
        self.calls.append("kill")
        if self._killed is not None:
            self._killed.touch()

    def start(self) -> None:
        self.calls.append("start")


def test_redis_is_killed_once_and_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is killed at its time and restarted later; then the gateways must use it again."""
    metrics = {"gateway_store_up": 0, "gateway_store_fallback_active": 1}

    def ask(port: int, path: str) -> Any:
        lines = [f"{name} {value}" for name, value in metrics.items()]
        return SimpleNamespace(body="\n".join(["# HELP x y", *lines]).encode())

    monkeypatch.setattr(outages.probe, "ask", ask)
    redis: Any = FakeRedis()
    outage = Outage(redis, [1, 2], at_s=10)
    outage.move(9)
    assert redis.calls == []
    outage.move(10)
    outage.move(10 + AWAY_S - 1)
    assert outage.was_noticed
    assert redis.calls == ["kill"]
    outage.move(10 + AWAY_S)
    outage.move(20)
    assert redis.calls == ["kill", "start"]
    assert (outage.is_over, outage.words) == (False, "the gateways did not rely on Redis again")
    metrics.update(gateway_store_up=1, gateway_store_fallback_active=0)
    outage.move(22)
    assert outage.is_over
    assert outage.words == "Redis relied on again 7 s after its return"


def test_a_gateway_without_metrics_has_not_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without metrics of the gateway, the outage does not end."""

    def ask(*_: object) -> Any:
        raise ConnectionRefusedError

    monkeypatch.setattr(outages.probe, "ask", ask)
    redis: Any = FakeRedis()
    outage = Outage(redis, [1], at_s=0)
    for now_s in range(20):
        outage.move(now_s)
    assert not outage.is_over


def test_an_undetected_outage_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no gateway notices the outage, its objective is not met."""
    well = b"gateway_store_up 1\ngateway_store_fallback_active 0\n"
    monkeypatch.setattr(outages.probe, "ask", lambda *_: SimpleNamespace(body=well))
    redis: Any = FakeRedis()
    outage = Outage(redis, [1], at_s=0)
    for now_s in range(20):
        outage.move(now_s)
    assert (outage.is_over, redis.calls) == (False, ["kill", "start"])
    assert outage.words == "the gateways did not notice that Redis was away"


# -- the run --------------------------------------------------------------------------------------

SITE = Site(["http://a:1", "http://b:2"], {"free": ["gwk_x", "gwk_y"]}, Path("policies"))


def test_keys_are_never_on_a_command_line(tmp_path: Path) -> None:
    """Keys are in Locust's environment only."""
    asked = Asked(seconds=90, users=5)
    assert "gwk_" not in " ".join(command(SITE, asked, tmp_path))
    found = environment(SITE)
    assert found["GATEWAY_KEY_FREE"] == "gwk_x,gwk_y"
    assert found["GATEWAY_HOSTS"] == "http://a:1,http://b:2"


@pytest.mark.parametrize(
    ("seconds", "chaos", "waits"), [(90, False, 1), (90, True, 0), (9, False, 0)]
)
def test_a_long_run_must_wait_retry_after(
    tmp_path: Path, seconds: float, chaos: bool, waits: int
) -> None:
    """A run of more than a minute without an outage must have a client wait Retry-After."""
    words = command(SITE, Asked(seconds=seconds, users=5, chaos=chaos), tmp_path)
    assert words[words.index("--least-waits") + 1] == str(waits)


def test_the_verdict_is_found_in_locusts_output() -> None:
    """The verdict's lines are separated from Locust's log and tables."""
    told = "tested 3 times: it\n5 requests, of them 1 with 429\nmet: a\nNOT MET: b\n"
    printed = f"[2026] INFO x\n\n{told}GET /x 429\n"
    assert verdict_lines(printed) == told.splitlines()


def fake_locust(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """A program in place of Locust."""
    monkeypatch.setattr(runs, "command", lambda *_: [sys.executable, "-c", code])


@pytest.mark.parametrize(
    ("code", "is_met", "message"),
    [
        ("print('met: all of it')", True, "met: all of it\nmet: Locust ended with 0\nPASSED"),
        ("print('NOT MET: b'); exit(1)", False, "NOT MET: b\nNOT MET: Locust ended with 1\nFAILED"),
        ("exit(2)", False, "Locust said nothing of objectives; its output is in"),
    ],
)
def test_locusts_verdict_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: str,
    is_met: bool,
    message: str,
) -> None:
    """Locust's verdict is printed, and its exit status is an objective."""
    fake_locust(monkeypatch, code)
    assert runs.run(SITE, Asked(seconds=9, users=5), tmp_path) is is_met
    assert message in capsys.readouterr().out


def test_locust_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locust is ended after its time, and the run fails."""
    monkeypatch.setattr(runs, "_MORE_S", 0.0)
    monkeypatch.setattr(runs, "_ENDING_S", -1.0)
    fake_locust(monkeypatch, "import time; time.sleep(600)")
    assert not runs.run(SITE, Asked(seconds=1, users=5), tmp_path)


def test_an_outage_and_the_memory_count_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run fails if the outage was not noticed, or if memory has too few samples."""
    killed = tmp_path / "killed"
    code = f"import os, time\nwhile not os.path.exists({str(killed)!r}): time.sleep(0.01)"
    fake_locust(monkeypatch, code)
    monkeypatch.setattr(outages, "AWAY_S", 600.0)
    redis: Any = FakeRedis(killed)
    site = Site(["http://a:1"], {}, tmp_path, {"us": os.getpid()}, [], redis)
    assert not runs.run(site, Asked(0, 5, chaos=True, soak=True), tmp_path)
    printed = capsys.readouterr().out
    assert "NOT MET: the gateways did not notice that Redis was away" in printed
    assert "NOT MET: memory of us: too few samples to judge" in printed
    assert redis.calls == ["kill"]


def test_memory_that_grows_fails_a_soak(tmp_path: Path) -> None:
    """Each process is checked separately; a curve that is too short fails."""
    memory = Memory()
    memory.series = {
        "flat": [(float(at_s), 1000) for at_s in range(60)],
        "leaks": [(float(at_s), 1000 + 10 * at_s) for at_s in range(60)],
        "short": [(0.0, 1000)],
    }
    findings = {
        each.words.split()[2].strip(":"): each.is_met
        for each in runs._judge_memory(memory, tmp_path)
    }
    assert findings == {"flat": True, "leaks": False, "short": False}
    assert (tmp_path / "memory.csv").exists()
    assert (tmp_path / "memory.svg").exists()


@pytest.mark.parametrize(
    ("words", "gateways", "asked"),
    [
        ([], 0, Asked(90, 3)),
        (["--seconds", "5", "--users", "9"], 0, Asked(5, 9)),
        (["--gateways", "2", "--minutes", "2"], 2, Asked(120, 4)),
        (["--chaos"], 1, Asked(90, 4, chaos=True)),
        (["--soak", "--pace", "2"], 1, Asked(1800, 4, pace=2, soak=True)),
    ],
)
def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], gateways: int, asked: Asked
) -> None:
    """--soak and --chaos start gateways on their own Redis; the other options have defaults."""
    seen: list[object] = []
    three = Site(["http://a:1"], {"free": ["a"], "pro": ["b"], "enterprise": ["c"]}, tmp_path)

    def open_gateways(folder: Path, stack: object, *, gateways: int, **_: object) -> Site:
        seen.append(gateways)
        return three

    monkeypatch.setattr(tool.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(tool, "open_demo", lambda *_: three)
    monkeypatch.setattr(tool, "open_gateways", open_gateways)
    monkeypatch.setattr(tool, "run", lambda site, asked, out: seen.append(asked) or True)
    assert tool.main([*words, "--out", str(tmp_path / "out")]) == 0
    assert seen == [*([gateways] if gateways else []), asked]


def test_bad_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing Locust, or no workers, is bad usage."""
    monkeypatch.setattr(tool.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        tool.main(["--out", str(tmp_path)])
    assert "Locust is not installed" in capsys.readouterr().err
    monkeypatch.setattr(tool.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(SystemExit, match="2"):
        tool.main(["--workers", "0"])
