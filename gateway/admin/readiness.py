"""Can the gateway decide requests? One worker's answer, and that of several together.

Apart from the admin listener, so that a worker, which only answers, does without its libraries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Readiness:
    """Can this process decide requests?

    ready:  False takes it out of its load balancer
    checks: what was looked at: {"store": "ok", "policies": "ok", "listener": "draining"}
    """

    ready: bool
    checks: Mapping[str, str]


def joined(answers: Sequence[Readiness], serving: int, wanted: int) -> Readiness:
    """Of several workers: ready when one is, for the others' requests reach it.

    answers: of those that live; serving, wanted: how many serve, and how many should
    """
    names = dict.fromkeys(name for answer in answers for name in answer.checks)
    checks = {name: _common([answer.checks.get(name, "") for answer in answers]) for name in names}
    checks["workers"] = f"{serving} of {wanted}"
    return Readiness(any(answer.ready for answer in answers), checks)


def _common(found: Sequence[str]) -> str:
    """What all say, or how many say what: "ok (1 of 2); down (1 of 2)"."""
    counts = Counter(found)
    if len(counts) == 1:
        return found[0]
    return "; ".join(f"{text} ({count} of {len(found)})" for text, count in counts.items())
