"""Bounds the bytes of bodies that are read at once, in all and for each sender.

A body counts from its first byte until its request is answered. Without a bound, some hundred slow
senders would fill the courier's memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: The bytes of all webhooks that are read at once, and of all requests to the API.
MOST_CAPTURED: Final = 64 * 1024 * 1024
MOST_ASKED: Final = 16 * 1024 * 1024
#: One sender, such as a capture address or a client's address, has this share of them at most.
_SHARE: Final = 4
#: A body counts for so much at least: its connection and its request take memory as well.
LEAST: Final = 16 * 1024


class BodiesFull(Exception):
    """There is no room for more bytes of bodies."""


class BodyBudget:
    """most: bytes of all bodies; a sender has a quarter of them"""

    def __init__(self, most: int = MOST_CAPTURED) -> None:
        self._most = most
        self._share = most // _SHARE
        self._of: Counter[str] = Counter()
        self.held = 0

    @contextmanager
    def body(self, *senders: str) -> Iterator[HeldBody]:
        """Room for one body, which counts for each of these senders. Raises BodiesFull."""
        held = HeldBody(self, senders)
        try:
            held.grow_to(0)
            yield held
        finally:
            held.release()

    def add(self, senders: tuple[str, ...], size: int) -> None:
        """Raises BodiesFull."""
        if self.held + size > self._most or any(
            self._of[sender] + size > self._share for sender in senders
        ):
            raise BodiesFull
        self.held += size
        for sender in senders:
            self._of[sender] += size

    def remove(self, senders: tuple[str, ...], size: int) -> None:
        self.held -= size
        for sender in senders:
            self._of[sender] -= size
            if not self._of[sender]:
                del self._of[sender]


class HeldBody:
    """What one body counts for."""

    def __init__(self, budget: BodyBudget, senders: tuple[str, ...]) -> None:
        self._budget = budget
        self._senders = senders
        self._size = 0

    def grow_to(self, size: int) -> None:
        """It has so many bytes now. Raises BodiesFull."""
        more = max(size, LEAST) - self._size
        if more > 0:
            self._budget.add(self._senders, more)
            self._size += more

    def release(self) -> None:
        self._budget.remove(self._senders, self._size)
        self._size = 0
