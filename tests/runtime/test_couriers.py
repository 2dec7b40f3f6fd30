"""Couriers run beside the workers: a gateway starts without them, and they are tried again."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.domain.policy import Policy
from gateway.policies.load import load
from gateway.runtime.channel import Start
from gateway.runtime.couriers import COURIERS, RESTARTS, Couriers
from gateway.runtime.settings import Settings
from gateway.runtime.sockets import bind_shared, close_all
from tests.kit.eventually import eventually
from tests.kit.policies import write_policies


class Scene:
    """Couriers that are fake workers."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        policies = write_policies(folder / "policies", "http://127.0.0.1:9")
        self._start = Start(Settings(policies), (), load(policies), None, "info", role="courier")
        self._stack = stack
        self.loaded: list[Policy] = []

    def run(self, how: str, count: int = 1) -> Couriers:
        command = (sys.executable, "-m", "tests.runtime.fake_worker", how)
        couriers = Couriers(
            count, command, lambda _: self._start, lambda policy, _: self.loaded.append(policy)
        )
        sockets = bind_shared("127.0.0.1", 0)
        self._stack.callback(close_all, (sockets,))
        couriers.start(self._stack, sockets)
        return couriers


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        yield Scene(tmp_path, stack)


def values(couriers: Couriers) -> dict[str, object]:
    return {series.family.name: series.values for series in couriers.snapshot().series}


async def test_they_serve(scene: Scene) -> None:
    """Started in the background; metrics and the probe's words tell how many serve."""
    couriers = scene.run("serve", 2)
    assert couriers.words == "0 of 2"
    await eventually(lambda: couriers.serving == 2, "both serve")
    assert couriers.words == "2 of 2"
    assert len(couriers.pids()) == 2
    assert values(couriers)[COURIERS.name] == {("live",): (2,), ("wanted",): (2,)}
    assert values(couriers)[RESTARTS.name] == {(): (0,)}


async def test_one_that_cannot_start(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again, and nothing else ends for it."""
    couriers = scene.run("refuse")
    await eventually(lambda: couriers.restarts >= 1, "it is tried again")
    assert couriers.serving == 0
    assert "courier 0" in caplog.text
    assert "--store: nobody is there" in caplog.text
