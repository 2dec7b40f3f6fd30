"""The table of an exchange's phases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from gateway.http1.phases import PHASES, TABLE, Event, IllegalStep, Phase, Steps


def test_a_plain_exchange() -> None:
    """Admitted, connected, responded, completed."""
    phase: int = Phase.JUDGING
    for event in (Event.ADMITTED, Event.CONNECTED, Event.RESPONDED, Event.COMPLETED):
        phase = Steps(event)[phase]
    assert phase == Phase.OVER


def test_a_decision_that_needs_the_body() -> None:
    """The body is read in between, and cannot be needed or read at another time."""
    needed, read = Steps(Event.BODY_NEEDED), Steps(Event.BODY_READ)
    assert read[needed[Phase.JUDGING]] == Phase.JUDGING
    assert (len(needed), len(read)) == (1, 1)
    assert Phase.READING < Phase.WAITING  # as long as body bytes are kept


def test_nothing_happens_after_the_end() -> None:
    """No event leads on from OVER: an exchange is accounted for once."""
    assert not [event for phase, event in TABLE if phase == Phase.OVER]


def test_no_answer_twice() -> None:
    """After an answer's head was sent there is no other answer, and no second attempt."""
    for phase, event in product(
        (Phase.RELAYING, Phase.TUNNEL), (Event.ANSWERED, Event.RESENT, Event.RESPONDED)
    ):
        with pytest.raises(IllegalStep, match=f"{PHASES[phase]}: {event}"):
            Steps(event)[phase]


def test_every_phase_has_a_way_in_and_out() -> None:
    """Each phase can be reached, and leads to the end."""
    everywhere = set(range(len(PHASES)))
    assert set(TABLE.values()) | {Phase.JUDGING} == everywhere

    def leads_on(phase: int, seen: frozenset[int] = frozenset()) -> Iterator[int]:
        for (before, _), after in TABLE.items():
            if before == phase and after not in seen:
                yield after
                yield from leads_on(after, seen | {after})

    assert all(Phase.OVER in leads_on(phase) for phase in everywhere - {Phase.OVER})
    assert [getattr(Phase, name) for name in PHASES] == sorted(everywhere)
