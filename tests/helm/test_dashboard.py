"""The dashboard: the content of its file, and that a real Prometheus has data for all of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import pytest_asyncio

from helm.scripts import dashboard
from tests.helm.busy import Busy, busy
from tests.helm.series import faults_of, known_series
from tests.kit.eventually import eventually
from tests.kit.needs import needs
from tests.kit.rows import each_row

DASHBOARD: dict[str, Any] = json.loads(dashboard.FILE.read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], each["expr"]) for panel in PANELS for each in panel["targets"]]

live = pytest.mark.asyncio(loop_scope="module")
#: The site's start and its events take some 20 s of the first test that uses it.
slow = pytest.mark.timeout(240)


# -- the file --------------------------------------------------------------------------------------


def test_the_file_is_what_the_script_makes(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON was not edited by hand, and is up to date."""
    assert dashboard.main(["--check"]) == 0, capsys.readouterr().err


def test_the_check_notices_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that differs or is missing fails; once written it passes."""
    file = tmp_path / "dashboard.json"
    arguments = ["--file", str(file)]
    assert dashboard.main([*arguments, "--check"]) == 1
    assert dashboard.main(arguments) == 0
    assert dashboard.main([*arguments, "--check"]) == 0
    file.write_text(file.read_text() + "\n")
    assert dashboard.main([*arguments, "--check"]) == 1
    assert capsys.readouterr().err.count("is not up to date") == 2


def test_it_is_found_again() -> None:
    """Links use its uid; the data source and the namespace are chosen at the top."""
    assert DASHBOARD["uid"] == "rate-limiting-gateway"
    names = [each["name"] for each in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "namespace", "job"]
    assert [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"] == [
        *("Now", "Traffic", "Latency and overhead", "Limits", "Keys"),
        *("Store", "Upstreams", "Webhooks", "Policies", "Workers"),
    ]


def test_the_picture_has_every_panel() -> None:
    """A panel that is added, renamed or removed needs `make dashboard`, which draws it again."""
    picture = ElementTree.parse(dashboard.FILE.parents[1] / "scripts/panels.svg")
    drawn = {element.text for element in picture.iter() if element.get("class") == "t"}
    assert drawn == {panel["title"] for panel in PANELS}


def test_panels_do_not_overlap() -> None:
    """Each cell of the grid belongs to one panel at most, and none is outside."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@each_row(("title", "query"), QUERIES)
def test_queries_use_existing_series_and_the_variables(title: str, query: str) -> None:
    """Each metric and label exists, and each selector uses the variables at the top."""
    assert faults_of(query) == []
    assert query.count('namespace=~"$namespace",job=~"$job"') == query.count("{"), title


def test_every_metric_is_shown() -> None:
    """Every metric is on some panel."""
    text = json.dumps(DASHBOARD)
    metrics = {
        name.removesuffix("_bucket") for name in known_series() if name.startswith("gateway")
    }
    metrics = {name for name in metrics if not name.endswith(("_sum", "_count"))}
    assert {name for name in metrics if name not in text} == set()


# -- with a real Prometheus ------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Busy]:
    """A gateway under load after rare events, scraped by Prometheus."""
    async with busy(tmp_path_factory.mktemp("busy")) as site:
        await site.trouble()
        yield site


@slow
@live
@needs("prometheus")
async def test_no_panel_is_empty(site: Busy) -> None:
    """Every query of every panel and annotation has data from this run."""
    queries = [*QUERIES, *((each["name"], each["expr"]) for each in _marks())]
    empty: list[str] = []

    async def all_have_numbers() -> bool:
        now_s = time.time()
        empty[:] = [
            f"{title}: {query}"
            for title, query in queries
            if not await site.prometheus.series(_filled_in(query), site.since_s, now_s)
        ]
        return not empty

    try:
        await eventually(all_have_numbers, "numbers in every panel", 30)
    except AssertionError as error:
        raise AssertionError(f"no numbers: {empty}") from error


