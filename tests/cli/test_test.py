"""`gateway test`, as a user calls it; and the tests of the shipped policies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.domain.policy import Policy
from gateway.policies.load import load
from tests.docs.pages import ROOT
from tests.kit.policies import write_policies

GOOD = "tests: [{name: a, send: GET /health, expect: {status: admitted}}]\n"
BAD = """
keys: {ci: {plan: free}}
tests:
  - name: five searches
    key: ci
    steps:
      - {wait: 90s}
      - send: GET /api/search/x
        times: 40
        over: 20s
        expect:
          admitted: 5
          limit: search
          retry_after: 1
  - {name: other, send: GET /health}
"""


def run_test(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["test", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_policies(tmp_path / "policies", "http://127.0.0.1:9")
    (folder / "tests").mkdir()
    return folder


def test_tests_that_pass(folder: Path) -> None:
    """The files of DIR/tests are run, in order; one line says how many passed; exit status 0."""
    (folder / "tests/a.yaml").write_text(GOOD)
    (folder / "tests/b.yaml").write_text(GOOD)
    (folder / "tests/c.txt").write_text("no test")
    result = run_test(folder)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "2 tests passed\n", "")
    result = run_test(folder, folder / "tests/a.yaml")
    assert (result.exit_code, result.stdout) == (0, "1 test passed\n")


def test_a_test_that_fails(folder: Path) -> None:
    """The steps up to the difference, each field with its line; exit status 1."""
    file = folder / "tests/a.yaml"
    file.write_text(BAD)
    result = run_test(folder)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{file}:4: five searches",
        "  step 1, at 90s: waited 90s",
        "  step 2, at 90s: GET /api/search/x, key ci, from 192.0.2.1, 40 times over 20s: 30 "
        "admitted, the first refusal is number 31; the last: refused with 429 rate_limit_exceeded "
        "(rate_limited) by search, retry after 42 s",
        f"    {file}:12: admitted: found 30, expected 5",
        f"    {file}:14: retry_after: found 42, expected 1",
        "",
        "1 of 2 tests failed",
    ]


def test_json(folder: Path) -> None:
    """With --json one object has all results, or the faults."""
    (folder / "tests/a.yaml").write_text(BAD)
    result = run_test(folder, "--json")
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert (shown["passed"], shown["failed"], shown["faults"]) == (1, 1, [])
    failed, passed = shown["tests"]
    assert (failed["name"], failed["passed"], failed["line"]) == ("five searches", False, 4)
    assert failed["differences"][0] == {
        "line": 12,
        "path": "admitted",
        "found": "30",
        "expected": "5",
    }
    assert (passed["passed"], passed["differences"]) == (True, [])
    (folder / "tests/a.yaml").write_text("tests: 3")
    result = run_test(folder, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["faults"][0]["path"] == "tests"


def test_faults(folder: Path) -> None:
    """A test with faults, or policies with faults, are no result: exit status 2, on stderr."""
    (folder / "tests/a.yaml").write_text(GOOD.replace("send", "sent"))
    result = run_test(folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "tests[0].sent: found the key 'sent'" in result.stderr
    (folder / "plans.yaml").write_text("plans: 3\n")
    result = run_test(folder)
    assert result.exit_code == 2
    assert "plans.yaml:1: plans: found the number 3" in result.stderr


def test_no_tests(folder: Path, tmp_path: Path) -> None:
    """A folder without tests, and no folder, are bad usage: a wrong path must not pass."""
    assert "found no tests, expected *.yaml files in" in run_test(folder).stderr
    (folder / "tests").rmdir()
    assert run_test(folder).exit_code == 2
    assert run_test(tmp_path / "none").exit_code == 2


# -- the shipped policies --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped() -> Policy:
    return load(ROOT / "policies")


def test_the_shipped_policies() -> None:
    """The tests that are shipped with the policies pass."""
    result = run_test(ROOT / "policies")
    assert result.exit_code == 0, result.output


def test_each_shipped_route_plan_and_limit_is_tested(shipped: Policy) -> None:
    """The shipped tests expect each route and limit, and use each plan."""
    files = sorted((ROOT / "policies/tests").glob("*.yaml"))
    given = [yaml.safe_load(file.read_text()) for file in files]
    plans = {key["plan"] for each in given for key in each["keys"].values()}
    steps = [step for each in given for case in each["tests"] for step in case.get("steps", [case])]
    expected = [step["expect"] for step in steps if "expect" in step]
    limits = {limit.name for route in shipped.routes.values() for limit in route.limits}
    assert plans == set(shipped.plans)
    assert set(shipped.routes) <= {each.get("route") for each in expected}
    assert {"plan", "failed_auth", *limits} <= {each.get("limit") for each in expected}
    assert {400, 401, 403, 405, 429} <= {each.get("status") for each in expected}
