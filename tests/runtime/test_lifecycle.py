"""A gateway opens, serves and drains, and never goes back to an earlier state."""

from __future__ import annotations

import pytest

from gateway.runtime.lifecycle import Event, State, step


@pytest.mark.parametrize(
    ("state", "opened", "stopped"),
    [
        (State.OPENING, State.SERVING, State.DRAINING),
        (State.SERVING, None, State.DRAINING),
        (State.DRAINING, None, State.DRAINING),
    ],
)
def test_states(state: State, opened: State | None, stopped: State) -> None:
    """A stopped one stays stopped, even if it is stopped again; nothing opens twice."""
    assert step(state, Event.STOPPED) is stopped
    if opened is not None:
        assert step(state, Event.OPENED) is opened
        return
    with pytest.raises(ValueError, match=f"no transition from {state.name}: everything is open"):
        step(state, Event.OPENED)
