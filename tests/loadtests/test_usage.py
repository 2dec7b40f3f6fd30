"""The comparison of usage with the access log, as a load test makes it."""

from __future__ import annotations

from loadtests.usage import Outcome, table
from tests.kit.usage_counts import Counts, logged

LOG = Counts({("a", "api", "admitted"): 2_000, ("", "none", "refused:not_found"): 1})


def outcome(store: Counts) -> Outcome:
    return Outcome(LOG, {"minute": LOG, "hour": store, "day": LOG}, 0.5)


def test_equal_counts() -> None:
    """Counts that agree are shown by outcome."""
    same = outcome(LOG)
    assert same.is_same
    assert table(same).splitlines()[2:] == [
        "| admitted | 2,000 | 2,000 | 2,000 | 2,000 |",
        "| refused:not_found | 1 | 1 | 1 | 1 |",
        "| **all** | 2,001 | 2,001 | 2,001 | 2,001 |",
        "",
        "the same, 0.5 s after the end of the load",
    ]


def test_differing_counts() -> None:
    """A difference is shown by key and route."""
    differs = outcome(Counts({**LOG, ("a", "api", "admitted"): 1_999}))
    assert not differs.is_same
    assert table(differs).splitlines()[-2:] == [
        "hour ('a', 'api', 'admitted'): log 2000, store 1999",
        "DIFFERENT, 0.5 s after the end of the load",
    ]


def test_lines_of_the_log() -> None:
    """A line counts for its key and route, by its decision and what was behind it."""
    line = {"key_id": "a", "route": "api", "decision": "admitted", "status": 204}
    line |= {"limit": "plan", "reason": None}
    lines = [
        line,
        {**line, "status": 502},
        {**line, "decision": "limited", "reason": "rate_limited"},
        {**line, "key_id": None, "route": None, "decision": "refused", "reason": "not_found"},
    ]
    assert logged(lines) == {
        ("a", "api", "admitted:2xx"): 1,
        ("a", "api", "failed:5xx"): 1,
        ("a", "api", "limited:plan"): 1,
        ("", "none", "refused:not_found"): 1,
    }
