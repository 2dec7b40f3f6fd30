"""What waits for export, and the thread that exports it in batches.

The queue is bounded, and adding to it never waits: a collector that is slow or unreachable costs
requests nothing. What does not fit, or cannot be exported, is dropped and counted, and logged at
most once a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.observe.log_throttle import LogThrottle
from gateway.observe.spans import TracedRequest

_log = logging.getLogger(__name__)

#: How long `close` waits for the export of what is left, and then for the thread to end.
CLOSE_S: Final = 3.0
GIVE_UP_S: Final = 0.5
#: One log line about dropped spans in this time.
LOG_EVERY_S: Final = 60.0


class Exporter(Protocol):
    """Exports batches; only the thread uses it, except for `stop`."""

    def export(self, batch: Sequence[TracedRequest]) -> str | None:
        """Send a batch; None: it was accepted; else why not, for the log."""
        ...

    def stop(self) -> None:
        """Have an `export` in progress end soon."""
        ...


@dataclass(frozen=True, slots=True)
class Batching:
    """most: the most requests that wait; batch: the most in one export; delay_s: between exports"""

    most: int = 2048
    batch: int = 512
    delay_s: float = 5.0


class SpanQueue:
    """The queue of one process. Its methods are called by the event loop.

    open_exporter: called in the thread, as imports and files take some time; it may raise
    """

    def __init__(self, open_exporter: Callable[[], Exporter], batching: Batching) -> None:
        self._open_exporter = open_exporter
        self._batching = batching
        self._waiting: deque[TracedRequest] = deque()
        #: Dropped by the event loop, as the queue was full; by the thread, as an export failed.
        #: Each is written by one of them only.
        self._overflowed = 0
        self._failed = 0
        #: Those of `_overflowed` that were logged.
        self._noted = 0
        self._exporter: Exporter | None = None
        self._wake = threading.Event()
        self._closing = False
        self._throttle = LogThrottle(LOG_EVERY_S)
        # A daemon: an export that hangs does not keep the process.
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Requests whose spans were dropped."""
        return self._overflowed + self._failed

    def add(self, request: TracedRequest) -> None:
        """Have its spans exported soon, unless the queue is full."""
        waiting = len(self._waiting)
        if waiting >= self._batching.most:
            self._overflowed += 1
            return
        self._waiting.append(request)
        if waiting + 1 == self._batching.batch:
            self._wake.set()

    def close(self) -> None:
        """Export what is left, for a few seconds at most; what then waits is dropped."""
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            if self._exporter is not None:
                self._exporter.stop()
            self._thread.join(GIVE_UP_S)
        self._overflowed += len(self._waiting)
        self._waiting.clear()

    # -- the thread -------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            exporter = self._exporter = self._open_exporter()
        except Exception as error:  # a library's, about a setting of the environment
            _log.error("traces cannot be exported: %s", error)
            exporter = _Broken()
        while not self._closing:
            self._wake.wait(self._batching.delay_s)
            self._wake.clear()
            self._export_all(exporter)
        self._export_all(exporter)

    def _export_all(self, exporter: Exporter) -> None:
        while batch := self._take():
            try:
                fault = exporter.export(batch)
            except Exception as error:
                fault = str(error) or type(error).__name__
            if fault is not None:
                self._failed += len(batch)
                self._note(len(batch), fault)
        if (more := self._overflowed - self._noted) > 0:
            self._noted += more
            self._note(more, "the collector is slower than requests come")

    def _take(self) -> list[TracedRequest]:
        taken: list[TracedRequest] = []
        with suppress(IndexError):  # empty, perhaps as `close` has just dropped the rest
            while len(taken) < self._batching.batch:
                taken.append(self._waiting.popleft())
        return taken

    def _note(self, count: int, fault: str) -> None:
        suppressed = self._throttle.suppressed("", time.monotonic())
        if suppressed is not None and fault:
            _log.warning("traces: dropped the spans of %d requests: %s", count, fault)


class _Broken:
    """In place of an exporter that could not be opened, which was logged."""

    def export(self, batch: Sequence[TracedRequest]) -> str:
        return ""

    def stop(self) -> None: ...
