"""The bench of couriers, in small: everything arrives, and the report has all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.deliver.__main__ import measure, table
from loadtests.deliver.scenarios import SCENARIOS, Round, Sizes
from loadtests.deliver.site import courier, open_site
from loadtests.deliver.soak import WATCHES, ages, soak
from tests.kit.rows import each_row

SIZES = Sizes(
    endpoints=20,
    quick=300,
    slow=20,
    slots=20,
    some_dead=300,
    steady=100.0,
    steady_s=1.0,
    many=4,
    redis=100,
    turns=2,
    requests=40,
)


@pytest.mark.parametrize("name", list(SCENARIOS))
async def test_scenario(name: str) -> None:
    """Each delivery arrives, whoever delivers it, and figures are more than nothing."""
    measured = await measure([name], SIZES, 1)
    (found,) = measured[name]
    assert not found.get("lost", 0)
    assert not found.get("duplicates", 0)
    assert found.get("requests that hang", 1) > 0
    rates = [value for figure, value in found.items() if "/s" in figure or "us " in figure]
    assert rates
    assert min(rates) > 0


def test_table() -> None:
    """The median of the rounds, and the range."""
    rounds: list[Round] = [{"deliveries/s": value} for value in (1_500.0, 900.0, 1_000.0)]
    last = table({"1 ms": rounds}).splitlines()[-1]
    assert last == "| 1 ms | deliveries/s | 1,000 | 900 | 1,500 |"


@each_row(
    ("arrived", "words"),
    [([], "nothing arrived"), ([1.0, 2.0, 1_000.0], "p50 2 ms, p99 1,000 ms")],
)
def test_a_part_of_a_soak_may_have_no_arrivals(arrived: list[float], words: str) -> None:
    """Its line says so: on a busy machine nothing may arrive in a part of a second."""
    assert ages(arrived) == words


async def test_soak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In small: each delivery is accounted for, beside endpoints that hang, flap or are gone."""
    async with open_site(tmp_path) as site, courier(site, tmp_path):
        assert await soak(site, minutes=0.05, rate=40) == []
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 + len(WATCHES)
    assert "dead" in lines[-1]
