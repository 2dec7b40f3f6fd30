"""The objectives of a run, and whether it met them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from loadtests.traffic.truth import RETRY


@dataclass(frozen=True, slots=True)
class Objectives:
    """The expectations on a run.

    p99_ms:         99 of 100 admitted requests take no longer; None: any time
    most_errors:    the share of requests that may fail (429 and other expected answers are no
                    failures): 0.001
    least_requests: a run with fewer shows nothing
    least_waits:    the least number of waits for Retry-After, with a second request
    all_checked:    each assertion that the clients can check was checked
    """

    p99_ms: float | None = None
    most_errors: float = 0.0
    least_requests: int = 1
    least_waits: int = 0
    all_checked: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a run.

    p99_ms:     of admitted requests; None: nothing was admitted
    broken:     how often each assertion was broken
    checks:     how often each assertion was checked
    unchecked:  assertions that the clients can check, and have not checked
    exceptions: in the load test's own code
    """

    requests: int
    errors: int
    limited: int
    p99_ms: float | None
    broken: Mapping[str, int] = field(default_factory=dict)
    checks: Mapping[str, int] = field(default_factory=dict)
    unchecked: frozenset[str] = frozenset()
    exceptions: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One objective, as a sentence with what was found and what was expected."""

    words: str
    is_met: bool

    def __str__(self) -> str:
        return f"{'met' if self.is_met else 'NOT MET'}: {self.words}"


def describe(measured: Measured) -> list[str]:
    """The run in lines: an assertion that is missing was never checked."""
    tests = [f"tested {count} times: {truth}" for truth, count in sorted(measured.checks.items())]
    return [*tests, f"{measured.requests} requests, of them {measured.limited} with 429"]


def is_enough(asked: Objectives, measured: Measured) -> bool:
    """Is each objective met that a longer run can meet?"""
    return (
        measured.requests >= asked.least_requests
        and measured.checks.get(RETRY, 0) >= asked.least_waits
        and not (asked.all_checked and measured.unchecked)
    )


def judge(asked: Objectives, measured: Measured) -> list[Finding]:
    """All objectives, in the order of the output."""
    requests = measured.requests
    share = measured.errors / requests if requests else 0.0
    findings = [
        Finding(
            f"{requests} requests, at least {asked.least_requests}",
            requests >= asked.least_requests,
        ),
        Finding(
            f"{measured.errors} errors ({share:.2%}), at most {asked.most_errors:.2%}",
            share <= asked.most_errors and not (measured.errors and not requests),
        ),
        _of_truths(measured),
    ]
    if asked.p99_ms is not None:
        found = "nothing" if measured.p99_ms is None else f"{measured.p99_ms:.0f} ms"
        findings.append(
            Finding(
                f"p99 of what was admitted {found}, at most {asked.p99_ms:.0f} ms",
                measured.p99_ms is not None and measured.p99_ms <= asked.p99_ms,
            )
        )
    if asked.least_waits:
        waits = measured.checks.get(RETRY, 0)
        findings.append(
            Finding(
                f"{waits} waits for Retry-After, at least {asked.least_waits}",
                waits >= asked.least_waits,
            )
        )
    if asked.all_checked:
        which = "".join(f"; {name}" for name in sorted(measured.unchecked))
        findings.append(
            Finding(f"{len(measured.unchecked)} truths unchecked{which}", not measured.unchecked)
        )
    if measured.exceptions:
        findings.append(Finding(f"{measured.exceptions} exceptions in the load test itself", False))
    return findings


def _of_truths(measured: Measured) -> Finding:
    checks, broken = sum(measured.checks.values()), sum(measured.broken.values())
    which = "".join(f"; {name}: {count}" for name, count in sorted(measured.broken.items()))
    return Finding(f"{broken} truths broken in {checks} checks{which}", broken == 0)
