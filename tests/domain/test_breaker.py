"""Which answers eject a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.breaker import Window
from gateway.domain.upstreams import Ejection

BOTH = Ejection(errors_percent=50, latency_s=2.0, window_s=10.0, least=4)


def outcome(answers: str, rule: Ejection = BOTH, begin: float = 1_000.0, step: float = 0.0) -> str:
    """Of answers: e an error, s a slow one, b both, . a good one. The last one's outcome, or ""."""
    window, words = Window(rule), None
    for at, each in enumerate(answers):
        words = window.add(begin + at * step, error=each in "eb", slow=each in "sb")
    return words or ""


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ("eee", ""),  # too few
        ("eeee", "4 of 4 answers are errors"),
        ("..ee", "2 of 4 answers are errors"),
        ("ee..", ""),  # a good answer ejects no server
        ("...e", ""),
        (".....eee", ""),
        ("....eeee", "4 of 8 answers are errors"),
        ("..ss", ""),  # not more than half
        (".sss", "3 of 4 answers took more than 2 s"),
        ("bbbb", "4 of 4 answers are errors"),
        ("eess", "2 of 4 answers are errors"),
    ],
)
def test_shares(answers: str, words: str) -> None:
    """Errors from a share on; slow ones if they are more than half; from a least number on."""
    assert outcome(answers) == words


@pytest.mark.parametrize(
    ("step", "ejects"), [(0.0, True), (1.0, True), (2.4, True), (3.5, False), (11.0, False)]
)
def test_only_the_window_counts(step: float, ejects: bool) -> None:
    """Errors that are further apart never become enough."""
    assert bool(outcome("eeee" * 5, step=step)) is ejects


@given(st.floats(0.0, 1e9), st.lists(st.floats(0.0, 30.0), min_size=1, max_size=50))
def test_what_is_counted(begin: float, waits: list[float]) -> None:
    """All answers of the last nine tenths of the window, and none that is older than it."""
    window, now, times = Window(BOTH), begin, []
    for wait in waits:
        now += wait
        times.append(now)
        window.add(now, error=False, slow=False)
    counted = sum(counts[0] for counts in window._counts)
    assert sum(now - at < 8.9 for at in times) <= counted
    assert counted <= sum(now - at < 10.1 for at in times)


def test_what_the_rule_does_not_name() -> None:
    """Without a share of errors, a 5xx is none; without a latency, nothing is slow."""
    window = Window(Ejection(errors_percent=10))
    assert [window.is_error(status) for status in (200, 404, 499, 500, 503, 999)] == [
        *(False, False, False, True, True, True)
    ]
    assert not window.is_slow(1e9)
    window = Window(Ejection(latency_s=1.5))
    assert [window.is_slow(waited) for waited in (0.0, 1.5, 1.6)] == [False, False, True]
    assert not window.is_error(500)


def test_a_cleared_window_begins_again() -> None:
    """A server that returns is not ejected for what was before."""
    window = Window(BOTH)
    for _ in range(3):
        window.add(5.0, error=True, slow=False)
    window.clear()
    assert window.add(5.0, error=True, slow=False) is None
    assert sum(counts[0] for counts in window._counts) == 1
