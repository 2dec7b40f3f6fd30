"""Runs one case under load: failure, outage, recovery, and what clients got meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Final

from loadtests.outage.cases import Case
from loadtests.outage.load import Load
from loadtests.outage.site import TIGHT, Site
from tests.kit.eventually import eventually

_CLIENTS: Final = 4
#: Answers to wait for before the failure, and after the recovery.
_ENOUGH: Final = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a case.

    statuses:     of all answers to cached keys, 0 for a broken connection
    mistaken:     answers that belonged to another request
    added_s:      the longest time of an answer after the failure, minus the usual time before it
    admitted:     of the key whose limit is TIGHT, in one window
    recovered_s:  from the end of the failure until the gateway relies on the store again
    """

    statuses: Counter[int]
    mistaken: list[str]
    added_s: float
    admitted: int
    recovered_s: float

    @property
    def over(self) -> int:
        """Admitted beyond the limit."""
        return max(0, self.admitted - TIGHT)

    def errors(self, allowed: set[int]) -> int:
        """Answers to cached keys with other statuses than allowed."""
        wrong = sum(count for status, count in self.statuses.items() if status not in allowed)
        return wrong + len(self.mistaken)


async def run(case: Case, site: Site, away_s: float) -> Outcome:
    """Start the failure, end it after this time, and wait until the gateway has recovered.

    Fails if the failure is not detected, if the gateway does not recover, or if a key that is not
    cached gets 401 meanwhile: it may be valid.
    """
    keys = {f"loose{number}": await site.key("loose") for number in range(_CLIENTS)}
    keys["tight"] = await site.key("tight")
    for key in keys.values():
        await site.meet(key)
    load = Load(site.gateway.port, keys, {"tight": TIGHT - 10})
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(load.run())
        try:
            return await _watched(case, site, load, away_s)
        finally:
            load.stop()
            await asyncio.wait([running])


async def _watched(case: Case, site: Site, load: Load, away_s: float) -> Outcome:
    async def more(count: int, what: str) -> None:
        enough = len(load.answers) + count
        await eventually(lambda: len(load.answers) >= enough, f"requests flow {what}")

    async def is_lost() -> bool:
        return await site.metric("gateway_store_up") == 0

    async def is_told() -> bool:
        return (await site.ask_unknown()).status == (401 if case.reads else 503)

    async def is_counting() -> bool:
        return await site.counts() != counted

    await eventually(lambda: load.admitted("tight") >= TIGHT - 10, "the tight key is nearly spent")
    await more(_ENOUGH, "before")
    harmed_s = time.monotonic()
    await case.harm(site)
    load.spend()
    if case.away:
        await eventually(is_lost, "the loss is noticed")
        await eventually(is_told, "a key that is not known is told why")
    await more(_ENOUGH, "meanwhile")
    await asyncio.sleep(max(0.0, harmed_s + away_s - time.monotonic()))
    await case.heal(site)
    healed_s = time.monotonic()
    await eventually(site.is_relied_on, "the store is relied on again")
    recovered_s = time.monotonic() - healed_s
    counted = await site.counts()
    await more(_ENOUGH, "after")
    await eventually(is_counting, "the store counts")
    usual_s = median(answer.took_s for answer in load.since(0.0, harmed_s))
    longest_s = max(answer.took_s for answer in load.since(harmed_s))
    return Outcome(
        load.statuses(),
        load.mistaken,
        max(0.0, longest_s - usual_s),
        load.admitted("tight"),
        recovered_s,
    )
