"""When an ended worker is restarted, and which worker accepts its clients meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.runtime.restarts import MOST_S, SETTLED_S, Restarts, stand_ins

#: How long each worker lived, and the delay of the next start.
SERIES = [
    pytest.param([(60.0, 0.0)], id="the first death"),
    pytest.param([(0.2, 0.0)], id="the first death, and an early one"),
    pytest.param([(0.2, 0.0), (0.2, 0.1), (0.2, 0.2), (0.2, 0.4), (0.2, 0.8)], id="doubling"),
    pytest.param([(0.2, 0.0), (0.2, 0.1), (SETTLED_S, 0.0), (0.2, 0.1)], id="a good life resets"),
    pytest.param([(9.9, 0.0), (9.9, 0.1), (9.9, 0.2)], id="almost settled is not settled"),
]


@pytest.mark.parametrize("series", SERIES)
def test_restart_delays_double(series: list[tuple[float, float]]) -> None:
    """The delay is 0 after a long life, and then doubles each time."""
    restarts = Restarts()
    assert [restarts.delay_s(lived) for lived, _ in series] == [delay for _, delay in series]


def test_restart_delays_are_bounded() -> None:
    """However often a worker ends, the next one starts within some seconds."""
    restarts = Restarts()
    delays = [restarts.delay_s(0.0) for _ in range(2_000)]
    assert max(delays) == delays[-1] == MOST_S


STAND_INS = [
    # absent, present, so far -> now
    (set(), {0, 1}, {}, {}),
    ({0}, {1}, {}, {0: 1}),
    ({0}, set(), {}, {}),  # no worker is present: clients wait
    ({0}, {1, 2}, {0: 2}, {0: 2}),  # the current stand-in continues
    (set(), {0, 1, 2}, {0: 2}, {}),  # the owner is back
    ({0, 2}, {1}, {0: 2}, {0: 1, 2: 1}),  # the stand-in ended, too
    ({0, 1}, {2, 3}, {}, {0: 2, 1: 3}),  # distributed
    ({0, 1, 2}, {3, 4}, {0: 3}, {0: 3, 1: 4, 2: 3}),
]


@pytest.mark.parametrize(("absent", "present", "before", "after"), STAND_INS)
def test_each_absent_worker_has_a_stand_in(
    absent: set[int], present: set[int], before: dict[int, int], after: dict[int, int]
) -> None:
    """One of those present, and no change without need."""
    assert stand_ins(absent, present, before) == after


@given(st.data())
def test_stand_ins_are_distributed(data: st.DataObject) -> None:
    """Through any losses and returns: all are covered, by workers that are present."""
    now: dict[int, int] = {}
    for _ in range(6):
        present = data.draw(st.sets(st.integers(0, 6)))
        absent = set(range(7)) - present
        now = stand_ins(absent, present, now)
        assert set(now) == (absent if present else set())
        assert set(now.values()) <= present
