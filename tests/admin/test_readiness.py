"""One readiness for several workers."""

from __future__ import annotations

import pytest

from gateway.admin.readiness import Readiness, joined

OK = Readiness(True, {"store": "ok", "listener": "ok"})
DOWN = Readiness(False, {"store": "down", "listener": "ok"})

CASES = [
    ([OK, OK], 2, True, {"store": "ok", "listener": "ok", "workers": "2 of 2"}),
    ([OK], 1, True, {"store": "ok", "listener": "ok", "workers": "1 of 2"}),
    (
        [OK, DOWN],
        2,
        True,
        {"store": "ok (1 of 2); down (1 of 2)", "listener": "ok", "workers": "2 of 2"},
    ),
    ([DOWN, DOWN], 2, False, {"store": "down", "listener": "ok", "workers": "2 of 2"}),
    ([], 0, False, {"workers": "0 of 2"}),
]


@pytest.mark.parametrize(("answers", "serving", "ready", "checks"), CASES)
def test_ready_while_one_is(
    answers: list[Readiness], serving: int, ready: bool, checks: dict[str, str]
) -> None:
    """Differing values are shown with the number of workers for each."""
    assert joined(answers, serving, 2) == Readiness(ready, checks)
