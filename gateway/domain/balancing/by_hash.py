"""The same server for requests of the same subject: rendezvous hashing.

Each server has a score for the subject, and the one with the best gets the request. A server that
is removed changes the choice only for the subjects that had it, and one that returns gets these
again. Scores depend on nothing but the two texts, so all workers and gateways choose alike.

With weights: Schindler and Wengerter, "Weighted rendezvous hashing" (2014).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from math import log
from typing import Final

from gateway.domain.balancing.rule import Asking, Below, C

_SCALE: Final = 2.0**-64


def build(candidates: Sequence[C], by: str, below: Below) -> Callable[[Asking], C]:
    """Pick by the subject `by`."""
    if len(candidates) == 1:
        return lambda request: candidates[0]
    scored = [(_keyed(each.label), each.weight, each) for each in candidates]

    def pick(request: Asking) -> C:
        subject = request.subject_of(by).encode("utf-8", "surrogatepass")
        best, chosen = -1.0, candidates[0]
        for keyed, weight, each in scored:
            digest = keyed.copy()
            digest.update(subject)
            # Between 0 and 1, neither included: its logarithm is negative.
            number = (int.from_bytes(digest.digest()) + 0.5) * _SCALE
            score = weight / -log(number) if number < 1.0 else float("inf")
            if score > best:
                best, chosen = score, each
        return chosen

    return pick


def _keyed(label: str) -> blake2b:
    return blake2b(digest_size=8, key=blake2b(label.encode(), digest_size=32).digest())
