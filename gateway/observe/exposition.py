"""A snapshot in Prometheus's text format, with the kernel's numbers on the gateway's processes.

In addition to the gateway's own metrics there are the usual `process_*`, over all its processes:

process_cpu_seconds_total        the sum, including processes that have ended
process_resident_memory_bytes    the sum; memory that processes share counts for each of them
process_virtual_memory_bytes     the sum
process_open_fds                 the maximum
process_max_fds                  the minimum, so that open / max is not below that of any process
process_start_time_seconds       the minimum
"""

from __future__ import annotations

import re
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from prometheus_client.samples import Exemplar as Shown

from gateway.observe.registry import Exemplar, Series, Snapshot

_PROCESS: Final[dict[str, Callable[[Iterable[float]], float]]] = {
    "process_cpu_seconds": sum,
    "process_resident_memory_bytes": sum,
    "process_virtual_memory_bytes": sum,
    "process_open_fds": max,
    "process_max_fds": min,
    "process_start_time_seconds": min,
}


def render(snapshot: Snapshot, accept: str, pids: Sequence[int]) -> tuple[bytes, str]:
    """The exposition and its content type, in the format for an Accept header.

    pids: the running processes of the gateway
    """
    encode, content_type = _encoder(accept)
    registry = CollectorRegistry()
    registry.register(_Shown(snapshot, pids))
    return encode(registry), content_type


def format_of(accept: str) -> str:
    """The format for an Accept header, itself as an Accept header: one of nine."""
    content_type = _encoder(accept)[1]
    if content_type.startswith("text/"):
        return content_type
    # Any version from 1.0.0 on would be accepted, and repeated in the response.
    return re.sub(r"version=[^;]*", "version=1.0.0", content_type, count=1)


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except (ValueError, TypeError):  # it fails for an invalid version
        return choose_encoder("")


class _Shown(Collector):
    """Gives prometheus_client the metrics."""

    def __init__(self, snapshot: Snapshot, pids: Sequence[int]) -> None:
        self._snapshot = snapshot
        self._pids = pids

    def collect(self) -> Iterator[Metric]:
        yield from map(_family, self._snapshot.series)
        yield from _processes(self._pids)


def _family(series: Series) -> Metric:
    """A metric as an object of prometheus_client."""
    family = series.family
    name = f"gateway_{family.name}"
    rows = [([str(part) for part in key], value) for key, value in series.values.items()]
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(name, family.text, labels=family.labels)
        exemplars = [series.exemplars.get(key, {}) for key in series.values]
        for (labels, (*counts, total)), found in zip(rows, exemplars, strict=True):
            histogram.add_metric(labels, _cumulative(family.bounds, counts, found), total)
        return histogram
    if family.kind == "info":
        info = InfoMetricFamily(name, family.text, labels=family.labels)
        for labels, _ in rows:
            info.add_metric(labels, {})
        return info
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    shown = kind(name, family.text, labels=family.labels)
    for labels, (value,) in rows:
        shown.add_metric(labels, value)
    return shown


def _cumulative(
    bounds: Sequence[float], counts: Sequence[float], exemplars: Mapping[int, Exemplar]
) -> list[tuple[str, float] | tuple[str, float, Shown]]:
    """Each bound, and the number of values that are not above it, for the exposition.

    exemplars: by the bucket's index; only OpenMetrics shows them
    """
    found: list[tuple[str, float] | tuple[str, float, Shown]] = []
    so_far = 0.0
    for index, (bound, count) in enumerate(zip((*bounds, "+Inf"), counts, strict=True)):
        so_far += count
        if (exemplar := exemplars.get(index)) is None:
            found.append((str(bound), so_far))
        else:
            labels = {"trace_id": exemplar.trace_id}
            shown = Shown(labels, exemplar.value, exemplar.at_s)
            found.append((str(bound), so_far, shown))
    return found


def _processes(pids: Sequence[int]) -> Iterator[Metric]:
    """The metrics of all processes; none if the system has no /proc."""
    ended_s, found = _ended_s(), _look_at(pids)
    while (now_s := _ended_s()) != ended_s:
        # A process has ended since: read again, so that it counts exactly once.
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
    """The metrics of running processes, by name."""
    found: dict[str, list[Metric]] = {}
    for pid in pids:
        for metric in ProcessCollector(pid=partial(int, pid), registry=None).collect():
            found.setdefault(metric.name, []).append(metric)
    return found


def _ended_s() -> float:
    """The CPU time of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
