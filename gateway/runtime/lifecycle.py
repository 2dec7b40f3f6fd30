"""The lifecycle of a gateway: its states and the transitions between them.

OPENING   starting: not everything is open; readiness fails, so a load balancer sends no requests
SERVING   accepting clients
DRAINING  stopping: no new clients are accepted; requests in progress are finished
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """The state of a gateway. value: what a readiness probe reports about its listener"""

    OPENING = "not open yet"
    SERVING = "ok"
    DRAINING = "draining"


class Event(Enum):
    """What happens to a gateway."""

    OPENED = "everything is open"
    STOPPED = "it was stopped"


TABLE: Final = {
    (State.OPENING, Event.OPENED): State.SERVING,
    (State.OPENING, Event.STOPPED): State.DRAINING,
    (State.SERVING, Event.STOPPED): State.DRAINING,
    # `stop` may be repeated.
    (State.DRAINING, Event.STOPPED): State.DRAINING,
}


def step(state: State, event: Event) -> State:
    """The next state. Raises ValueError if the table has none."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise ValueError(f"no transition from {state.name}: {event.value}") from None
