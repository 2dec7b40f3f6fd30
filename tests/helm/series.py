"""The series that the gateway has, and those in a PromQL query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from gateway.observe import slow_steps
from gateway.observe.exposition import _PROCESS
from gateway.observe.metrics import Metrics
from gateway.observe.registry import Family
from gateway.observe.webhook_metrics import WebhookMetrics
from gateway.runtime import couriers, workers

#: Labels that Prometheus adds to what it scrapes.
SCRAPED = frozenset(("namespace", "job", "instance"))

_NAME = re.compile(r"\b((?:gateway|process)_[a-z_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Named:
    """The metrics in a query. matched: for each metric, the labels of its matchers."""

    matched: dict[str, frozenset[str]]
    grouped: frozenset[str]


def named_in(text: str) -> Named:
    """The metrics and labels of a query."""
    matched: dict[str, frozenset[str]] = {}
    for name, matchers in _NAME.findall(text):
        matched[name] = matched.get(name, frozenset()) | set(_MATCHER.findall(matchers))
    grouped = {label.strip() for labels in _GROUPING.findall(text) for label in labels.split(",")}
    return Named(matched, frozenset(grouped - {""}))


@cache
def known_series() -> dict[str, frozenset[str]]:
    """Each series that the gateway's code defines, by its name in a scrape, and its labels.

    Not to be modified.
    """
    of_processes = (*Metrics("1").snapshot().series, *WebhookMetrics().series())
    families = [series.family for series in of_processes]
    families += (workers.WORKERS, workers.RESTARTS, couriers.COURIERS, couriers.RESTARTS)
    families.append(slow_steps.FAMILY)
    known: dict[str, frozenset[str]] = {}
    for family in families:
        for name, more in _suffixes(family):
            known[f"gateway_{family.name}{name}"] = frozenset((*family.labels, *more))
    for name in _PROCESS:
        known[f"{name}_total" if name.endswith("cpu_seconds") else name] = frozenset()
    return known


def _suffixes(family: Family) -> list[tuple[str, tuple[str, ...]]]:
    if family.kind == "histogram":
        return [("_bucket", ("le",)), ("_sum", ()), ("_count", ())]
    return [({"counter": "_total", "gauge": "", "info": "_info"}[family.kind], ())]


def faults_of(text: str) -> list[str]:
    """The metrics and labels in a query that the gateway does not have."""
    known, named = known_series(), named_in(text)
    faults = [f"no metric {name}" for name in named.matched.keys() - known.keys()]
    labels: set[str] = set(SCRAPED)
    for name, matched in named.matched.items():
        of_metric = known.get(name, frozenset()) | SCRAPED
        labels |= of_metric
        faults += [f"{name} has no label {label}" for label in matched - of_metric]
    return faults + [f"no label {label} in {text}" for label in named.grouped - labels]
