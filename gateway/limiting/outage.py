"""The states of a store outage, as one worker sees it: one table of states and events.

    NORMAL       only the store decides
    OUTAGE       the store did not answer the last check
    RECONCILING  the store answers again; admissions that it does not know of are written back
    STABILIZING  everything is written back; the store and the worker's share decide together
    CLOSED       the limiter was closed; the store is no longer probed

An event that is not in the table cannot happen in that state.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class State(Enum):
    """How this worker sees the store."""

    NORMAL = auto()
    OUTAGE = auto()
    RECONCILING = auto()
    STABILIZING = auto()
    CLOSED = auto()


class Event(Enum):
    """What changes the state."""

    UNANSWERED = "a check or a write-back was not answered"
    ANSWERED = "a probe or a write-back was answered"
    CONNECTED = "the connection to the store is up"
    RECONCILED = "nothing is owed to the store"
    STABILIZED = "the stabilization time is over"
    CLOSED = "the limiter is closed"


TABLE: Final[dict[tuple[State, Event], State]] = {
    (State.NORMAL, Event.UNANSWERED): State.OUTAGE,
    (State.NORMAL, Event.ANSWERED): State.NORMAL,  # a probe, answered late
    (State.NORMAL, Event.CONNECTED): State.RECONCILING,
    (State.NORMAL, Event.CLOSED): State.CLOSED,
    (State.OUTAGE, Event.UNANSWERED): State.OUTAGE,
    (State.OUTAGE, Event.ANSWERED): State.RECONCILING,
    (State.OUTAGE, Event.CONNECTED): State.RECONCILING,
    (State.OUTAGE, Event.CLOSED): State.CLOSED,
    (State.RECONCILING, Event.UNANSWERED): State.OUTAGE,
    (State.RECONCILING, Event.ANSWERED): State.RECONCILING,
    (State.RECONCILING, Event.CONNECTED): State.RECONCILING,
    (State.RECONCILING, Event.RECONCILED): State.STABILIZING,
    (State.RECONCILING, Event.CLOSED): State.CLOSED,
    (State.STABILIZING, Event.UNANSWERED): State.OUTAGE,
    (State.STABILIZING, Event.ANSWERED): State.STABILIZING,
    (State.STABILIZING, Event.CONNECTED): State.RECONCILING,
    (State.STABILIZING, Event.STABILIZED): State.NORMAL,
    (State.STABILIZING, Event.CLOSED): State.CLOSED,
    (State.CLOSED, Event.UNANSWERED): State.CLOSED,
    (State.CLOSED, Event.ANSWERED): State.CLOSED,
    (State.CLOSED, Event.CONNECTED): State.CLOSED,
    (State.CLOSED, Event.CLOSED): State.CLOSED,
}
