"""Servers and requests for the rules."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.domain.balancing.rule import Asking


@dataclass(slots=True)
class Server:
    label: str
    weight: int = 1
    busy: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A request with this subject, whatever a rule goes by."""

    subject: str = ""

    def subject_of(self, by: str) -> str:
        return self.subject


def servers(*weights: int) -> list[Server]:
    return [Server(f"10.0.0.{at}:80", weight) for at, weight in enumerate(weights)]


def below(seed: int = 1) -> Callable[[int], int]:
    """Numbers that look random and are the same in each run."""
    return random.Random(seed).randrange


def counted(
    pick: Callable[[Asking], Server], candidates: Sequence[Server], requests: int
) -> list[int]:
    """How many requests each server gets, all with different subjects."""
    found = Counter(pick(Request(f"subject-{at}")).label for at in range(requests))
    return [found[each.label] for each in candidates]
