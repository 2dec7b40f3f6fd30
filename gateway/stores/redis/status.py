"""Whether the store can be asked: one word, and one line in the log, for all links to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.domain.ports import StoreDown
from gateway.observe.metrics import Metrics

_log = logging.getLogger("gateway")


class Part(Protocol):
    """What is up or not, and tells when that changes: a link, or what is made of one."""

    on_up: list[Callable[[], None]]
    on_down: list[Callable[[StoreDown], None]]

    @property
    def is_up(self) -> bool: ...


class Condition:
    """Up while all parts are. Attempts are told to nobody; only what changes is.

    label:   how the store is called in the log, without credentials
    was_up:  it was up at some time
    reason:  why it was last lost; None: never
    down_s:  since when it has been down, by `clock`; None: it is up
    """

    def __init__(
        self,
        label: str,
        parts: Sequence[Part],
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.was_up = False
        self.reason: StoreDown | None = None
        self.down_s: float | None = clock()
        self._label = label
        self._parts = parts
        self._metrics = metrics
        self._clock = clock
        self._closing = False
        for part in parts:
            part.on_up.append(self._part_up)
            part.on_down.append(self._part_down)

    @property
    def is_up(self) -> bool:
        return self.down_s is None

    def close(self) -> None:
        """From here on it is us who hang up, which is no news."""
        self._closing = True

    def _part_up(self) -> None:
        if self.down_s is None or not all(part.is_up for part in self._parts):
            return
        if self.was_up:
            _log.info("store %s: back after %.1f s", self._label, self._clock() - self.down_s)
        else:
            _log.info("store %s: connected", self._label)
        self.was_up, self.down_s = True, None
        self._metrics.store_up = True

    def _part_down(self, error: StoreDown) -> None:
        if self.down_s is not None or self._closing:
            return
        self.reason, self.down_s = error, self._clock()
        self._metrics.store_up = False
        _log.error("store %s: lost: %s", self._label, error)
