"""The summary of a replay: what differs from the log, by limit, route and key, within bounds."""

from __future__ import annotations

import json
from dataclasses import replace

from gateway.cli.outcome import Expected
from gateway.cli.replay import Result
from gateway.cli.summary import Summary
from gateway.domain.limits import Check, Decision, Limit
from gateway.domain.window import decide
from gateway.errors import NOT_FOUND
from tests.cli.test_outcome import LINE

LIMIT = Limit("search", "rate", 1, 60_000_000)


def decided(*, allowed: bool) -> Decision:
    """What the limit says to the first request, or to the second."""
    check = Check((LIMIT,), ("c",), 1)
    decision, states = decide([None], check, LINE.time_us)
    return decision if allowed else decide(states, check, LINE.time_us)[0]


def result(*, allowed: bool, route: str = "search", **change: object) -> Result:
    check = Check((LIMIT,), ("c",), 1)
    line = replace(LINE, **change)  # type: ignore[arg-type]
    return Result("log:1", line, Expected(route, check), 0, decided(allowed=allowed))


def summary(*results: Result) -> Summary:
    found = Summary()
    for each in results:
        found.add(each)
    return found


MIXED = (
    *[result(allowed=False)] * 3,
    *[result(allowed=True)] * 2,
    result(allowed=True, status=429, decision="limited", limit="daily", key_id="k2"),
    result(allowed=True, route="api", status=404, decision="refused", reason="not_found"),
    Result("log:7", LINE, Expected(refusal=NOT_FOUND, error="no route")),
    Result("log:8", replace(LINE, status=404, decision="refused"), Expected(is_unknown=True)),
    Result("log:9", fault="found nothing"),
)


def test_what_differs() -> None:
    """One line for each pair of answers, by what refuses or refused; the most frequent first."""
    lines = "\n".join(summary(*MIXED).text()).splitlines()
    start = lines.index("8 requests compared with the log, 2 as then")
    assert [line.split() for line in lines[start + 1 :]] == [
        line.split()
        for line in """\
admitted then, refused now: 4 (by limit search: 3; 404 not_found: 1)
429 then, admitted now: 1 (by limit daily: 1)
404 then, admitted now: 1 (404 not_found: 1)
refused then, not known now, as the log has no key of theirs: 1

ROUTE   REFUSED NOW  ADMITTED NOW  OTHERWISE
search  3            1             0
-       1            0             0
api     0            1             0

KEY  REFUSED NOW  ADMITTED NOW  OTHERWISE
k1   4            1             0
k2   0            1             0

10 lines read, 2 of them cost nothing, 1 could not be decided""".splitlines()
    ]


def test_for_programs() -> None:
    """The same as JSON."""
    shown = json.loads(json.dumps(summary(*MIXED).as_json()))
    assert shown["differences"][0] == {
        "then": "admitted",
        "now": "refused",
        "requests": 4,
        "limits": {"search": 3},
        "reasons": {"404 not_found": 1},
    }
    assert (shown["lines"], shown["compared"], shown["same"]) == (10, 8, 2)
    assert (shown["unknown"], shown["undecided"]) == (1, 1)
    assert shown["faults"] == ["log:9: found nothing"]
    assert shown["refused"] == {"404 not_found": 1}
    assert shown["limits"][0]["limited"] == 3
    assert shown["keys"][0] == {
        **{"key_id": "k1", "refused_now": 4, "admitted_now": 1, "otherwise": 0},
    }


def test_many_names() -> None:
    """Limits that only the log has are counted apart up to a number; so are quoted faults."""
    found = Summary()
    for number in range(1_200):
        found.add(result(allowed=True, status=429, decision="limited", limit=f"l{number}"))
        found.add(Result(f"log:{number}", fault="x"))
    (difference,) = found.differences.values()
    assert len(difference.limits) == 1_001
    assert difference.limits["others"] == 200
    assert len(found.faults) == 10


def test_nothing_for_the_terminal_to_obey() -> None:
    """Names in a log may have control characters."""
    found = summary(result(allowed=False, key_id="\x1b[31m"), result(allowed=True, limit="\x07"))
    assert all(char.isprintable() or char == "\n" for char in "\n".join(found.text()))
