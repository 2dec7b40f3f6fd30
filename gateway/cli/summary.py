"""The summary of a replayed log: what each limit did, and what differs from what the log says.

Memory grows with the number of clients and limits, not of lines: names that only the log has, such
as its limits, are counted up to a number, and all further ones together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from gateway.cli.keyforms import as_table
from gateway.cli.log_lines import EPOCH, Line
from gateway.cli.outcome import Answer, is_same
from gateway.cli.replay import Result
from gateway.domain.patterns import printable

#: Keys and routes in a list.
_TOP: Final = 10
#: Faults that are quoted.
MOST_FAULTS: Final = 10
#: Names of limits that are counted apart.
_MOST_NAMES: Final = 1_000
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Row:
    """The counts for one limit of one plan. first_us, last_us: when it would have limited"""

    decided: int = 0
    admitted: int = 0
    limited: int = 0
    by_others: int = 0
    first_us: int = 0
    last_us: int = 0


@dataclass(slots=True)
class _Difference:
    """Requests with one answer then and another now. limits, reasons: what refuses or refused"""

    requests: int = 0
    limits: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def words(self, then: str, now: str) -> str:
        parts = []
        if self.limits:
            parts.append("by limit " + _listed(self.limits))
        if self.reasons:
            parts.append(_listed(self.reasons))
        details = f" ({'; '.join(parts)})" if parts else ""
        return f"{then} then, {now} now: {self.requests:,}{details}"


@dataclass(slots=True)
class _Changes:
    """The differences of one route or key."""

    refused_now: int = 0
    admitted_now: int = 0
    otherwise: int = 0

    @property
    def sum(self) -> int:
        return self.refused_now + self.admitted_now + self.otherwise


@dataclass(slots=True)
class Summary:
    """The counts so far.

    without_cost: lines that cost nothing; undecided: ones that could not be read or decided
    faults: of the undecided, the first few, each with its place
    rows: by plan ("": none), name of a limit, and whether it is in shadow mode
    unknown: requests that were refused then before what decides about them now was known
    by_host: the routes of the policies depend on hosts
    without_host: lines that have none, if that matters: they were routed as on a host that no
             route names
    sampled: lines of which the log has only a share
    """

    lines_read: int = 0
    without_cost: int = 0
    undecided: int = 0
    compared: int = 0
    same: int = 0
    unknown: int = 0
    by_host: bool = False
    without_host: int = 0
    sampled: int = 0
    faults: list[str] = field(default_factory=list)
    rows: dict[tuple[str, str, bool], _Row] = field(default_factory=dict)
    #: How often each key would have been limited.
    limited_keys: Counter[str] = field(default_factory=Counter)
    #: Why requests would be refused, except by limits.
    refused: Counter[str] = field(default_factory=Counter)
    differences: dict[tuple[str, str], _Difference] = field(default_factory=dict)
    routes: dict[str, _Changes] = field(default_factory=dict)
    keys: dict[str, _Changes] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        """Count one line."""
        self.lines_read += 1
        answers = result.answers()
        if answers is None or result.line is None:
            self.undecided += 1
            if len(self.faults) < MOST_FAULTS:
                self.faults.append(f"{result.place}: {result.fault}")
            return
        if self.by_host and result.line.path and result.line.host is None:
            self.without_host += 1
        self.sampled += result.line.sample < 1
        self._add_limits(result, result.line)
        then, now = answers
        if now.kind == "refused" and now.detail:
            self.refused[_reason(now)] += 1
        if then is not None:
            self._compare(result, result.line, then, now)

    def _add_limits(self, result: Result, line: Line) -> None:
        check, decision = result.check, result.decision
        if check is None or decision is None or not check.cost:
            self.without_cost += 1
            return
        if not decision.allowed:
            self.limited_keys[line.key_id or line.client_ip] += 1
        for index, limit in enumerate(check.limits):
            row = self.rows.setdefault((line.plan or "", limit.name, limit.shadow), _Row())
            row.decided += 1
            row.admitted += decision.allowed
            if decision.refusing >> index & 1:
                row.limited += 1
                row.first_us = min(row.first_us or line.time_us, line.time_us)
                row.last_us = max(row.last_us, line.time_us)
            elif not decision.allowed:
                row.by_others += 1

    def _compare(self, result: Result, line: Line, then: Answer, now: Answer) -> None:
        if now.kind == "unknown":
            self.unknown += 1
            return
        self.compared += 1
        if is_same(line, then, now):
            self.same += 1
            return
        is_admitted = now.kind == "admitted"
        pair = _word(then), "admitted" if is_admitted else "refused"
        difference = self.differences.setdefault(pair, _Difference())
        difference.requests += 1
        cause = then if is_admitted else now
        if cause.kind == "limited" and cause.detail:
            _count(difference.limits, cause.detail)
        elif cause.detail:
            _count(difference.reasons, _reason(cause))
        assert result.expected is not None
        for changes, name in (
            (self.routes, result.expected.route or "-"),
            (self.keys, line.key_id or line.client_ip or "-"),
        ):
            change = changes.setdefault(name, _Changes())
            if is_admitted:
                change.admitted_now += 1
            elif then.kind in ("admitted", "failed"):
                change.refused_now += 1
            else:
                change.otherwise += 1

    # -- for a terminal ----------------------------------------------------------------------------

    def text(self) -> Iterator[str]:
        """Lines for a terminal."""
        counts = ("DECIDED", "ADMITTED", "LIMITED", "BY OTHERS")
        head = ("PLAN", "LIMIT", *counts, "FIRST LIMITED", "LAST LIMITED")
        rows = [
            (
                *(plan or "-", f"{limit} (shadow)" if is_shadow else limit, str(row.decided)),
                *(str(row.admitted), str(row.limited), str(row.by_others)),
                *(_moment(row.first_us) or "-", _moment(row.last_us) or "-"),
            )
            for (plan, limit, is_shadow), row in sorted(self.rows.items())
        ]
        yield as_table(head, rows)
        if self.limited_keys:
            yield ""
            most = self.limited_keys.most_common(_TOP)
            yield as_table(("KEY", "LIMITED"), [(key, str(times)) for key, times in most])
        if self.refused:
            yield ""
            yield f"refused, but not by a limit: {_listed(self.refused)}"
        if self.compared or self.unknown:
            yield ""
            yield from self._compared_text()
        yield ""
        yield (
            f"{self.lines_read} lines read, {self.without_cost} of them cost nothing, "
            f"{self.undecided} could not be decided"
        )
        if self.without_host:
            yield (
                f"{self.without_host} lines have no host: decided by the routes without hosts; "
                "see --field host=PATH"
            )
        if self.sampled:
            yield (
                f"the log is a sample: {self.sampled:,} lines stand for more requests than one, so "
                "limits would refuse more than is shown"
            )

    def _compared_text(self) -> Iterator[str]:
        yield f"{self.compared:,} requests compared with the log, {self.same:,} as then"
        for (then, now), difference in self._by_size():
            yield difference.words(then, now)
        if self.unknown:
            yield f"refused then, not known now, as the log has no key of theirs: {self.unknown:,}"
        for name, changes in (("ROUTE", self.routes), ("KEY", self.keys)):
            if changes:
                yield ""
                head = (name, "REFUSED NOW", "ADMITTED NOW", "OTHERWISE")
                yield as_table(
                    head,
                    [
                        (each, *map(str, (one.refused_now, one.admitted_now, one.otherwise)))
                        for each, one in _top(changes)
                    ],
                )

    def _by_size(self) -> list[tuple[tuple[str, str], _Difference]]:
        return sorted(self.differences.items(), key=lambda pair: -pair[1].requests)

    # -- for programs ------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """The same for programs; times in RFC 3339."""
        return {
            "lines": self.lines_read,
            "without_cost": self.without_cost,
            "undecided": self.undecided,
            "without_host": self.without_host,
            "sampled": self.sampled,
            "faults": self.faults,
            "limits": [
                {
                    "plan": plan or None,
                    "limit": limit,
                    "mode": "shadow" if is_shadow else "enforce",
                    "decided": row.decided,
                    "admitted": row.admitted,
                    "limited": row.limited,
                    "by_others": row.by_others,
                    "first_limited": _moment(row.first_us),
                    "last_limited": _moment(row.last_us),
                }
                for (plan, limit, is_shadow), row in sorted(self.rows.items())
            ],
            "most_limited": [
                {"key_id": key, "limited": times}
                for key, times in self.limited_keys.most_common(_TOP)
            ],
            "refused": dict(self.refused),
            "compared": self.compared,
            "same": self.same,
            "unknown": self.unknown,
            "differences": [
                {
                    "then": then,
                    "now": now,
                    "requests": difference.requests,
                    "limits": dict(difference.limits.most_common()),
                    "reasons": dict(difference.reasons.most_common()),
                }
                for (then, now), difference in self._by_size()
            ],
            "routes": [{"route": name, **_changes_json(one)} for name, one in _top(self.routes)],
            "keys": [{"key_id": name, **_changes_json(one)} for name, one in _top(self.keys)],
        }


def _word(then: Answer) -> str:
    """An answer of then, as a difference names it."""
    return str(then.status) if then.kind in ("limited", "refused") else then.kind


def _reason(answer: Answer) -> str:
    return f"{answer.status} {answer.detail}"


def _count(counts: Counter[str], name: str) -> None:
    counts[name if name in counts or len(counts) < _MOST_NAMES else _OTHERS] += 1


def _listed(counts: Counter[str]) -> str:
    """The largest counts as a text: "plan: 300, search: 12"."""
    shown = [f"{printable(name)}: {count:,}" for name, count in counts.most_common(_TOP)]
    more = counts.total() - sum(count for _, count in counts.most_common(_TOP))
    return ", ".join([*shown, *([f"{_OTHERS}: {more:,}"] if more else [])])


def _top(changes: Mapping[str, _Changes]) -> Sequence[tuple[str, _Changes]]:
    return sorted(changes.items(), key=lambda pair: (-pair[1].sum, pair[0]))[:_TOP]


def _changes_json(changes: _Changes) -> dict[str, int]:
    return {
        "refused_now": changes.refused_now,
        "admitted_now": changes.admitted_now,
        "otherwise": changes.otherwise,
    }


def _moment(time_us: int) -> str | None:
    if not time_us:
        return None
    return f"{EPOCH + timedelta(microseconds=time_us):%Y-%m-%dT%H:%M:%S.%f}Z"
