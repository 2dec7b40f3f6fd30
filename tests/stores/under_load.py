"""A store as a gateway opens it, and clients that send checks all the time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.domain.identity import Absent, Identity
from gateway.domain.keys import KeyRecord
from gateway.domain.limits import Check, Decision, Limit
from gateway.domain.policy import Policy, StoreSettings
from gateway.domain.ports import StoreDown
from gateway.observe.metrics import Metrics
from gateway.policies.load import load
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.opening import Store, open_store
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clients import redis_client
from tests.kit.eventually import eventually
from tests.suites.keys import nth_id, plain_key

PLAN = Limit("plan", "quota", 40, 86_400_000_000)
ROUTE = Limit("route", "quota", 10_000, 86_400_000_000)
SPARE = Limit("spare", "quota", 10_000, 86_400_000_000)
#: The limits of clients, in turn. Those of the last are never used up: as refusals are cached, a
#: refused client's checks do not reach the store any more.
_ASKED = ((PLAN,), (PLAN, ROUTE), (PLAN,), (ROUTE, SPARE))
SUBJECTS = 60
#: For a busy machine. A killed server is detected at once, by its closed connections.
SETTINGS = StoreSettings(timeout_s=2.0)
SHIPPED = Path(__file__).parent.parent.parent / "policies"


@asynccontextmanager
async def opened_store(
    address: StoreAddress, metrics: Metrics | None = None
) -> AsyncIterator[Store]:
    """The store's parts as a gateway opens them, once they are up."""
    policy: Policy = replace(load(SHIPPED), store=SETTINGS)
    async with open_store(
        address,
        policy=lambda: policy,
        metrics=metrics or Metrics("0"),
        clock_us=lambda: time.time_ns() // 1000,
    ) as store:
        await eventually(store.is_up, "the store is up", 60)
        yield store


class Load:
    """Clients that send checks, every other one of two limits, while the store fails.

    admitted: admissions of each client; local: decisions that the store did not make
    """

    def __init__(self, store: Store) -> None:
        self.admitted: Counter[int] = Counter()
        self.local = self.unanswered = self.rounds = 0
        #: Rounds since the last one with a local decision.
        self.whole = 0
        self._store = store
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Load:
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def check(self, subject: int) -> Check:
        of = _ASKED[subject % len(_ASKED)]
        names = (f"gw:limit:{{subject-{subject}}}:{limit.counter}" for limit in of)
        return Check(of, tuple(names))

    async def ask(self, check: Check) -> Decision | None:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._store.limiter.decide(check, answer.set_result)
        return await asyncio.wait_for(answer, 30)

    async def for_rounds(self, rounds: int) -> None:
        """Wait for this many new rounds; each has a check of every client."""
        goal = self.rounds + 1 + rounds  # the current one may have begun before the change
        await self._reaches(lambda: self.rounds >= goal, f"{rounds} more rounds")

    async def until_settled(self) -> None:
        """Wait until the store has made every decision of several successive rounds."""
        self.whole = 0
        await self._reaches(lambda: self.whole >= 5, "the store decides everything")

    async def is_exact(self) -> None:
        """Each check was answered, no client exceeded twice the limit; now limits are exact."""
        assert self.unanswered == 0
        kept = [count for n, count in self.admitted.items() if PLAN in self.check(n).limits]
        assert max(kept) <= 2 * PLAN.amount
        for new in range(3):
            check = self.check(10_000 + new)
            answers = [await self.ask(check) for _ in range(PLAN.amount + 5)]
            assert sum(answer is not None and answer.allowed for answer in answers) == PLAN.amount

    async def _reaches(self, condition: Any, what: str) -> None:
        def looked() -> bool:
            assert self._task is not None
            if self._task.done():
                self._task.result()
            return bool(condition())

        await eventually(looked, what, 60)

    async def _run(self) -> None:
        while True:
            answers = await asyncio.gather(*(self.ask(self.check(n)) for n in range(SUBJECTS)))
            local = sum(answer is not None and answer.local for answer in answers)
            self.unanswered += answers.count(None)
            self.local += local
            self.whole = 0 if local else self.whole + 1
            self.rounds += 1
            for subject, answer in enumerate(answers):
                self.admitted[subject] += answer is not None and answer.allowed
            await asyncio.sleep(0.01)


async def with_keys(store: Store, count: int) -> list[KeyRecord]:
    """This many keys, which the store's directory has cached."""
    records = [plain_key(nth_id(index), account=f"account-{index}") for index in range(count)]
    for record in records:
        await store.keys.add(record)
        assert await is_valid(store, record.id)
    return records


async def looked_up(store: Store, key_id: str) -> Identity | Absent:
    """The identity that a gateway uses for a request with this key."""
    found = store.directory.known(key_id)
    if found is None:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        store.directory.look_up(key_id, answer.set_result)
        found = await asyncio.wait_for(answer, 30)
    return found


async def is_valid(store: Store, key_id: str) -> bool:
    found = await looked_up(store, key_id)
    return isinstance(found, Identity) and found.record.status == "valid"


async def is_revoked(store: Store, record: KeyRecord) -> bool:
    found = await looked_up(store, record.id)
    return isinstance(found, Identity) and found.record.status == "revoked"


async def revoke(address: StoreAddress, record: KeyRecord) -> None:
    """Revoke as another process, trying until it succeeds."""
    client = redis_client(address)
    keys = RedisKeyStore(client)

    async def succeeds() -> bool:
        with suppress(StoreDown):
            await keys.replace(record, replace(record, status="revoked"))
            return True
        return False

    try:
        await eventually(succeeds, "the key is revoked", 60)
    finally:
        await client.aclose()
