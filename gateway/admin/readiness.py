"""Readiness: can the gateway decide requests? Of one worker, and of several together.

A separate module, so that workers do not import the libraries of the admin listener.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Readiness:
    """Can this process decide requests?

    ready:  False: its load balancer sends it no requests
    checks: the results by name: {"store": "ok", "policies": "ok", "listener": "draining"}
    """

    ready: bool
    checks: Mapping[str, str]


def joined(answers: Sequence[Readiness], serving: int, wanted: int) -> Readiness:
    """The readiness of several workers: ready if one is, as it gets the requests of the others.

    answers: of live workers; serving, wanted: how many serve, and how many should
    """
    names = dict.fromkeys(name for answer in answers for name in answer.checks)
    checks = {name: _common([answer.checks.get(name, "") for answer in answers]) for name in names}
    checks["workers"] = f"{serving} of {wanted}"
    return Readiness(any(answer.ready for answer in answers), checks)


def _common(found: Sequence[str]) -> str:
    """The common text, or each text with its number: "ok (1 of 2); down (1 of 2)"."""
    counts = Counter(found)
    if len(counts) == 1:
        return found[0]
    return "; ".join(f"{text} ({count} of {len(found)})" for text, count in counts.items())
