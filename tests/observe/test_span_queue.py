"""The queue of spans, and the thread that exports them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from gateway.observe import span_queue
from gateway.observe.span_queue import Batching, SpanQueue
from gateway.observe.spans import TracedRequest
from tests.observe.test_spans import REQUEST

WAIT_S = 20.0


class Gated:
    """An exporter whose exports wait until the test opens it; fault: what each returns."""

    def __init__(self, fault: str | None = None, is_open: bool = True) -> None:
        self.fault = fault
        self.sizes: list[int] = []
        self.begun = threading.Event()
        self.open = threading.Event()
        self.stopped = False
        if is_open:
            self.open.set()

    def export(self, batch: Sequence[TracedRequest]) -> str | None:
        self.sizes.append(len(batch))
        self.begun.set()
        assert self.open.wait(WAIT_S)
        if self.fault == "raise":
            raise ValueError("broken")
        return self.fault

    def stop(self) -> None:
        self.stopped = True
        self.open.set()


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine what is left may take longer than `close` waits."""
    monkeypatch.setattr(span_queue, "CLOSE_S", WAIT_S)


@contextmanager
def queue_of(
    exporter: Gated | Callable[[], Gated], *sizes: int, delay_s: float = 600.0
) -> Iterator[SpanQueue]:
    """A queue with these most and batch; closed at the end."""
    opened = exporter if callable(exporter) else lambda: exporter
    queue = SpanQueue(opened, Batching(*(sizes or (100, 10)), delay_s))
    yield queue
    queue.close()


def test_a_full_batch_is_exported_at_once() -> None:
    """A part of one waits for the delay, or the end."""
    exporter = Gated()
    with queue_of(exporter) as queue:
        for _ in range(9):
            queue.add(REQUEST)
        assert not exporter.begun.is_set()
        queue.add(REQUEST)
        assert exporter.begun.wait(WAIT_S)
        queue.add(REQUEST)
    assert sum(exporter.sizes) == 11
    assert max(exporter.sizes) <= 10
    assert queue.dropped == 0


def test_what_does_not_fit_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """While an export hangs, the newest are dropped; one line says so."""
    exporter = Gated(is_open=False)
    with queue_of(exporter, 3, 1) as queue:
        queue.add(REQUEST)
        assert exporter.begun.wait(WAIT_S)
        for _ in range(10):
            queue.add(REQUEST)
        assert queue.dropped == 7
        exporter.open.set()
    assert exporter.sizes == [1] * 4
    assert queue.dropped == 7
    assert [record.getMessage() for record in caplog.records] == [
        "traces: dropped the spans of 7 requests: the collector is slower than requests come"
    ]


@pytest.mark.parametrize(("fault", "shown"), [("refused", "refused"), ("raise", "broken")])
def test_failed_exports_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture, fault: str, shown: str
) -> None:
    """Whether the exporter says so or raises."""
    with queue_of(Gated(fault), 100, 2) as queue:
        for _ in range(8):
            queue.add(REQUEST)
    assert queue.dropped == 8
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert shown in record.getMessage()


def test_an_exporter_that_cannot_be_opened(caplog: pytest.LogCaptureFixture) -> None:
    """One line says why; then all is dropped and counted."""

    def fail() -> Gated:
        raise OSError("no such certificate")

    with queue_of(fail) as queue:
        queue.add(REQUEST)
    assert queue.dropped == 1
    assert [record.getMessage() for record in caplog.records] == [
        "traces cannot be exported: no such certificate"
    ]


def test_the_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that hangs is stopped; what waits then is dropped and counted."""
    monkeypatch.setattr(span_queue, "CLOSE_S", 0.0)
    monkeypatch.setattr(span_queue, "GIVE_UP_S", 0.0)
    exporter = Gated(is_open=False)
    queue = SpanQueue(lambda: exporter, Batching(10, 1, 600.0))
    queue.add(REQUEST)
    assert exporter.begun.wait(WAIT_S)
    queue.add(REQUEST)
    exporter.fault = "stopped"
    queue.close()
    assert exporter.stopped
    assert queue.dropped >= 1
    queue._thread.join(WAIT_S)  # or it logs into the next test
    assert not queue._thread.is_alive()
