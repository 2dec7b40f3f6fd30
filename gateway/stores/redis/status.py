"""Whether the store is available: one state, metric and log line for all connections to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

from gateway.domain.ports import StoreDown
from gateway.observe.metrics import Metrics
from gateway.stores.redis.reasons import with_cure

_log = logging.getLogger("gateway")

#: The most reasons that are logged in one outage.
_MOST_TOLD: Final = 16


class Part(Protocol):
    """A connection, or an object that has one: it is up or down, and reports changes."""

    on_up: list[Callable[[], None]]
    on_down: list[Callable[[StoreDown], None]]
    on_failed: list[Callable[[StoreDown], None]]

    @property
    def is_up(self) -> bool: ...


class State(Enum):
    """Whether the store is available."""

    CONNECTING = auto()  # it has not been up yet
    UP = auto()
    DOWN = auto()


class StoreStatus:
    """Up while all parts are. Changes are logged, and in an outage each new reason once.

    label:   the store's name in the log, without credentials
    parts:   by what they are for: {"limits": …, "keys": …}
    down_s:  since when it has been down, by `clock`; None: it is up
    """

    def __init__(
        self,
        label: str,
        parts: Mapping[str, Part],
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.down_s: float | None = clock()
        self._label = label
        self._parts = parts
        self._metrics = metrics
        self._clock = clock
        self._state = State.CONNECTING
        #: Of each part: why it was lost, or why it could not be connected last.
        self._reasons: dict[str, str] = {}
        #: The reasons of this outage that are in the log; None: none may be, as nobody waits yet.
        self._told: set[str] | None = None
        self._removals: list[Callable[[], None]] = []
        for name, part in parts.items():
            self._listen(part.on_up, self._part_up)
            self._listen(part.on_down, partial(self._part_down, name))
            self._listen(part.on_failed, partial(self._part_failed, name))

    @property
    def is_up(self) -> bool:
        return self._state is State.UP

    @property
    def was_up(self) -> bool:
        """Has it been up at any time?"""
        return self._state is not State.CONNECTING

    @property
    def reasons(self) -> dict[str, str]:
        """Of each part that is down, why, with what to do about it."""
        return {
            name: self._reasons.get(name, _NOT_YET)
            for name, part in self._parts.items()
            if not part.is_up
        }

    @property
    def reason(self) -> str:
        """Why it is down: "keys: REASON; limits: REASON"."""
        reasons = self.reasons
        common = set(reasons.values())
        if len(common) == 1 and len(reasons) == len(self._parts):
            return common.pop()
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())

    def tell(self) -> None:
        """Log why it is not up yet; and from now on each new reason."""
        self._told = set(self._reasons.values())
        _log.warning("store unavailable: %s: %s", self._label, self.reason)

    def close(self) -> None:
        """Stop listening: the gateway is going to close the connections itself."""
        while self._removals:
            self._removals.pop()()

    def _listen(self, listeners: list[Callable[..., None]], listener: Callable[..., None]) -> None:
        listeners.append(listener)
        self._removals.append(partial(listeners.remove, listener))

    def _part_up(self) -> None:
        if self._state is State.UP or not all(part.is_up for part in self._parts.values()):
            return
        if self.down_s is not None and self._state is State.DOWN:
            _log.info(
                "store connected again: %s, after %.1f s", self._label, self._clock() - self.down_s
            )
        else:
            _log.info("store connected: %s", self._label)
        self._state, self.down_s = State.UP, None
        self._metrics.store_up = True

    def _part_down(self, name: str, error: StoreDown) -> None:
        reason = self._reasons[name] = with_cure(error)
        if self._state is not State.UP:
            return
        self._state, self.down_s, self._told = State.DOWN, self._clock(), {reason}
        self._metrics.store_up = False
        _log.error("store unavailable: %s: %s", self._label, reason)

    def _part_failed(self, name: str, error: StoreDown) -> None:
        reason = self._reasons[name] = with_cure(error)
        told = self._told
        if told is not None and reason not in told and len(told) < _MOST_TOLD:
            told.add(reason)
            _log.error("store still unavailable: %s: %s: %s", self._label, name, reason)


#: Why a part is not up, before an attempt has failed.
_NOT_YET: Final = "not connected yet"
