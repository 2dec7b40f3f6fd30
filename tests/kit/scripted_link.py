"""A link without a store: the test reads what is sent, replies, and closes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import StoreAddress


class ScriptedLink:
    """Replaces a StoreConnection. What is sent waits in `sent` for its `reply`."""

    def __init__(
        self,
        address: StoreAddress,
        *,
        timeout_s: Any = 1.0,
        on_push: Any = None,
        setup: Any = (),
        accepted: Any = (),
    ) -> None:
        self.address, self.setup, self.push = address, setup, on_push
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[StoreDown], None]] = []
        self.on_failed: list[Callable[[StoreDown], None]] = []
        self.last_error: StoreDown | None = None
        self.is_up = self.stopped = False
        self.sent: list[tuple[bytes, Callable[[Any], None]]] = []

    def start(self) -> None: ...

    async def stop(self) -> None:
        self.stopped = True
        self.reconnect("stopped")

    def send(self, encoded: bytes, done: Callable[[Any], None]) -> None:
        if self.is_up:
            self.sent.append((encoded, done))
        else:
            done(StoreDown("not connected"))

    def connect(self) -> None:
        self.is_up = True
        for listener in self.on_up:
            listener()

    def reconnect(self, reason: str) -> None:
        if self.is_up:
            self.is_up = False
            self.last_error = StoreDown(reason)
            waiting, self.sent = self.sent, []
            for _, done in waiting:
                done(self.last_error)
            for listener in list(self.on_down):
                listener(self.last_error)

    def reply(self, expected: bytes, value: Any) -> None:
        """Answer the oldest command, which must be the expected one."""
        encoded, done = self.sent.pop(0)
        assert encoded == expected
        done(value)
