"""Of many similar lines one a second is written, and the others are counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.log_throttle import LogThrottle


def test_one_line_a_second_with_the_number_suppressed() -> None:
    """The first is written at once; the next, a second later, has the number suppressed."""
    throttle = LogThrottle()
    moments = [0.0, 0.1, 0.9, 1.0, 1.5, 2.1, 9.0]
    assert [throttle.suppressed("a", now) for now in moments] == [0, None, None, 2, None, 1, 0]


def test_subjects_do_not_hide_each_other() -> None:
    """Lines of one subject do not suppress those of another."""
    throttle = LogThrottle()
    assert [throttle.suppressed(subject, 0.0) for subject in "aabb"] == [0, None, 0, None]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 3.0)), max_size=60))
def test_every_line_is_written_or_counted(steps: list[tuple[str, float]]) -> None:
    """Each line was written, counted, or is yet to be counted."""
    throttle, now_s, accounted = LogThrottle(), 0.0, 0
    for subject, pause_s in steps:
        now_s += pause_s
        suppressed = throttle.suppressed(subject, now_s)
        accounted += 0 if suppressed is None else 1 + suppressed
    for subject in "abc":
        now_s += 1.5  # more than a second, however it is rounded
        accounted += throttle.suppressed(subject, now_s) or 0
    assert accounted == len(steps)


def test_quiet_subjects_are_removed() -> None:
    """Subjects are removed after a while, so memory does not grow as servers change."""
    throttle = LogThrottle()
    for number in range(100):
        throttle.suppressed(number, float(number))
    assert len(throttle._written) == 1
