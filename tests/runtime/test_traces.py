"""The variables of the environment that describe batches, and when the queue begins."""

from __future__ import annotations

import threading

import pytest

from gateway.domain.tracing import Tracing
from gateway.observe.metrics import Metrics
from gateway.observe.span_queue import Batching
from gateway.runtime import traces
from gateway.runtime.traces import Traces, read_batching
from tests.observe.test_span_queue import Gated
from tests.observe.test_spans import REQUEST


@pytest.mark.parametrize(
    ("environment", "expected", "warned"),
    [
        ({}, Batching(2048, 512, 5.0), ""),
        ({"OTEL_BSP_SCHEDULE_DELAY": "250"}, Batching(2048, 512, 0.25), ""),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "100"}, Batching(100, 100, 5.0), ""),
        ({"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9999"}, Batching(2048, 2048, 5.0), "at most"),
        ({"OTEL_BSP_SCHEDULE_DELAY": "1s"}, Batching(), "found '1s', expected a whole number"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "0"}, Batching(), "found '0'"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "9" * 5000}, Batching(), "expected a whole number"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, Batching(), "exported by http/protobuf"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, Batching(), ""),
    ],
)
def test_batching(
    environment: dict[str, str], expected: Batching, warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is not valid is named in the log, and its default used."""
    assert read_batching(environment) == expected
    assert warned in caplog.text
    assert bool(warned) == bool(caplog.records)


async def test_a_queue_begins_with_the_first_policy_that_has_traces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It serves all later ones, and the end exports what is left."""
    exporter = Gated()
    monkeypatch.setattr(traces, "_exporter", lambda version: exporter)
    metrics = Metrics("1")
    kept = Traces(metrics, "1")

    def is_running() -> bool:
        return any(thread.name == "traces" for thread in threading.enumerate())

    assert kept.use(None) is None
    assert not is_running()
    await kept.close()
    assert kept.use(Tracing(1.0)) is not None
    assert kept.use(None) is None
    assert kept.use(Tracing(0.5)) is not None
    assert is_running()
    assert kept._queue is not None
    kept._queue.add(REQUEST)
    await kept.close()
    assert exporter.sizes == [1]
    assert metrics.traces_dropped() == 0
    assert not is_running()
