"""A transport without a socket: a protocol on one side, and the test as the other end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

#: The clients' address, in TEST-NET-1.
PEER = ("192.0.2.1", 40_000)


class MemoryTransport(asyncio.Transport):
    """One connection of a protocol.

    Data that the test sends is read at once with `receive`, or in a later turn of the loop with
    `deliver`, as from a socket. If it has its protocol and an event loop runs, `connection_lost`
    follows a close in a later turn; else a test calls it.

    written:    all that the protocol has written
    log:        its other calls, in order: "pause_reading", "resume_reading", "write_eof", "close",
                "abort"
    ended:      "close" or "abort", as the protocol ended it; "" until then
    takes:      the other end reads at once; else bytes wait, and over its limit the protocol is
                paused
    on_write:   called with everything that is written
    """

    def __init__(
        self,
        protocol: Any = None,
        *,
        peer: tuple[str, int] | None = PEER,
        half_closes: bool = True,
        on_write: Callable[[bytes], object] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__({"peername": peer, **extra})
        self.protocol = protocol
        self.written = bytearray()
        self.log: list[str] = []
        self.takes = True
        self.ended = ""
        self.is_paused = self.wrote_eof = False
        self.unsent_bytes = 0
        self._half_closes = half_closes
        self._on_write = on_write
        self._high = 64 * 1024
        self._write_paused = False
        self._waiting: list[bytes] = []

    # -- what the protocol calls ------------------------------------------------------------------
    def write(self, data: Any) -> None:
        if self.is_closed:
            return
        self.written += data
        if self._on_write is not None:
            self._on_write(bytes(data))
        if not self.takes:
            self.unsent_bytes += len(data)
            if self.unsent_bytes > self._high and not self._write_paused:
                self._write_paused = True
                self.protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def can_write_eof(self) -> bool:
        return self._half_closes

    def write_eof(self) -> None:
        self.log.append("write_eof")
        self.wrote_eof = True

    def close(self) -> None:
        self.log.append("close")
        if not self.is_closed:
            self.ended = "close"
            if not self.unsent_bytes:
                self._lose()

    def abort(self) -> None:
        self.log.append("abort")
        is_due = not self.is_closed or self.unsent_bytes > 0
        self.ended = "abort"
        self.unsent_bytes = 0
        if is_due:
            self._lose()

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.log.append("pause_reading")
        self.is_paused = True

    def resume_reading(self) -> None:
        self.log.append("resume_reading")
        self.is_paused = False
        if self._waiting:
            self._soon(self._read)

    def is_reading(self) -> bool:
        return not self.is_paused

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    @property
    def is_closed(self) -> bool:
        return self.ended != ""

    @property
    def is_aborted(self) -> bool:
        return self.ended == "abort"

    # -- what the other end does ------------------------------------------------------------------
    def receive(self, data: bytes) -> bytes:
        """Have the protocol read this now; return the rest, if it paused or closed."""
        while data and not self.is_paused and not self.is_closed:
            if isinstance(self.protocol, asyncio.Protocol):
                self.protocol.data_received(data)
                return b""
            room = self.protocol.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.protocol.buffer_updated(size)
        return data

    def push(self, data: bytes) -> None:
        """Have the protocol read this now, and the rest as soon as it resumes."""
        if left := self.receive(data):
            self._waiting.append(left)

    def deliver(self, data: bytes) -> None:
        """Have the protocol read this in a later turn of the loop, as soon as it reads."""
        self._waiting.append(data)
        self._soon(self._read)

    def end(self) -> None:
        """The other end sends no more; the protocol says whether to close."""
        self._read()
        if not self.is_closed and not self.protocol.eof_received():
            self.close()

    def deliver_end(self) -> None:
        """The same in a later turn of the loop."""
        self._soon(self.end)

    def take_all(self) -> None:
        """The other end reads all waiting bytes, and from now on at once."""
        self.takes = True
        self.unsent_bytes, unsent = 0, self.unsent_bytes
        if self.is_closed and unsent:
            self._lose()
        elif self._write_paused:
            self._write_paused = False
            self.protocol.resume_writing()

    @property
    def is_drained(self) -> bool:
        """Has the protocol read all that was delivered, or closed?"""
        return self.is_closed or not self._waiting

    def _read(self) -> None:
        while self._waiting and not self.is_paused and not self.is_closed:
            if left := self.receive(self._waiting.pop(0)):
                self._waiting.insert(0, left)

    def _lose(self) -> None:
        if self.protocol is not None:
            self._soon(self.protocol.connection_lost, None)

    @staticmethod
    def _soon(callback: Callable[..., object], *arguments: Any) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        loop.call_soon(callback, *arguments)
