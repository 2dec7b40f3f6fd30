"""The policies of docs/examples: without faults and warnings, tested, and as the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from gateway.cli.case_run import run_case
from gateway.cli.cases import find_files, read_cases
from gateway.policies.load import load
from tests.docs.pages import ROOT, code_in, page
from tests.kit.command import run
from tests.kit.needs import needs
from tests.kit.tidybill import copy_policies, make_certificates


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the policies, with certificates."""
    copied = copy_policies(tmp_path / "own", {})
    make_certificates(copied)
    return copied


def test_it_has_no_warnings(folder: Path) -> None:
    assert load(folder).warnings == ()


def test_its_tests_have_every_route(folder: Path) -> None:
    """They pass, and send a request to each route."""
    policy = load(folder)
    results = [run_case(policy, case) for case in read_cases(find_files(folder), policy)]
    assert [result.differences for result in results] == [()] * len(results)
    met = {step.last.route for result in results for step in result.steps if step.last is not None}
    assert policy.routes.keys() - met == set()


def test_the_page_names_its_routes(folder: Path) -> None:
    """By their present names, and as many as there are."""
    policy = load(folder)
    section = page("docs/example.md").section("Where to find what")
    known = {*policy.routes, *policy.upstreams}
    named = [word for word in code_in(section) if word in known]
    assert len(set(named)) > 15
    assert f"{len(policy.routes)} routes" in page("docs/example.md").text


@needs("openssl", "bash")
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """They make certificates, with which the policies are valid and their tests pass."""
    (example,) = page("docs/example.md").examples("sh")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    script, *commands = re.split(r"^gateway ", example.text, flags=re.MULTILINE)
    made = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    lines = []
    for words in commands:
        done = run(*shlex.split(words), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        lines += done.stdout.splitlines()
    assert "policies: 4 plans, 29 routes, 4 upstreams ok" in lines
    assert any(line.endswith(" tests passed") for line in lines)
    assert "forwarded: /render/invoice/7" in lines
