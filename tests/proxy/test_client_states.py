"""The states of a client connection: every state, every event, and the table's answer."""

from __future__ import annotations

from itertools import product

import pytest

from gateway.http1.phases import IllegalStep
from gateway.proxy.client_states import STATES, TABLE, Event, PauseReason, State, steps

EVENTS = {name: value for name, value in vars(Event).items() if name.isupper()}
NUMBERS = {name: value for name, value in vars(State).items() if name.isupper()}


def test_names_and_numbers_agree() -> None:
    """A state's number is its index in the list of names."""
    assert [NUMBERS[name] for name in STATES] == list(range(len(STATES)))
    assert len(NUMBERS) == len(STATES)


@pytest.mark.parametrize(("name", "event"), list(product(STATES, EVENTS)))
def test_every_step(name: str, event: str) -> None:
    """The table's steps are allowed; any other raises."""
    state, step = NUMBERS[name], steps(EVENTS[event])
    if (state, EVENTS[event]) in TABLE:
        assert step[state] == TABLE[state, EVENTS[event]]
    else:
        with pytest.raises(IllegalStep, match=f"a client connection in phase {name}"):
            step[state]


def test_every_state_can_be_reached_and_left() -> None:
    """All are reached from READY; only CLOSED is never left."""
    reached, more = set(), {State.READY}
    while more:
        reached |= more
        more = {after for (before, _), after in TABLE.items() if before in reached} - reached
    assert reached == set(NUMBERS.values())
    left = {before for (before, _), after in TABLE.items() if before != after}
    assert left == reached - {State.CLOSED}


def test_reasons_are_bits() -> None:
    """Several can hold together, and each is removed separately."""
    reasons = [value for name, value in vars(PauseReason).items() if name.isupper()]
    assert sum(reasons) == 2 ** len(reasons) - 1
