"""Steady clients with cached keys, and their answers.

Each request has an identifier in its query and its request id, and the upstream repeats both, so
that an answer to another request is detected.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.kit.wire import Wire, WireError, bearer

#: Between an answer and the client's next request.
_PAUSE_S: Final = 0.004


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. status: 0 if the connection broke; at_s: when the request was sent"""

    client: str
    status: int
    at_s: float
    took_s: float


@dataclass(slots=True)
class Load:
    """Clients against one gateway.

    keys:  one client each, by the client's name
    saved: how many admissions a client stops at until `spend`
    """

    port: int
    keys: dict[str, str]
    saved: dict[str, int] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    mistaken: list[str] = field(default_factory=list)
    _spending: asyncio.Event = field(default_factory=asyncio.Event)
    _done: bool = False

    async def run(self) -> None:
        """Send requests until `stop`. Errors that a client can get are not raised."""
        async with asyncio.TaskGroup() as clients:
            for name, key in self.keys.items():
                clients.create_task(self._keep_asking(name, key))

    def spend(self) -> None:
        """Let all clients use their remaining admissions."""
        self._spending.set()

    def stop(self) -> None:
        self._done = True
        self._spending.set()

    def since(self, at_s: float, until_s: float = float("inf")) -> list[Answer]:
        """The answers to requests of this time."""
        return [answer for answer in self.answers if at_s <= answer.at_s < until_s]

    def admitted(self, client: str) -> int:
        """How many of a client's requests were admitted."""
        return sum(answer.client == client and answer.status == 200 for answer in self.answers)

    def statuses(self) -> Counter[int]:
        return Counter(answer.status for answer in self.answers)

    async def _keep_asking(self, name: str, key: str) -> None:
        number = 0
        while not self._done:
            try:
                async with await Wire.connect(self.port) as wire:
                    while not self._done:
                        if name in self.saved and self.admitted(name) >= self.saved[name]:
                            await self._spending.wait()
                        number += 1
                        await self._ask(wire, name, key, number)
                        await asyncio.sleep(_PAUSE_S)
            except (OSError, WireError, EOFError):
                self.answers.append(Answer(name, 0, time.monotonic(), 0.0))
                await asyncio.sleep(_PAUSE_S)

    async def _ask(self, wire: Wire, name: str, key: str, number: int) -> None:
        mark = f"{name}-{number}"
        target = f"/api/x?{mark}"
        at_s = time.monotonic()
        answer = await wire.request("GET", target, [*bearer(key), ("X-Request-Id", mark)])
        took_s = time.monotonic() - at_s
        self.answers.append(Answer(name, answer.status, at_s, took_s))
        if answer["X-Request-Id"] != mark or (
            answer.status == 200 and answer.json()["target"] != target
        ):
            self.mistaken.append(f"{mark}: {answer}")
