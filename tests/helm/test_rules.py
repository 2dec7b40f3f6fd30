"""The alerts: valid, each tested, described, and with metrics that exist."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.helm.series import faults_of, known_series
from tests.kit.needs import needs
from tests.kit.rows import each_row

RULES = Path(__file__).parents[2] / "helm/files/rules.yaml"
UNIT_TESTS = Path(__file__).with_name("rules_test.yaml")


def read_alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = read_alerts()
each_alert = each_row("alert", ALERTS)


@needs("promtool")
def test_prometheus_takes_them() -> None:
    """promtool finds no fault in the rules and their templates."""
    promtool("check", "rules", "--lint-fatal", str(RULES))


@needs("promtool")
def test_each_fires_when_it_should() -> None:
    """promtool runs rules_test.yaml: each alert fires, or not, as listed."""
    promtool("test", "rules", str(UNIT_TESTS))


@cache
def unit_tests() -> list[dict[str, Any]]:
    """Those of rules_test.yaml."""
    found: list[dict[str, Any]] = yaml.safe_load(UNIT_TESTS.read_text("utf-8"))["tests"]
    return found


@each_alert
def test_each_is_tried_both_ways(alert: dict[str, Any]) -> None:
    """rules_test.yaml has a time at which it fires and one at which it does not."""
    text = f'ALERTS{{alertname="{alert["alert"]}",alertstate="firing"}}'
    tries = [
        bool(each["exp_samples"])
        for test in unit_tests()
        for each in test["promql_expr_test"]
        if each["expr"] == text
    ]
    assert {*tries} == {True, False}


@each_alert
def test_each_is_described(alert: dict[str, Any]) -> None:
    """Each alert has a severity, a summary, a description, and a runbook."""
    assert alert["labels"].keys() == {"severity"}
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"].keys() == {"summary", "description", "runbook"}
    assert len(alert["annotations"]["summary"]) <= 100
    assert all(text.endswith(".") for text in list(alert["annotations"].values())[1:])


@each_alert
def test_each_names_what_exists(alert: dict[str, Any]) -> None:
    """Every metric and label in it is one of the gateway's."""
    assert faults_of(alert["expr"]) == []


def test_names_do_not_repeat() -> None:
    """Alerts are found by their names."""
    names = [alert["alert"] for alert in ALERTS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("Gateway") for name in names)


@each_row(
    ("text", "fault"),
    [
        ("sum(rate(gateway_request_total[5m]))", "no metric gateway_request_total"),
        ('gateway_store_up{plan="free"}', "gateway_store_up has no label plan"),
        (
            "sum by (colour) (gateway_store_up)",
            "no label colour in sum by (colour) (gateway_store_up)",
        ),
    ],
)
def test_what_does_not_exist_is_found(text: str, fault: str) -> None:
    """A metric or label that does not exist is a fault."""
    assert faults_of(text) == [fault]


def test_known_series_are_as_scraped() -> None:
    """Counters, histograms and infos have the names that a scrape has."""
    known = known_series()
    assert known["gateway_requests_total"] == {"route", "method", "code", "source"}
    assert known["gateway_request_duration_seconds_bucket"] == {"route", "le"}
    assert known["gateway_policy_info"] == {"hash"}
    assert known["gateway_workers"] == {"state"}
    assert "process_cpu_seconds_total" in known


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