@slow
@live
@needs("prometheus")
async def test_all_outcomes_are_seen(site: Busy) -> None:
    """Every outcome is shown under its name: none is merged or omitted."""
    for title, label, expected in (
        ("Decisions", "decision", {"admitted", "near", "limited", "shadow", "local"}),
        ("Limited, by plan", "plan", {"free", "pro", "enterprise"}),
        ("Would be limited (shadow), by limit", "limit", {"trial", "search:candidate"}),
        (
            "Limits and their candidates, otherwise decided",
            "outcome",
            {"only_candidate_refuses"},
        ),
        ("Failed authentication, by reason", "reason", {"key_missing", "key_revoked"}),
        ("Refusals, by reason", "reason", {"insufficient_scope", "rate_limited"}),
        ("Answers by status", "code", {"200", "401", "403", "429", "500", "502"}),
        ("Answers by source", "source", {"gateway", "upstream"}),
        ("Healthy servers", "upstream", {"api", "search"}),
        ("Policy reloads", "result", {"success", "refused"}),
    ):
        await eventually(partial(_has_shown, site, title, label, expected), f"{title}: {expected}")


@slow
@live
@needs("prometheus")
async def test_choices_are_filled(site: Busy) -> None:
    """The variables at the top have the namespace and the job of Prometheus."""
    for label, value in (("namespace", "test"), ("job", "gateway")):
        found = await site.prometheus.ask(
            f"label/{label}/values", **{"match[]": "gateway_build_info"}
        )
        assert found == [value]


@slow
@live
@needs("prometheus")
async def test_alerts_are_evaluated(site: Busy) -> None:
    """Prometheus loads every alert and evaluates it on real series without an error."""

    async def all_evaluated() -> bool:
        rules = await _rules(site)
        return bool(rules) and all(rule["health"] != "unknown" for rule in rules)

    await eventually(all_evaluated, "every alert was evaluated")
    assert [rule["name"] for rule in await _rules(site) if rule["health"] != "ok"] == []
    await site.shows('ALERTS{alertname="GatewayPolicyRefused",alertstate="firing"}')


@slow
@live
@needs("prometheus", "promtool")
async def test_a_scrape_is_as_it_should_be(site: Busy) -> None:
    """It has each known series, and promtool finds no fault in names, units and help texts."""
    seldom = {"gateway_ratelimit_overadmitted_total"}

    async def has_all() -> bool:
        lines = (await site.gateway.metrics()).splitlines()
        names = {line.partition(" ")[0].partition("{")[0] for line in lines}
        return known_series().keys() - names <= seldom

    # A key has to use most of its limit, for example.
    await eventually(has_all, "each known series", 60)
    text = await site.gateway.metrics()
    words = ["promtool", "check", "metrics"]
    check = partial(subprocess.run, words, input=text, capture_output=True, text=True, check=False)
    done = await asyncio.to_thread(check)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


async def _has_shown(site: Busy, title: str, label: str, expected: set[str]) -> bool:
    """Whether a panel has had series with values other than 0, with each of these in a label."""
    (query,) = (expr for panel, expr in QUERIES if panel == title)
    found = await site.prometheus.series(_filled_in(query), site.since_s, time.time())
    shown = {labels.get(label) for labels, values in found if any(value for _, value in values)}
    return expected <= shown


def _marks() -> Iterable[dict[str, Any]]:
    marks: list[dict[str, Any]] = DASHBOARD["annotations"]["list"]
    return marks


def _filled_in(query: str) -> str:
    """A query as Grafana sends it, with these variables and a window of some scrapes."""
    for variable, value in (("namespace", "test"), ("job", "gateway"), ("__rate_interval", "10s")):
        query = query.replace(f"${variable}", value)
    return query


async def _rules(site: Busy) -> list[dict[str, Any]]:
    groups = (await site.prometheus.ask("rules"))["groups"]
    return [rule for group in groups for rule in group["rules"]]
