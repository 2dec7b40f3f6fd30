"""`gateway validate` and `gateway schema`, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from tests.docs.pages import ROOT
from tests.policies.folder import write


def run_validate(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["validate", *arguments])


def test_sound_files(tmp_path: Path) -> None:
    """One line with the numbers of plans, routes and upstreams, and exit status 0."""
    result = run_validate(str(write(tmp_path)))
    assert result.exit_code == 0
    assert result.stdout == "policies: 1 plan, 1 route, 1 upstream ok\n"
    assert result.stderr == ""


def test_counters_that_clients_can_create(tmp_path: Path) -> None:
    """A limit per header on an open route is a warning, not a fault; with a key it is neither."""
    entry = "limits: [{name: tenant, rate: 1/minute, per: 'header:X-Tenant'}]"
    route = f"routes: {{r: {{match: GET /, upstream: api, auth: none, {entry}}}}}\n"
    result = run_validate(str(write(tmp_path, routes=route)))
    assert result.exit_code == 0
    assert result.stderr == (
        f"warning: {tmp_path}/routes.yaml:1: routes.r.limits[0]: found the limit 'tenant' per "
        "header:x-tenant with auth: none, which lets anyone create any number of counters in "
        "Redis, expected per: ip\n"
    )
    assert result.stdout == "policies: 1 plan, 1 route, 1 upstream ok, 1 warning\n"
    keyed = run_validate(str(write(tmp_path, routes=route.replace("auth: none, ", ""))))
    assert (keyed.exit_code, keyed.stderr) == (0, "")


def test_strict(tmp_path: Path) -> None:
    """With --strict a warning is a failure; --json lists it with its severity."""
    opened = 'a: {match: "* /**", upstream: api, auth: none}'
    route = f"routes: {{{opened}, b: {{match: GET /b, upstream: api}}}}"
    folder = str(write(tmp_path, routes=route))
    assert run_validate(folder).exit_code == 0
    result = run_validate("--strict", folder)
    assert result.exit_code == 1
    assert "warning: " in result.stderr
    result = run_validate("--strict", "--json", folder)
    (warning,) = json.loads(result.stdout)
    assert (result.exit_code, warning["severity"]) == (1, "warning")
    assert (warning["line"], warning["path"]) == (1, "routes.a.match")
    assert run_validate("--strict", str(ROOT / "policies")).exit_code == 0


def test_every_fault_is_a_line_on_stderr(tmp_path: Path) -> None:
    """All faults at once, with file and line, and exit status 1."""
    folder = write(tmp_path, plans="plans:\n  a: {rate: 1/min}\n  b: {rate: 1/day, burst: 0}\n")
    result = run_validate(str(folder))
    assert result.exit_code == 1
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith(f"{folder}/plans.yaml:2: plans.a.rate: found '1/min', expected a rate")
    assert second.startswith(f"{folder}/plans.yaml:3: plans.b.burst: found the number 0, expected")


def test_json(tmp_path: Path) -> None:
    """With --json the faults are a list on stdout, which may be empty."""
    folder = write(tmp_path, plans="plans:\n  a: {rate: 1/min}\n")
    result = run_validate("--json", str(folder))
    assert result.exit_code == 1
    (fault,) = json.loads(result.stdout)
    assert fault == {
        "file": f"{folder}/plans.yaml",
        "line": 2,
        "path": "plans.a.rate",
        "found": "'1/min'",
        "expected": "a rate such as 30/minute (units: second, minute, hour, day)",
        "severity": "fault",
    }
    result = run_validate("--json", str(write(tmp_path)))
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])


def test_no_folder(tmp_path: Path) -> None:
    """A missing folder is bad usage: exit status 2."""
    result = run_validate(str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "is not a folder" in result.stderr
    assert run_validate().exit_code == 2


def test_schema_prints_json() -> None:
    """The output is JSON, and a valid JSON Schema."""
    result = CliRunner().invoke(cli, ["schema"])
    assert result.exit_code == 0
    jsonschema.Draft7Validator.check_schema(json.loads(result.stdout))


@pytest.mark.parametrize("command", ["validate", "schema"])
def test_help_has_an_example(command: str) -> None:
    """Each command's help has an example."""
    result = CliRunner().invoke(cli, [command, "--help"])
    assert result.exit_code == 0
    assert "Example: gateway " in result.stdout
