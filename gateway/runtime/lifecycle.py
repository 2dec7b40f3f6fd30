"""The life of a gateway: one table of states and what leads from one to the next.

OPENING   it starts: not everything is open, and a load balancer sends no requests yet
SERVING   clients are accepted
DRAINING  it ends: no client is accepted any more, requests in progress are finished
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """Where a gateway stands. value: what a readiness probe reports of its listener"""

    OPENING = "not open yet"
    SERVING = "ok"
    DRAINING = "draining"


class Event(Enum):
    """What happens to a gateway."""

    OPENED = "all is open"
    STOPPED = "it was told to stop"


TABLE: Final = {
    (State.OPENING, Event.OPENED): State.SERVING,
    (State.OPENING, Event.STOPPED): State.DRAINING,
    (State.SERVING, Event.STOPPED): State.DRAINING,
    # `stop` may be repeated.
    (State.DRAINING, Event.STOPPED): State.DRAINING,
}


def step(state: State, event: Event) -> State:
    """The next state. Raises ValueError where the table has none."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise ValueError(f"of a gateway in state {state.name}: {event.value}") from None
