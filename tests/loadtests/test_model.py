"""A request's cost as a sum."""

from __future__ import annotations

import pytest

from loadtests.compare import model, report
from loadtests.compare.measure import Results
from loadtests.compare.scenarios import MAIN, WORKLOADS, Scenario
from tests.loadtests.test_report import figures

ROWS = {name: Scenario(workload) for name, workload in WORKLOADS.items()}
MANY = Scenario(WORKLOADS["small"], connections=512)
#: What each costs in a round: 40 us for a small request, and what is more.
COSTS = {
    **{MAIN: 40, ROWS["keys"]: 70, ROWS["connect"]: 90, ROWS["upload"]: 40 + 1024 * 0.5},
    **{ROWS["big"]: 40 + 64 * 0.25, ROWS["limits"]: 40 + 4 * 6, ROWS["post"]: 40, MANY: 50},
    ROWS["own"]: 56,
}


def results(*factors: float) -> Results:
    """A round for each factor, in which everything costs that much more."""
    rounds = {
        (row, "ours"): [figures(us * factor) for factor in factors] for row, us in COSTS.items()
    }
    return Results(rounds)  # type: ignore[arg-type]


def test_parts() -> None:
    """Each part is what its scenario takes more than a small request, for one of what it has."""
    found = model.parts(results(1, 1, 1))
    assert [part.us.middle for part in found if part.us] == pytest.approx(
        [40, 30, 50, 0.5, 0.25, 6, 16]
    )


def test_ranges() -> None:
    """A dear round is dear for both of a difference."""
    (_, key, *_) = model.parts(results(1, 2, 1))
    assert key.us is not None
    assert (key.us.least, key.us.middle, key.us.most) == (30, 30, 60)


def test_deviations() -> None:
    """The sum is compared with scenarios that it was not made from."""
    found = results(1, 1, 1)
    post, many = model.deviations(found, model.parts(found))
    assert post.percent.middle == pytest.approx(100 * (42 / 40 - 1))
    assert many.percent.middle == pytest.approx(-20)


def test_what_was_not_measured() -> None:
    """A part without its scenario has no value; without the first one there is no sum."""
    found = results(1)
    del found.rounds[ROWS["keys"], "ours"], found.rounds[ROWS["upload"], "ours"]
    assert [part.us is None for part in model.parts(found)] == [
        False,
        True,
        False,
        True,
        False,
        False,
        False,
    ]
    assert model.deviations(found, model.parts(found)) == []
    assert "| each limit beyond the first" in report.write(found, [], {}, [])
    assert "as a sum" not in report.write(
        Results({(ROWS["big"], "ours"): [figures(1)]}), [], {}, []
    )
