"""Samples, writes and checks the memory of processes over a run."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from loadtests.compare.processes import tree
from tests.kit.proc import rss_bytes

#: How much memory may grow in the second half of a run: less than an allocator's variation.
MOST_GROWTH: Final = 0.03
#: A second half of fewer samples says nothing.
_ENOUGH: Final = 20


@dataclass(slots=True)
class Memory:
    """Samples of some processes. series: by a process's name, (seconds, bytes) in order."""

    series: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def sample(self, at_s: float, gateways: Mapping[str, int]) -> None:
        """Sample each gateway (name -> pid), and all processes that it has started.

        Workers are distinguished by pid, so that a replacement starts a new curve.
        """
        for name, pid in gateways.items():
            for member in tree(pid):
                title = name if member == pid else f"{name} worker {member}"
                with contextlib.suppress(OSError, AssertionError):  # it ended meanwhile
                    value = rss_bytes(member)
                    self.series.setdefault(title, []).append((at_s, value))

    def growth(self) -> dict[str, float | None]:
        """The growth of each process, see `growth`."""
        return {name: growth(samples) for name, samples in self.series.items()}

    def write(self, path: Path) -> None:
        """One line a sample: seconds, process, bytes."""
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("seconds", "process", "rss_bytes"))
            writer.writerows(_rows(self.series))


def growth(samples: list[tuple[float, int]]) -> float | None:
    """The share by which the second half of a run's samples rises, from its first to last fifth.

    By medians, as a single sample may be at a time of much work. None: there are too few.
    """
    second = [value for _, value in samples[len(samples) // 2 :]]
    fifth = len(second) // 5
    if len(second) < _ENOUGH:
        return None
    return median(second[-fifth:]) / median(second[:fifth]) - 1


def _rows(series: Mapping[str, list[tuple[float, int]]]) -> Iterable[tuple[str, str, int]]:
    for name, samples in series.items():
        for at_s, value in samples:
            yield f"{at_s:.1f}", name, value
