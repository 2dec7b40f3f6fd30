"""The tables of the documents match the program exactly."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from docs import generate
from gateway import errors
from gateway.admin import refusals as admin_refusals
from gateway.admin.api.routes import OPERATIONS
from gateway.cli.main import COMMANDS
from gateway.errors import Refusal
from gateway.manage import refusals
from gateway.observe.metrics import Metrics
from tests.docs.pages import ROOT, code_in, page, rows
from tests.kit.rows import each_row

ERRORS = page("docs/headers-and-errors.md")
METRICS = page("docs/metrics.md")
KINDS_PAGE = page("docs/webhooks-kinds.md")


def all_refusals() -> list[Refusal]:
    own = [
        each
        for table in (admin_refusals, refusals)
        for each in vars(table).values()
        if isinstance(each, Refusal)
    ]
    return [*errors.TABLE.values(), *own]


def by_code() -> dict[str, list[Refusal]]:
    found: dict[str, list[Refusal]] = defaultdict(list)
    for refusal in all_refusals():
        found[refusal.code].append(refusal)
    return found


@each_row(("code", "those"), by_code().items())
def test_every_code_has_its_causes(code: str, those: list[Refusal]) -> None:
    """A section for each code, with its status, and a row with a cause for each reason."""
    assert code.lower() in ERRORS.anchors()
    section = ERRORS.section(code)
    assert {int(status) for status in re.findall(r"\A\n(\d{3})", section)} == {
        refusal.status for refusal in those
    }
    documented = {code_in(reason)[0]: cause for reason, cause, *_ in rows(section)}
    assert sorted(documented) == sorted(refusal.reason for refusal in those)
    assert all(documented.values())


def test_no_other_codes() -> None:
    """Each section is of an existing code."""
    documented = re.findall(r"^### (.+)$", ERRORS.text, re.MULTILINE)
    assert sorted(documented) == sorted(by_code())


def test_the_references_are_fresh() -> None:
    """Those of the pages are the output of `python -m docs.generate`."""
    assert generate.main(["--check"]) == 0


def test_a_stale_reference_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--check fails and writes nothing; without it the pages are written, between their marks."""
    for name in generate.PAGES:
        (tmp_path / name).write_text((ROOT / "docs" / name).read_text())
    stale = tmp_path / name
    stale.write_text(f"before\n{generate.BEGIN}\nstale\n{generate.END}\nafter\n")
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    assert generate.main(["--check"]) == 1
    assert "\nstale\n" in stale.read_text()
    assert generate.main([]) == 0
    assert "\nstale\n" not in stale.read_text()
    assert stale.read_text().startswith("before\n")
    assert stale.read_text().endswith("after\n")
    assert generate.main(["--check"]) == 0


def test_a_page_without_marks() -> None:
    """Nothing is made of it: the error names it."""
    with pytest.raises(ValueError, match=r"policies\.md lacks the marks"):
        generate.with_reference("policies.md", "before\nafter\n")


def test_kinds_have_sections() -> None:
    """Each kind that captures webhooks says how it is set up, with its name."""
    named = [code_in(row[0])[0] for row in rows(KINDS_PAGE.section("Kinds"))]
    setup = re.findall(r"^## .+\n\nKind `([a-z-]+)`", KINDS_PAGE.text, re.MULTILINE)
    assert sorted(setup) == sorted(named)


def test_metrics_with_their_labels() -> None:
    """Each metric of a worker has a row with its type and labels."""
    documented = {
        code_in(row[0])[0]: (row[1], sorted(code_in(row[2])))
        for row in rows(METRICS.text)
        if len(row) == 4
    }
    suffixes = {"counter": "_total", "info": "_info"}
    shown = Metrics("0").snapshot().series
    assert shown
    for series in shown:
        family = series.family
        name = f"gateway_{family.name}{suffixes.get(family.kind, '')}"
        kind = "gauge" if family.kind == "info" else family.kind
        assert documented[name] == (kind, sorted(family.labels)), name


def test_operations_of_the_admin_api() -> None:
    """The table has every operation, in the same order."""
    table = page("docs/admin.md").text.partition("<!-- operations: begin -->")[2]
    documented = [
        code_in(row[0])[0] for row in rows(table.partition("<!-- operations: end -->")[0])
    ]
    assert documented == [f"{each.method} /admin/v1{each.path}" for each in OPERATIONS]


def test_commands() -> None:
    """The table has every command."""
    documented = [
        code_in(row[0])[0] for row in rows(page("docs/operations.md").section("Commands"))
    ]
    assert [words.split()[1] for words in documented] == list(COMMANDS)


def test_reasons_of_requests_that_were_cut_off() -> None:
    """Each is a reason of the proxy, or that of a refusal."""
    section = page("docs/operations.md").section("Access log")
    table = section.partition("Reasons of requests")[2]
    source = "".join(path.read_text("utf-8") for path in (ROOT / "gateway/proxy").rglob("*.py"))
    given = {code_in(row[0])[0] for row in rows(table)}
    assert given
    unknown = {reason for reason in given if f'"{reason}"' not in source} - errors.TABLE.keys()
    assert unknown == set()


#: The README's costs, and the setup that each was measured with in the report.
COSTS = {
    "small GET, everything on": "small GET, 64 connections, 1 worker, all on",
    "the same, 10,000 keys at random": "10,000 keys at random, 64 connections, 1 worker, all on",
    "the same, fields of their own in requests and answers": (
        "fields of their own in requests and answers, 64 connections, 1 worker, all on"
    ),
    "the same, a connection per request": (
        "a connection per request, 64 connections, 1 worker, all on"
    ),
    "4 KiB POST": "4 KiB POST, 64 connections, 1 worker, all on",
    "1 MiB POST": "1 MiB POST, 64 connections, 1 worker, all on",
    "64 KiB answer": "64 KiB answer, 64 connections, 1 worker, all on",
    "refused with 429": "all refused with 429, 64 connections, 1 worker, all on",
    "refused with 401, one unknown key": (
        "all refused with 401, one key, 64 connections, 1 worker, all on"
    ),
}


@each_row(("label", "setup"), COSTS.items())
def test_costs_are_those_of_the_report(label: str, setup: str) -> None:
    """Each of the README's costs is the report's, in whole microseconds, with its range."""
    report = page("loadtests/README.md")
    documented = next(row[1:] for row in rows(page("README.md").text) if row[0] == label)
    for at, peer in enumerate(("gateway", "nginx + Lua + Redis", "Envoy", "HAProxy")):
        (cost,) = (row[1] for row in rows(report.section(setup)) if row[0] == peer)
        values = re.findall(r"[\d.]+", cost.replace(",", ""))
        middle, least, most = (round(float(text)) for text in values)
        assert documented[at] == f"{middle} ({least} to {most})", peer
