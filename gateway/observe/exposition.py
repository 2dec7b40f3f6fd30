"""A snapshot in Prometheus's text, with what the kernel says of the gateway's processes.

Beside the gateway's own metrics there are the usual `process_*`, over all of its processes:

process_cpu_seconds_total        the sum, those that have ended included
process_resident_memory_bytes    the sum, in which memory that processes share counts for each
process_virtual_memory_bytes     the sum
process_open_fds                 the most that any has
process_max_fds                  the fewest that any may have: open / max is that of the worst off
process_start_time_seconds       of the first
"""

from __future__ import annotations

import re
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gateway.observe.registry import Series, Snapshot

_PROCESS: Final[dict[str, Callable[[Iterable[float]], float]]] = {
    "process_cpu_seconds": sum,
    "process_resident_memory_bytes": sum,
    "process_virtual_memory_bytes": sum,
    "process_open_fds": max,
    "process_max_fds": min,
    "process_start_time_seconds": min,
}


def render(snapshot: Snapshot, accept: str, pids: Sequence[int]) -> tuple[bytes, str]:
    """The exposition and its content type, in the format that an Accept header asks for.

    pids: the processes of the gateway that live
    """
    encode, content_type = _encoder(accept)
    registry = CollectorRegistry()
    registry.register(_Shown(snapshot, pids))
    return encode(registry), content_type


def format_of(accept: str) -> str:
    """The format that is given for an Accept header, as an Accept header: one of nine."""
    content_type = _encoder(accept)[1]
    if content_type.startswith("text/"):
        return content_type
    # Any version from 1.0.0 on would be taken, and repeated in the answer.
    return re.sub(r"version=[^;]*", "version=1.0.0", content_type, count=1)


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except (ValueError, TypeError):  # it compares a version that is none with numbers
        return choose_encoder("")


class _Shown(Collector):
    """What prometheus_client asks for metrics."""

    def __init__(self, snapshot: Snapshot, pids: Sequence[int]) -> None:
        self._snapshot = snapshot
        self._pids = pids

    def collect(self) -> Iterator[Metric]:
        yield from map(_family, self._snapshot.series)
        yield from _processes(self._pids)


def _family(series: Series) -> Metric:
    """A metric in prometheus_client's terms."""
    family = series.family
    name = f"gateway_{family.name}"
    rows = [([str(part) for part in key], value) for key, value in series.values.items()]
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(name, family.text, labels=family.labels)
        for labels, (*counts, total) in rows:
            histogram.add_metric(labels, _cumulative(family.bounds, counts), total)
        return histogram
    if family.kind == "info":
        info = InfoMetricFamily(name, family.text, labels=family.labels)
        for labels, _ in rows:
            info.add_metric(labels, {})
        return info
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    found = kind(name, family.text, labels=family.labels)
    for labels, (value,) in rows:
        found.add_metric(labels, value)
    return found


def _cumulative(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    """Bound and count of all that is not above it, as the exposition has it."""
    found: list[tuple[str, float]] = []
    so_far = 0.0
    for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
        so_far += count
        found.append((str(bound), so_far))
    return found


def _processes(pids: Sequence[int]) -> Iterator[Metric]:
    """The processes as one; nothing where the system has no /proc."""
    ended_s, found = _ended_s(), _look_at(pids)
    while (now_s := _ended_s()) != ended_s:
        # One ended meanwhile: it must count neither twice nor not at all.
        ended_s, found = now_s, _look_at(pids)
    for name, metrics in found.items():
        value = _PROCESS[name]([metric.samples[0].value for metric in metrics])
        if name == "process_cpu_seconds":
            value += ended_s
        first = metrics[0]
        merged = Metric(first.name, first.documentation, first.type)
        merged.add_sample(first.samples[0].name, {}, value)
        yield merged


def _look_at(pids: Sequence[int]) -> dict[str, list[Metric]]:
    """The metrics of those that live, by name."""
    found: dict[str, list[Metric]] = {}
    for pid in pids:
        for metric in ProcessCollector(pid=partial(int, pid), registry=None).collect():
            found.setdefault(metric.name, []).append(metric)
    return found


def _ended_s() -> float:
    """The CPU time of those that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
