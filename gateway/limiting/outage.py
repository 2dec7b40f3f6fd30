"""The states of a store outage, as one worker sees it: one table of states and events.

    NORMAL       the store alone decides
    OUTAGE       the store did not answer when it was last asked
    RECONCILING  the store answers again; admissions that it does not know of are written back
    STABILIZING     everything is written back; the store decides together with the worker's share
    CLOSED       the limiter was closed; nothing is tried any more

An event that is not in the table cannot happen in that state.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class State(Enum):
    """What the store is to this worker at the moment."""

    NORMAL = auto()
    OUTAGE = auto()
    RECONCILING = auto()
    STABILIZING = auto()
    CLOSED = auto()


class Event(Enum):
    """What happens to it."""

    UNANSWERED = "a check or a write-back was not answered"
    ANSWERED = "a probe or a write-back was answered"
    CONNECTED = "the connection to the store is up"
    RECONCILED = "nothing is owed to the store any more"
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
