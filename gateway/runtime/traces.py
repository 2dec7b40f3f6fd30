"""Keeps what records traces in step with the policy, and exports what is left at the end.

The policy says which requests are sampled. Where the spans go to, and in which batches, is in the
standard OTEL_* variables of the environment, which are read once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Final

from gateway.domain.tracing import Tracing
from gateway.observe.metrics import Metrics
from gateway.observe.span_queue import Batching, Exporter, SpanQueue
from gateway.proxy.tracing import Tracer

_log = logging.getLogger("gateway")

_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL: Final = "http/protobuf"
_MOST: Final = "OTEL_BSP_MAX_QUEUE_SIZE"
_BATCH: Final = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
_DELAY: Final = "OTEL_BSP_SCHEDULE_DELAY"


class Traces:
    """The traces of one process. There is no thread, and no import, until a policy has traces."""

    def __init__(self, metrics: Metrics, version: str) -> None:
        self._metrics = metrics
        self._version = version
        self._queue: SpanQueue | None = None

    def use(self, tracing: Tracing | None) -> Tracer | None:
        """What records requests by this setting; None: nothing does."""
        if tracing is None:
            return None
        if self._queue is None:
            batching = read_batching(os.environ)
            self._queue = SpanQueue(lambda: _exporter(self._version), batching)
            self._metrics.traces_dropped = lambda: 0 if self._queue is None else self._queue.dropped
        return Tracer(tracing, self._queue.add, self._metrics)

    async def close(self) -> None:
        """Export what is left, for a few seconds at most."""
        if self._queue is not None:
            await asyncio.to_thread(self._queue.close)


def read_batching(environment: Mapping[str, str]) -> Batching:
    """Sizes and delay of batches; what is not valid is named in the log, and its default used."""
    for name in _PROTOCOLS:
        protocol = environment.get(name) or _PROTOCOL
        if protocol != _PROTOCOL:
            _log.warning("%s: found %r, traces are exported by %s", name, protocol, _PROTOCOL)
    default = Batching()
    most = _number(environment, _MOST, default.most)
    batch = _number(environment, _BATCH, min(default.batch, most))
    delay_ms = _number(environment, _DELAY, round(default.delay_s * 1000))
    if batch > most:
        _log.warning("%s: found %d, expected at most %s, %d", _BATCH, batch, _MOST, most)
    return Batching(most, min(batch, most), delay_ms / 1000)


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text):
        return int(text)
    _log.warning("%s: found %r, expected a whole number above 0; using %d", name, text, default)
    return default


def _exporter(version: str) -> Exporter:
    # Only here, so that OpenTelemetry is not imported without traces; in the queue's thread, as
    # that takes a third of a second.
    from gateway.observe.otlp import OtlpExporter  # noqa: PLC0415

    return OtlpExporter(version)
