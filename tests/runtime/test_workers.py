"""Requests to the workers, without processes: slots that answer when the test permits."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from gateway.admin.readiness import Readiness
from gateway.observe.exposition import render
from gateway.observe.metrics import Metrics
from gateway.runtime.channel import Adopt, Release, Report
from gateway.runtime.worker_slot import SlotState
from gateway.runtime.workers import Workers
from tests.kit.loops import run_ready


class FakeSlot:
    """A slot whose worker answers when the test permits."""

    def __init__(self) -> None:
        self.index, self.pid, self.restarts = 0, None, 0
        self.state, self.is_silent = SlotState.SERVING, False
        self.sent: list[object] = []
        self.report = Report(Metrics("1").snapshot(), Readiness(True, {"store": "ok"}), 0.0)
        self.asked: list[asyncio.Future[None]] = []

    @property
    def is_serving(self) -> bool:
        return self.state is SlotState.SERVING

    def send(self, message: object) -> None:
        self.sent.append(message)

    def request_report(self) -> asyncio.Future[None]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


@pytest.fixture
def slot() -> FakeSlot:
    return FakeSlot()


@pytest.fixture
async def workers(slot: FakeSlot) -> Workers:
    return over(slot)


def over(*slots: FakeSlot) -> Workers:
    """Workers in these slots."""
    workers = Workers(len(slots), (), _never, _never)
    workers._slots = list(slots)  # type: ignore[arg-type]
    return workers


def _never(_: object) -> NoReturn:
    raise AssertionError


async def collected(workers: Workers) -> Readiness:
    """What a probe does."""
    await workers.collect()
    return workers.readiness()


async def test_many_scrapes_share_a_request(
    workers: Workers, slot: FakeSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer for the first, and one for all that came while it was awaited."""
    monkeypatch.setattr("gateway.runtime.slot_group.REPORT_TIMEOUT_S", 60.0)
    scrapes = [asyncio.gather(collected(workers))]
    await run_ready()
    scrapes += [asyncio.gather(collected(workers)) for _ in range(50)]
    await run_ready()
    assert len(slot.asked) == 1
    slot.asked[0].set_result(None)
    await run_ready()
    assert [scrape.done() for scrape in scrapes] == [True] + [False] * 50
    assert len(slot.asked) == 2
    slot.asked[1].set_result(None)
    assert all(found[0].ready for found in await asyncio.gather(*scrapes))
    assert len(slot.asked) == 2


async def test_a_cancelled_wait_does_not_cancel_others(
    workers: Workers, slot: FakeSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prober that hangs up does not end the request for the others."""
    monkeypatch.setattr("gateway.runtime.slot_group.REPORT_TIMEOUT_S", 60.0)
    one, other = (asyncio.gather(collected(workers)) for _ in range(2))
    await run_ready()
    one.cancel()
    await run_ready()
    slot.asked[0].set_result(None)
    assert (await other)[0].ready


async def test_the_report_of_a_worker_that_does_not_answer(
    workers: Workers, slot: FakeSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last report is used for a moment; after that, it is not included."""
    monkeypatch.setattr("gateway.runtime.slot_group.REPORT_TIMEOUT_S", 0.0)
    found = await collected(workers)
    assert (found.ready, found.checks["workers"]) == (True, "1 of 1")
    slot.is_silent = True
    found = await collected(workers)
    assert (found.ready, found.checks["workers"]) == (False, "0 of 1")
    text, _ = render(workers.snapshot(), "", [])
    assert b'gateway_workers{state="live"} 0.0' in text


def test_another_worker_stands_in() -> None:
    """For a lost or silent worker, until the next one serves; without others, there is none."""
    one, other = FakeSlot(), FakeSlot()
    one.index, other.index = 0, 1
    workers = over(one, other)
    workers._assign_stand_ins()
    assert (one.sent, other.sent) == ([], [])
    one.state = SlotState.LOST
    workers._assign_stand_ins()
    workers._assign_stand_ins()
    assert (one.sent, other.sent) == ([], [Adopt(0)])
    one.state = SlotState.SERVING
    workers._assign_stand_ins()
    assert (one.sent, other.sent) == ([], [Adopt(0), Release(0)])
    other.is_silent = True
    workers._assign_stand_ins()
    assert one.sent == [Adopt(1)]
    one.state = SlotState.LOST
    workers._assign_stand_ins()
    assert one.sent == [Adopt(1), Release(1)]


async def test_no_stand_in_during_a_drain() -> None:
    """The clients of workers that drain one after another are not passed on."""
    one, other = FakeSlot(), FakeSlot()
    one.index, other.index = 0, 1
    workers = over(one, other)
    workers._stopping = True
    one.state = SlotState.LOST
    workers._assign_stand_ins()
    assert (one.sent, other.sent) == ([], [])
