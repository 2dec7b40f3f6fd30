"""Recording loaded policies: one log line for each change, and the history in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway import tasks
from gateway.domain.keys import KeyRecord
from gateway.domain.policy import Policy, with_kept_plans
from gateway.domain.ports import KeyFilter, StoreDown
from gateway.manage.policy_history import PolicyHistory
from gateway.policies.load import load
from gateway.runtime.policy_recorder import MOST_WAITING, PolicyRecorder
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.keys.memory import MemoryKeyStore
from gateway.stores.policies.memory import MemoryPolicyStore
from tests.kit.eventually import eventually
from tests.policies.folder import PLANS, write
from tests.suites.keys import plain_key


class Store(MemoryPolicyStore):
    """A store that may be unavailable."""

    is_down = False
    tries = 0

    async def add(self, load, texts):
        self.tries += 1
        if self.is_down:
            raise StoreDown("refused")
        return await super().add(load, texts)

    async def loads(self):
        if self.is_down:
            raise StoreDown("refused")
        return await super().loads()


class Scene:
    """A recorder that runs, with policies of different hashes."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.store = Store()
        self.history = PolicyHistory(self.store, MemoryAuditStore(), lambda: folder)
        self.recorder = PolicyRecorder("127.0.0.1:8080", lambda: 1_800_000_000_000_000)
        tasks.keep_running(stack, self.recorder.describe(), "describe")
        tasks.keep_running(stack, self.recorder.write(self.history, retry_s=0.001), "write")

    def policy(self, amount: int) -> Policy:
        return load(write(self.folder, plans=PLANS.replace("60/", f"{amount}/")))

    async def recorded(self, count: int) -> list[str]:
        async def are_there() -> bool:
            return not self.store.is_down and len(await self.history.loads()) == count

        await eventually(are_there, f"{count} entries")
        return [each.cause for each in await self.history.loads()]


@pytest.fixture
async def scene(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Scene]:
    caplog.set_level(logging.INFO, "gateway")
    async with AsyncExitStack() as stack:
        yield Scene(tmp_path, stack)


async def test_each_change(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A start is no change; each later policy has a line with what has changed, and its cause."""
    policies = [scene.policy(amount) for amount in (60, 61, 62)]
    for policy, cause in zip(policies, ("start", "file change", "SIGHUP"), strict=True):
        scene.recorder.loaded(policy, cause)
    assert await scene.recorded(3) == ["SIGHUP", "file change", "start"]
    lines = [each.getMessage() for each in caplog.records if "policy changed" in each.getMessage()]
    hashes = [policy.hash for policy in policies]
    assert lines == [
        f"policy changed from {hashes[0]} to {hashes[1]} (file change): limit: plan, plan free: "
        "60/minute, burst 100, per key -> 61/minute, burst 100, per key; counters are kept",
        f"policy changed from {hashes[1]} to {hashes[2]} (SIGHUP): limit: plan, plan free: "
        "61/minute, burst 100, per key -> 62/minute, burst 100, per key; counters are kept",
    ]
    newest = (await scene.history.loads())[0]
    assert newest.gateway.endswith(" 127.0.0.1:8080")
    assert newest.previous == hashes[1]


async def test_an_outage(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The change is in the log at once; the history gets it later. The log says so once."""
    scene.store.is_down = True
    scene.recorder.loaded(scene.policy(60), "start")
    scene.recorder.loaded(scene.policy(61), "file change")
    await eventually(lambda: "policy changed" in caplog.text, "the change is in the log")
    await eventually(lambda: "not written, and will be retried" in caplog.text, "it is said")
    scene.store.is_down = False
    assert await scene.recorded(2) == ["file change", "start"]
    assert caplog.text.count("not written") == 1


async def test_a_long_outage(scene: Scene) -> None:
    """A bounded number waits for the store, the newest."""
    scene.store.is_down = True
    policies = [scene.policy(60 + number) for number in range(2 * MOST_WAITING)]
    for policy in policies:
        scene.recorder.loaded(policy, "SIGHUP")
        await eventually(lambda: not scene.recorder._loaded, "it is described")
        await asyncio.sleep(0)
    scene.store.is_down = False
    newest = policies[-1].hash

    async def is_there() -> bool:
        return any(each.hash == newest for each in await scene.history.loads())

    await eventually(is_there, "the newest is recorded")
    assert len(await scene.history.loads()) <= MOST_WAITING + 1


async def test_keys_of_a_plan_that_is_gone(
    scene: Scene, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says how many keys have it, once, after the store is available."""
    store = Keys()
    await store.add(plain_key(plan="gold"))
    async with AsyncExitStack() as stack:
        tasks.keep_running(stack, scene.recorder.count_keys(store, retry_s=0.001), "count")
        (tmp_path / "gold").mkdir()
        gold = load(write(tmp_path / "gold", plans=f"{PLANS}  gold: {{rate: 1/day}}\n"))
        policies = [with_kept_plans(scene.policy(60 + number), gold) for number in range(3)]
        scene.recorder.loaded(gold, "start")
        store.is_down = True
        for policy in policies:
            scene.recorder.loaded(policy, "SIGHUP")
        await eventually(lambda: store.asked > 1, "it is asked again")
        store.is_down = False
        await eventually(lambda: "no longer in the files" in caplog.text, "it is said")
        assert "plan 'gold' is no longer in the files; valid keys that have it: 1." in caplog.text
        scene.recorder.loaded(scene.policy(70), "SIGHUP")
        asked = store.asked
        scene.recorder.loaded(with_kept_plans(scene.policy(71), gold), "SIGHUP")
        await eventually(lambda: store.asked > asked, "it is asked once more")
    assert caplog.text.count("no longer in the files") <= 2


async def test_keys_of_a_plan_that_was_never_there(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of a start says how many keys get 503 for it; a reload does not repeat it."""
    store = Keys()
    await store.add(plain_key(plan="gold"))
    async with AsyncExitStack() as stack:
        tasks.keep_running(stack, scene.recorder.count_keys(store), "count")
        scene.recorder.loaded(scene.policy(60), "start")
        await eventually(lambda: "not in the files" in caplog.text, "it is said")
        asked = store.asked
        scene.recorder.loaded(scene.policy(61), "SIGHUP")
        await eventually(lambda: store.asked > asked, "it is asked again")
    said = "policy: plan 'gold' is not in the files; valid keys that have it: 1. Their requests get"
    assert caplog.text.count(said) == 1


class Keys(MemoryKeyStore):
    """A store of keys that may be unavailable. asked: how often it was asked for keys"""

    is_down = False
    asked = 0

    async def page(
        self, wanted: KeyFilter, *, after: str | None = None, count: int = 50
    ) -> list[KeyRecord]:
        self.asked += 1
        if self.is_down:
            raise StoreDown("refused")
        return await super().page(wanted, after=after, count=count)
