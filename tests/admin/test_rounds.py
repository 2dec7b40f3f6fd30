"""Answers that are made once for all waiting requests, and never before a request."""

from __future__ import annotations

import asyncio

import pytest

from gateway.admin import rounds
from gateway.admin.rounds import Rounds


class Maker:
    """Makes numbered answers, each when the test permits."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.gate = asyncio.Event()

    async def make(self, kind: str) -> str:
        self.made.append(kind)
        number = len(self.made)
        await self.gate.wait()
        return f"{kind}{number}"


@pytest.fixture
def maker() -> Maker:
    return Maker()


async def turns(count: int = 10) -> None:
    """Run everything that is ready."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future


async def test_concurrent_requests_share_an_answer(maker: Maker, delays: list[float]) -> None:
    """A thousand cost two answers: one in progress, and one made after they arrived."""
    asked = Rounds(maker.make)
    first = asyncio.ensure_future(asked.get("a"))
    await turns()
    others = [asyncio.ensure_future(asked.get("a")) for _ in range(1_000)]
    await turns()
    assert maker.made == ["a"]
    maker.gate.set()
    assert await first == "a1"
    assert {await one for one in others} == {"a2"}


async def test_an_answer_is_made_after_its_request(maker: Maker, delays: list[float]) -> None:
    """No request gets an answer that was begun before it."""
    maker.gate.set()
    asked = Rounds(maker.make)
    assert [await asked.get("a") for _ in range(3)] == ["a1", "a2", "a3"]


async def test_each_kind_is_made(maker: Maker, delays: list[float]) -> None:
    """Once a round."""
    maker.gate.set()
    asked = Rounds(maker.make)
    answers = await asyncio.gather(*(asked.get(kind) for kind in "abab"))
    assert answers == ["a1", "b2", "a1", "b2"]


async def test_rounds_take_a_tenth_of_the_time(
    delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a pause nine times as long as a round, and at most a second."""
    now_s = 0.0

    async def make(cost_s: float) -> None:
        nonlocal now_s
        now_s += cost_s

    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    asked = Rounds(make)
    for cost_s in (0.002, 0.5):
        await asked.get(cost_s)
        await turns()
    assert delays == pytest.approx([0.018, 1.0])


async def test_a_long_pause_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request during the last round or the pause gets that round's answer; then it is made anew.

    A round that failed leaves no answer.
    """
    now_s, made, pause, sleep = 0.0, 0, asyncio.Event(), asyncio.sleep
    gate = asyncio.Event()

    async def make(kind: str) -> str:
        nonlocal now_s, made
        await gate.wait()
        now_s += 0.01
        made += 1
        if kind == "broken":
            raise RuntimeError("broken pump")
        return f"{kind}{made}"

    async def rest(_rest_s: float) -> None:
        await pause.wait()

    monkeypatch.setattr(rounds.asyncio, "sleep", rest)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    asked = Rounds(make, stale_after_s=0.05)
    first, broken = (asyncio.ensure_future(asked.get(kind)) for kind in ("a", "broken"))
    await turns()
    second = asyncio.ensure_future(asked.get("a"))
    await turns()
    gate.set()
    assert [await first, await second, await asked.get("a")] == ["a1"] * 3
    with pytest.raises(RuntimeError):
        await broken
    later = asyncio.ensure_future(asked.get("broken"))
    await turns()
    assert not later.done()
    pause.set()
    with pytest.raises(RuntimeError):
        await later
    monkeypatch.setattr(rounds.asyncio, "sleep", sleep)
    assert await asked.get("a") == "a4"


async def test_a_failure_is_shared(delays: list[float]) -> None:
    """By the waiting requests for that kind; later ones and other kinds are not affected."""
    fails = True

    async def make(kind: str) -> str:
        if fails and kind == "a":
            raise RuntimeError("broken pump")
        return kind

    asked = Rounds(make)
    answers = await asyncio.gather(*(asked.get(kind) for kind in "aab"), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["broken pump", "broken pump", "b"]
    fails = False
    assert await asked.get("a") == "a"


async def test_a_closed_client_takes_nothing_from_others(maker: Maker, delays: list[float]) -> None:
    """If a client closes while an answer is made, the others that wait still get it."""
    asked = Rounds(maker.make)
    closed, stays = (asyncio.ensure_future(asked.get("a")) for _ in range(2))
    await turns()
    closed.cancel()
    await turns()
    maker.gate.set()
    assert await stays == "a1"
