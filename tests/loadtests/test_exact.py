"""The recount of admissions: which errors it finds, and that it finds no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.limits import SECOND_US, Check, Limit
from gateway.domain.window import State, decide
from loadtests.exact.__main__ import main, table
from loadtests.exact.judge import Record
from loadtests.exact.load import Answer
from loadtests.exact.run import Outcome, Verdict, verdicts
from loadtests.exact.site import skews
from tests.kit.rows import each_row
from tests.kit.store_tap import Decided

DAY_US = 86_400 * SECOND_US
PLAIN = Limit("edge", "rate", 6, SECOND_US)
BURST = Limit("refilled", "rate", 2, SECOND_US, burst=4)
QUOTA = Limit("daily", "quota", 3, DAY_US)
#: A moment at which a slot of a one-second window begins.
START = 16_667 * 100_000_000


@pytest.mark.parametrize("limit", [PLAIN, BURST, QUOTA], ids=lambda limit: limit.name)
@given(gaps=st.lists(st.integers(0, 700_000), min_size=1, max_size=60))
def test_correct_decisions_are_found_exact(limit: Limit, gaps: list[int]) -> None:
    """What the reference limiter admits is not over the limit; `was_full` when it refuses only."""
    states: tuple[State | None, ...] = (None,)
    admitted, asked = [], []
    now_us = START
    for gap in gaps:
        now_us += gap + 1  # the recount needs distinct times
        decision, kept = decide(states, Check((limit,), ("x",)), now_us)
        states = tuple(new or old for new, old in zip(kept, states, strict=True))
        asked.append((now_us, decision.allowed))
        if decision.allowed:
            admitted.append(now_us)
    assert Record(limit, admitted).over == 0
    assert len(admitted) <= Record(limit, admitted).at_most(START, now_us)
    for at_us, allowed in asked:
        before = Record(limit, [moment for moment in admitted if moment < at_us])
        assert before.was_full(at_us, at_us) is not allowed


@each_row(
    ("limit", "moments", "over"),
    [
        (PLAIN, [0] * 6, 0),
        (PLAIN, [0] * 7, 1),
        (PLAIN, [0] * 6 + [999_999], 1),  # a window that starts anywhere
        (PLAIN, [0] * 6 + [1_000_000], 0),
        (PLAIN, [5, *[900_000] * 5, *[1_500_000] * 3], 2),
        (BURST, [0] * 4 + [1_100_000] * 2, 0),
        (BURST, [0] * 4 + [1_100_000] * 3, 1),  # the window is empty, the bucket is not full
        (BURST, [0] * 5, 1),
        (QUOTA, [DAY_US - 1] * 3 + [DAY_US] * 3, 0),
        (QUOTA, [DAY_US - 1] * 5 + [DAY_US] * 4, 3),
    ],
)
def test_over(limit: Limit, moments: list[int], over: int) -> None:
    """Units beyond the limit are counted, wherever a window starts."""
    assert Record(limit, moments).over == over


@each_row(
    ("limit", "seconds", "most"),
    [(PLAIN, 0, 6), (PLAIN, 0.9, 6), (PLAIN, 5.2, 36), (BURST, 5.2, 14), (QUOTA, 5.2, 3)],
)
def test_at_most(limit: Limit, seconds: float, most: int) -> None:
    """A full window each time that it empties; with a burst, what the bucket refills."""
    assert Record(limit, []).at_most(START, START + round(seconds * SECOND_US)) == most


def answer(status: int, asked_us: int, took_us: int = 1000) -> Answer:
    return Answer("/edge", status, START + asked_us, START + asked_us + took_us)


def decided(at_us: int, count: int = 1, limit: str = "edge", cost: int = 1) -> list[Decided]:
    name = f"gw:limit:{{exact}}:key:x:{limit}:rate:1000000"
    return [Decided(START + at_us, (name,), cost, True)] * count


@each_row(
    ("answers", "untimely"),
    [
        ([answer(429, 10)], 0),
        ([answer(429, 900_000)], 0),
        ([answer(429, 1_100_000)], 1),  # the admissions have left the window
        ([answer(200, 900_000, 100_000), answer(429, 1_050_000)], 0),  # learned of that late
        ([answer(200, 900_000, 100_000), answer(429, 2_100_000)], 1),
    ],
)
def test_refused_with_room(answers: list[Answer], untimely: int) -> None:
    """A refusal is justified if the limit was full during its exchange, or shortly before."""
    decisions = decided(500, 50) + decided(600, 9, "other") + decided(700, cost=0)
    (row,) = [row for row in verdicts(answers, decisions) if row.limit == "edge"]
    assert (row.admitted, row.untimely) == (50, untimely)


def outcome(**figures: int) -> Outcome:
    row = {"requests": 90, "admitted": 50, "allowed": 60, "over": 0, "untimely": 0}
    counted = {"passed": 50, "told": 50, "decided": 50, "overadmitted": 0}
    return Outcome(
        [Verdict("edge", **{name: figures.get(name, value) for name, value in row.items()})],
        **{name: figures.get(name, value) for name, value in counted.items()},
        local=figures.get("local", 0),
        unexpected={503: figures["others"]} if "others" in figures else {},
    )


@each_row(
    ("figures", "is_exact"),
    [
        ({}, True),
        ({"over": 1}, False),
        ({"untimely": 1}, False),
        ({"passed": 51}, False),
        ({"decided": 49}, False),
        ({"others": 1}, False),
        ({"local": 1}, False),
        ({"overadmitted": 1}, False),
    ],
)
def test_what_is_exact(figures: dict[str, int], is_exact: bool) -> None:
    """A run is exact if every admission was seen, and none exceeded a limit."""
    assert outcome(**figures).is_exact is is_exact


def test_table() -> None:
    """One row per limit, and below it how reliable that is."""
    lines = table(outcome()).splitlines()
    assert lines[2] == "| edge | 90 | 50 | 60 | 0 | 0 |"
    assert lines[-1].startswith("50 admissions seen at the store, 50 upstream, 50 by clients")


def test_skews() -> None:
    """One clock is right, the next is ahead, the third behind."""
    assert skews(4, 3600) == [0, 3600, -3600, 0]


def test_a_missing_tool_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without faketime --skew is bad usage; the error says how to install it."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "apt-get install --no-install-recommends faketime" in capsys.readouterr().err
