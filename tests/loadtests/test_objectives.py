"""The objectives, by the figures of a run."""

from __future__ import annotations

from loadtests.compare.measure import Results
from loadtests.compare.objectives import verdicts
from loadtests.compare.scenarios import MAIN, WORKLOADS, Scenario
from tests.kit.rows import each_row
from tests.loadtests.test_report import figures

ROWS = {name: Scenario(workload) for name, workload in WORKLOADS.items()}
ONE = Scenario(WORKLOADS["small"], connections=1)
MANY = Scenario(WORKLOADS["small"], connections=512)


def results() -> Results:
    """Every figure exactly at its objective."""
    hundreds = ("own", "connect", "post", "big", "keys")
    nginx = {MAIN: 70, ONE: 200, **{ROWS[name]: 100 for name in hundreds}}
    ours = {
        ROWS["own"]: 100,
        **{MAIN: 35, ONE: 200, MANY: 49, ROWS["connect"]: 100, ROWS["post"]: 60, ROWS["big"]: 75},
        **{ROWS["upload"]: 880, ROWS["keys"]: 45, ROWS["present"]: 40, ROWS["away"]: 46},
    }
    found = {(row, "ours"): [figures(us)] * 5 for row, us in ours.items()}
    found |= {(row, "nginx-lua"): [figures(us)] * 5 for row, us in nginx.items()}
    found |= {(row, "envoy"): [figures(us)] * 5 for row, us in ((MAIN, 50), (ROWS["upload"], 800))}
    found[ROWS["refused"], "ours"] = [figures(17.5, 0, 0)] * 5
    found[ROWS["unknown"], "ours"] = [figures(18, 0, 0)] * 5
    return Results(found)


def missed(found: Results) -> list[str]:
    return [each.title for each in verdicts(found) if each.word != "pass"]


def test_met() -> None:
    """Whatever is exactly at its objective passes."""
    assert missed(results()) == []


@each_row(
    ("row", "part"),
    [
        (MAIN, "small GET, 64 connections, 1 worker, all on, of nginx"),
        (ONE, "small GET, 1 connection,"),
        (MANY, "512 connections, of one of 64"),
        (ROWS["own"], "fields of their own"),
        (ROWS["connect"], "a connection per request"),
        (ROWS["post"], "4 KiB POST"),
        (ROWS["upload"], "1 MiB POST"),
        (ROWS["big"], "64 KiB answer"),
        (ROWS["keys"], "10,000 keys at random"),
        (ROWS["away"], "while Redis is away"),
        (ROWS["refused"], "a refusal with 429"),
        (ROWS["unknown"], "a refusal with 401"),
    ],
)
def test_missed(row: Scenario, part: str) -> None:
    """Each scenario has an objective of its own for the CPU time of a request."""
    found = results()
    dearer = found.rounds[row, "ours"][0].cpu_us * 1.5
    found.rounds[row, "ours"] = [figures(dearer, store_calls=0)] * 5
    assert any(part in title for title in missed(found))


@each_row("name", ["refused", "unknown"])
def test_calls(name: str) -> None:
    """Refusals that call the store miss an objective."""
    found = results()
    found.rounds[ROWS[name], "ours"] = [figures(10, store_calls=0.5)] * 5
    (title,) = missed(found)
    assert title.startswith("calls of the store")


def test_not_measured() -> None:
    """Without a peer there is no ratio to it, which does not pass."""
    found = results()
    del found.rounds[MAIN, "envoy"]
    words = [each.word for each in verdicts(found) if "Envoy" in each.title]
    assert words == ["not measured", "pass"]
