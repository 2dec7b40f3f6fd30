"""Many keep-alive clients on every worker of every gateway, which send more than is allowed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from loadtests.exact.site import TARGETS, Site
from tests.kit.wire import TIMEOUT_S, Wire, bearer

#: Clients of each worker.
_CLIENTS: Final = 4
#: What each client sends in turn. With three requests for both, "narrow" is used up before "wide":
#: its refusals must cost "wide" nothing, which is used up by its own requests.
_ROUND: Final = (*TARGETS, "/both", "/both")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, and the times between which it was decided, Unix microseconds."""

    target: str
    status: int
    asked_us: int
    told_us: int


@dataclass(slots=True)
class Load:
    """The clients and their answers."""

    site: Site
    answers: list[Answer] = field(default_factory=list)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)

    def admitted(self, target: str) -> int:
        return self.counts[target, 200]

    def refused(self, target: str) -> int:
        return self.counts[target, 429]

    async def run(self, is_enough: Callable[[], bool]) -> None:
        """Send requests until `is_enough`. All start together, with different targets."""
        async with AsyncExitStack() as stack:
            wires = [
                await stack.enter_async_context(wire)
                for gateway in self.site.gateways
                for wire in await _dial(gateway.port, self.site.workers, self.site.keys[0])
            ]
            async with asyncio.TaskGroup() as clients:
                for number, wire in enumerate(wires):
                    clients.create_task(self._ask(wire, number, is_enough))

    async def _ask(self, wire: Wire, number: int, is_enough: Callable[[], bool]) -> None:
        fields = bearer(self.site.keys[number % 2])
        while not is_enough():
            target = _ROUND[number % len(_ROUND)]
            asked_us = _now_us()
            status = (await wire.request("GET", target, fields)).status
            self.answers.append(Answer(target, status, asked_us, _now_us()))
            self.counts[target, status] += 1
            number += 1


async def _dial(port: int, workers: int, key: str) -> list[Wire]:
    """The same number of connections to each worker; the kernel chooses which one accepts.

    A worker may serve before it has reached the store: requests repeat until it knows the key.
    """
    kept: dict[str, list[Wire]] = {}
    async with asyncio.timeout(TIMEOUT_S):
        while len(kept) < workers or any(len(wires) < _CLIENTS for wires in kept.values()):
            wire = await Wire.connect(port)
            answer = await wire.request("GET", "/v1/auth/verify", bearer(key))
            # Each worker has its own prefix of request ids.
            wires = kept.setdefault(answer["X-Request-Id"].rpartition("-")[0], [])
            if answer.status == 200 and len(wires) < _CLIENTS:
                wires.append(wire)
            else:
                await wire.close()
    return [wire for wires in kept.values() for wire in wires]


def _now_us() -> int:
    return time.time_ns() // 1000
