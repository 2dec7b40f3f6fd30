"""The order in which connections with pipelined requests are served."""

from __future__ import annotations

import pytest

from gateway.proxy import backlog
from gateway.proxy.backlog import LONG_TURN_S, MOST_IN_A_ROW, TURN_S, Backlog
from tests.kit.loops import ManualLoop


class Clock:
    """Advances by the time that the connections' requests take."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Ahead:
    """A connection with a number of pipelined requests, each of which takes a time."""

    def __init__(self, name: str, requests: int, clock: Clock, each_s: float, log: list[str]):
        self.name, self.left, self._clock, self._each_s, self._log = (
            *(name, requests, clock, each_s),
            log,
        )

    def serve_queued(self, most: int) -> bool:
        for _ in range(min(most, self.left)):
            self.left -= 1
            self._clock.now_s += self._each_s
            self._log.append(self.name)
        return self.left > 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(backlog, "perf_counter", clock)
    return clock


@pytest.mark.parametrize("connections", [1, 6, 500])
def test_a_turn_is_bounded(clock: Clock, connections: int) -> None:
    """A turn ends however many requests wait; all are served in the end."""
    loop, log = ManualLoop(), list[str]()
    waiting = Backlog(loop)  # type: ignore[arg-type]
    each_s = TURN_S / 50
    for at in range(connections):
        waiting.add(Ahead(f"{at}", 40, clock, each_s, log))
    turns = 0
    while True:
        before = clock.now_s
        if not loop.run():
            break
        turns += 1
        assert clock.now_s - before <= TURN_S + MOST_IN_A_ROW * each_s
    assert len(log) == connections * 40
    assert turns >= connections * 40 // (50 + MOST_IN_A_ROW)


def test_all_have_their_turn(clock: Clock) -> None:
    """No connection is served twice before each was served once."""
    loop, log = ManualLoop(), list[str]()
    waiting = Backlog(loop)  # type: ignore[arg-type]
    for name in "abc":
        waiting.add(Ahead(name, MOST_IN_A_ROW + 1, clock, 0.0, log))
    loop.run()
    assert log == [name for name in "abc" for _ in range(MOST_IN_A_ROW)]
    loop.run()
    assert log[-3:] == ["a", "b", "c"]
    assert loop.run() == 0


def test_slow_requests(clock: Clock) -> None:
    """If one connection uses up a turn, the next turn is another's."""
    loop, log = ManualLoop(), list[str]()
    waiting = Backlog(loop)  # type: ignore[arg-type]
    for name in "ab":
        waiting.add(Ahead(name, MOST_IN_A_ROW * 2, clock, TURN_S, log))
    for _ in range(4):
        assert loop.run() == 1
    assert "".join(log) == "".join(name * MOST_IN_A_ROW for name in "abab")
    assert loop.run() == 0


def test_a_connection_added_during_a_turn(clock: Clock) -> None:
    """A connection that is added during a turn is served in the next one, once."""
    loop, log = ManualLoop(), list[str]()
    waiting = Backlog(loop)  # type: ignore[arg-type]
    late = Ahead("late", 1, clock, 0.0, log)

    class Joins(Ahead):
        def serve_queued(self, most: int) -> bool:
            waiting.add(late)
            return super().serve_queued(most)

    waiting.add(Joins("first", 1, clock, 0.0, log))
    assert loop.run() == 1
    assert log == ["first"]
    assert loop.run() == 1
    assert log == ["first", "late"]
    assert loop.run() == 0


def test_a_long_turn_is_followed_by_a_pause(clock: Clock) -> None:
    """In a backlog that rests, the next turn begins when as much time has passed as the last took,
    also for what is added meanwhile. A turn that was not long is followed by no pause.
    """
    loop, log = ManualLoop(), list[str]()
    waiting = Backlog(loop, rests=True)  # type: ignore[arg-type]

    class Joined(Ahead):
        def serve_queued(self, most: int) -> bool:
            waiting.add(Ahead("a", 1, clock, TURN_S / 2, log))
            return super().serve_queued(most)

    waiting.add(Joined("long", 1, clock, LONG_TURN_S * 3, log))
    assert loop.run_all() == 1
    waiting.add(Ahead("b", 1, clock, TURN_S / 4, log))
    assert loop.run_all() == 0
    loop.advance(LONG_TURN_S * 2.9)
    assert (loop.run_all(), log) == (0, ["long"])
    loop.advance(LONG_TURN_S * 0.2)
    assert log == ["long", "a", "b"]
    assert (loop.run_all(), loop.has_timers) == (0, False)
