"""The table of an outage's states."""

from __future__ import annotations

from itertools import product

from gateway.limiting.outage import TABLE, Event, State
from tests.kit.rows import each_row

N, O, R, S, C = State  # noqa: E741 # as the columns below

#: One row per event, one column per state: the next state; None: it cannot happen.
ROWS: list[tuple[Event, tuple[State | None, ...]]] = [
    # event             NORMAL OUTAGE RECONCILING STABILIZING CLOSED
    (Event.UNANSWERED, (O, O, O, O, C)),
    (Event.ANSWERED, (N, R, R, S, C)),
    (Event.CONNECTED, (R, R, R, R, C)),
    (Event.RECONCILED, (None, None, S, None, None)),
    (Event.STABILIZED, (None, None, None, N, None)),
    (Event.CLOSED, (C, C, C, C, C)),
]


@each_row(("event", "after"), ROWS)
def test_the_next_state(event: Event, after: tuple[State | None, ...]) -> None:
    """The next state from each state; none if the event cannot happen there."""
    assert tuple(TABLE.get((state, event)) for state in State) == after


def test_every_event_is_listed() -> None:
    """ROWS has every event, so that a new one is considered for each state."""
    assert {event for event, _ in ROWS} == set(Event)


def test_an_outage() -> None:
    """The usual course: unanswered, answered again, written back, stable."""
    state = State.NORMAL
    seen = []
    for event in (Event.UNANSWERED, Event.ANSWERED, Event.RECONCILED, Event.STABILIZED):
        state = TABLE[state, event]
        seen.append(state)
    assert seen == [State.OUTAGE, State.RECONCILING, State.STABILIZING, State.NORMAL]


def test_outside_events_can_happen_in_any_state() -> None:
    """Replies, missing replies, connections and the close can happen in any state."""
    outside = (Event.UNANSWERED, Event.ANSWERED, Event.CONNECTED, Event.CLOSED)
    assert all((state, event) in TABLE for state, event in product(State, outside))


def test_closed_is_final() -> None:
    """A limiter that was closed stays closed."""
    assert {after for (before, _), after in TABLE.items() if before is State.CLOSED} == {
        State.CLOSED
    }
