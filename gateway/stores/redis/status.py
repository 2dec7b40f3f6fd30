"""Whether the store is available: one state, metric and log line for all connections to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol

from gateway.domain.ports import StoreDown
from gateway.observe.metrics import Metrics

_log = logging.getLogger("gateway")


class Part(Protocol):
    """A connection, or an object that has one: it is up or down, and reports changes."""

    on_up: list[Callable[[], None]]
    on_down: list[Callable[[StoreDown], None]]

    @property
    def is_up(self) -> bool: ...


class State(Enum):
    """Whether the store is available."""

    CONNECTING = auto()  # it has not been up yet
    UP = auto()
    DOWN = auto()


class StoreStatus:
    """Up while all parts are. Only changes are logged, not attempts to connect.

    label:   the store's name in the log, without credentials
    reason:  why it was lost last; None: it was never lost
    down_s:  since when it has been down, by `clock`; None: it is up
    """

    def __init__(
        self,
        label: str,
        parts: Sequence[Part],
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.reason: StoreDown | None = None
        self.down_s: float | None = clock()
        self._label = label
        self._parts = parts
        self._metrics = metrics
        self._clock = clock
        self._state = State.CONNECTING
        for part in parts:
            part.on_up.append(self._part_up)
            part.on_down.append(self._part_down)

    @property
    def is_up(self) -> bool:
        return self._state is State.UP

    @property
    def was_up(self) -> bool:
        """Has it been up at any time?"""
        return self._state is not State.CONNECTING

    def close(self) -> None:
        """Stop listening: the gateway is going to close the connections itself."""
        for part in self._parts:
            part.on_up.remove(self._part_up)
            part.on_down.remove(self._part_down)

    def _part_up(self) -> None:
        if self._state is State.UP or not all(part.is_up for part in self._parts):
            return
        if self.down_s is not None and self._state is State.DOWN:
            _log.info(
                "store connected again: %s, after %.1f s", self._label, self._clock() - self.down_s
            )
        else:
            _log.info("store connected: %s", self._label)
        self._state, self.down_s = State.UP, None
        self._metrics.store_up = True

    def _part_down(self, error: StoreDown) -> None:
        if self._state is not State.UP:
            return
        self._state, self.reason, self.down_s = State.DOWN, error, self._clock()
        self._metrics.store_up = False
        _log.error("store unavailable: %s: %s", self._label, error)
