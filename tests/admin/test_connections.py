"""Which connection of the admin listener is closed to make room for another."""

from __future__ import annotations

import pytest

from gateway.admin.connections import TABLE, Connections, Event, State


class FakeConnection:
    """A connection that only notes that it was closed."""

    def __init__(self) -> None:
        self.is_dropped = False
        self.state = State.WAITING

    def drop(self) -> None:
        self.is_dropped = True


def test_the_longest_waiting_connection_closes_first() -> None:
    """By the start of the current wait, not by age; none with a request in progress."""
    connections = Connections(3)
    one, two, three = known = [FakeConnection() for _ in range(3)]
    for connection in known:
        assert connections.make_room(0.0)
        connections.add(connection, "192.0.2.7")
    connections.step(one, Event.WORKS)
    connections.step(two, Event.WORKS)
    connections.step(one, Event.WAITS)
    for expected in ([three], [three, one]):
        assert connections.make_room(0.0)
        assert [each for each in known if each.is_dropped] == sorted(expected, key=known.index)
        connections.add(new := FakeConnection(), "192.0.2.7")
        connections.step(new, Event.WORKS)
    assert not connections.make_room(0.0)
    assert not two.is_dropped
    connections.step(two, Event.CLOSES)
    connections.step(two, Event.CLOSES)
    assert connections.make_room(0.0)


def test_the_address_with_the_most_connections_makes_room() -> None:
    """A flood from one address, or one IPv6 network, closes its own connections."""
    for flood in (["192.0.2.7"], ["2001:db8::1", "2001:db8::ffff:2"]):
        connections = Connections(4)
        probe, scraper, *crowd = [FakeConnection() for _ in range(50)]
        connections.add(probe, "198.51.100.1")
        connections.add(scraper, "2001:db8:1::1")
        for number, connection in enumerate(crowd):
            assert connections.make_room(0.0)
            connections.add(connection, flood[number % len(flood)])
            assert len(connections) <= 4
        assert [each.is_dropped for each in (probe, scraper)] == [False, False]
        assert [each.is_dropped for each in crowd] == [True] * 46 + [False] * 2


@pytest.mark.parametrize(
    ("state", "works", "waits"),
    [
        (State.WAITING, State.WORKING, None),
        (State.WORKING, None, State.WAITING),
        (State.CLOSED, State.CLOSED, State.CLOSED),
    ],
)
def test_states(state: State, works: State | None, waits: State | None) -> None:
    """A handler works and waits alternately; after its connection is closed, neither has effect."""
    assert TABLE.get((state, Event.WORKS)) is works
    assert TABLE.get((state, Event.WAITS)) is waits
    assert TABLE[state, Event.CLOSES] is State.CLOSED


def test_closed_connections_do_not_count() -> None:
    """Whatever its handler still does, and however often it is closed."""
    connections = Connections(1)
    connections.add(one := FakeConnection(), "192.0.2.7")
    for event in (Event.WORKS, Event.CLOSES, Event.WAITS, Event.WORKS, Event.CLOSES):
        connections.step(one, event)
    assert len(connections) == 0
    connections.add(other := FakeConnection(), "192.0.2.7")
    assert connections.make_room(0.0)
    assert (one.is_dropped, other.is_dropped) == (False, True)
