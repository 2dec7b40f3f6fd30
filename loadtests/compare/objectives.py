"""What the gateway has to reach, and whether it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loadtests.compare.measure import Results
from loadtests.compare.scenarios import MAIN, WORKLOADS, Scenario
from loadtests.compare.spread import Spread, Verdict, ratios

OURS: Final = "ours"
_NGINX: Final = "nginx-lua"
_ROWS: Final = {name: Scenario(workload) for name, workload in WORKLOADS.items()}
_REFUSED: Final = _ROWS["refused"]
#: CPU time a request, as a part of what nginx + Lua + Redis takes: scenario, at most.
_OF_NGINX: Final[Sequence[tuple[Scenario, float]]] = (
    (MAIN, 0.50),
    (_ROWS["own"], 1.0),
    (_ROWS["connect"], 1.0),
    (_ROWS["post"], 0.60),
    (_ROWS["big"], 0.75),
    (_ROWS["keys"], 0.45),
    (Scenario(WORKLOADS["small"], connections=1), 1.0),
)
_OF_ENVOY: Final = ((MAIN, 0.70), (_ROWS["upload"], 1.1))
#: The same, as a part of what the gateway itself takes in another scenario.
_OF_OURS: Final[Sequence[tuple[str, Scenario, Scenario, float]]] = (
    ("a refusal with 429, of an admission", _REFUSED, MAIN, 0.50),
    (
        *("a request while Redis is away, of one while it is there",),
        *(_ROWS["away"], _ROWS["present"], 1.15),
    ),
    (
        *("a request of 512 connections, of one of 64",),
        *(Scenario(WORKLOADS["small"], connections=512), MAIN, 1.4),
    ),
)
#: A figure of our own: title, scenario, field of Figures, at most, unit.
_ALONE: Final[Sequence[tuple[str, Scenario, str, float, str]]] = (
    ("Redis, of one decision", MAIN, "store_us", 6.0, "µs"),
    ("CPU of a refusal with 401, one key", _ROWS["unknown"], "cpu_us", 18.0, "µs"),
    ("calls of the store, of a refusal with 429", _REFUSED, "store_calls", 0.01, ""),
    (
        "calls of the store, of a refusal with 401, one key",
        _ROWS["unknown"],
        "store_calls",
        0.01,
        "",
    ),
)


def verdicts(results: Results) -> list[Verdict]:
    """The objectives whose scenario was measured for the gateway, in the order above."""
    found = [
        _ratio(f"{row.title}, of nginx + Lua + Redis", results, (row, OURS), (row, _NGINX), most)
        for row, most in _OF_NGINX
    ]
    found += [
        _ratio(f"{row.title}, of Envoy", results, (row, OURS), (row, "envoy"), most)
        for row, most in _OF_ENVOY
    ]
    found += [
        _ratio(title, results, (row, OURS), (other, OURS), most)
        for title, row, other, most in _OF_OURS
    ]
    for title, row, name, most, unit in _ALONE:
        values = results.values(row, OURS, name)
        found.append(Verdict(title, Spread.of(values) if values else None, most, unit))
    return found


def _ratio(
    title: str,
    results: Results,
    one: tuple[Scenario, str],
    other: tuple[Scenario, str],
    most: float,
) -> Verdict:
    ours, theirs = (results.values(*each, "cpu_us") for each in (one, other))
    return Verdict(title, ratios(ours, theirs) if ours and theirs else None, most)
