"""The table of store failures: its rows, and invalid cases."""

from __future__ import annotations

from collections import Counter

import pytest

from loadtests.outage.__main__ import _row, main
from loadtests.outage.cases import CASES
from loadtests.outage.run import Outcome
from tests.kit.rows import each_row


@each_row(
    ("name", "statuses", "admitted", "row"),
    [
        ("OOM", {200: 90, 429: 10}, 110, "| OOM | 51 | 0 of 100 | 50 of 110 | 0.61 |"),
        ("OOM", {200: 90, 0: 1, 503: 2}, 60, "| OOM | 51 | 3 of 93 | 0 of 60 | 0.61 |"),
        ("kill -9, closed", {503: 5}, 0, "| kill -9, closed | 51 | 0 of 5 | 0 of 0 | 0.61 |"),
        ("kill -9, open", {200: 5}, 200, "| kill -9, open | 51 | 0 of 5 | unlimited | 0.61 |"),
    ],
)
def test_rows(name: str, statuses: dict[int, int], admitted: int, row: str) -> None:
    """A row has the effect on clients; an error is an answer that the case does not allow."""
    outcome = Outcome(Counter(statuses), [], 0.0512, admitted, 0.611)
    assert _row(name, CASES[name], outcome) == row


def test_an_answer_to_another_request_is_an_error() -> None:
    """It is an error whatever its status is."""
    outcome = Outcome(Counter({200: 5}), ["loose1-7: …"], 0.0, 5, 0.0)
    assert outcome.errors({200}) == 1


def test_no_such_case(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the unknown case and all known ones."""
    with pytest.raises(SystemExit):
        main(["nonsense"])
    printed = capsys.readouterr().err
    assert "no such case: nonsense" in printed
    assert "SIGSTOP, SIGCONT" in printed
