"""A WebSocket after the handshake: relays bytes, without parsing, until either side ends.

Each of the two connections gets an `_End` as its protocol. What one end receives, the other sends.
If one takes no more, reading from the other pauses, so that nothing accumulates.

A side that has ended may still have to read the close frame of RFC 6455, 7.1.1 and earlier data,
and closing with unread bytes would be a reset, which discards them. So the end is passed on to the
other side, after all data, and that side has a moment to end as well. A transport that cannot end
in one direction only is closed once everything is written.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final, Protocol

from gateway.domain.policy import Policy
from gateway.proxy.kernel import AckProgress

#: How long one side may still send after the other has ended.
CLOSING_S: Final = 2.0
#: For one read of either side. Emptied before another connection is read.
_BUFFER: Final = bytearray(32 * 1024)
_VIEW: Final = memoryview(_BUFFER)


class Side(Protocol):
    """The protocol that one of the two connections had before; it is notified of the end.

    It may have paused reading already; `resume` resumes that, too.
    """

    transport: asyncio.Transport

    def pause(self) -> None:
        """Pause reading."""
        ...

    def resume(self) -> None:
        """Resume reading."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        ...


class Tunneled(Protocol):
    """The exchange of the tunnel. bytes_in, bytes_out: counted here"""

    policy: Policy
    bytes_in: int
    bytes_out: int

    @property
    def is_over(self) -> bool:
        """Both sides are closed, or closing."""
        ...

    def tunnel_over(self) -> None:
        """End the exchange: both sides ended properly."""
        ...

    def abandon(self, reason: str) -> None:
        """End the exchange at once."""
        ...


class Tunnel:
    """Both ends, and the timeouts. The exchange lasts as long as the tunnel."""

    __slots__ = ("_client", "_quiet_since", "_server", "exchange", "has_moved")

    def __init__(self, exchange: Tunneled, client: Side, server: Side) -> None:
        self.exchange = exchange
        #: A byte came from either side since the last check.
        self.has_moved = True
        self._quiet_since = 0.0
        self._client, self._server = _ClientEnd(self, client), _ServerEnd(self, server)
        self._client.other, self._server.other = self._server, self._client

    def open(self, early: bytes) -> None:
        """Begin. early: what the client sent before it had the 101."""
        for end in (self._client, self._server):
            end.transport.set_protocol(end)
        if early:
            self._client.data_received(early)

    def check(self, now: float) -> None:
        """Check the timeouts: called a few times a second, with the loop's clock."""
        exchange = self.exchange
        timeouts = exchange.policy.timeouts
        stalls = [end.stalled_s(now) for end in (self._client, self._server)]
        has_ended = self._client.has_ended or self._server.has_ended
        if max(stalls) >= timeouts.write_s:
            exchange.abandon("write_stalled")
        elif self.has_moved or self._client.waiting or self._server.waiting:
            self.has_moved = False
            self._quiet_since = now
        elif has_ended and now - self._quiet_since >= CLOSING_S:
            self.end()
        elif now - self._quiet_since >= timeouts.tunnel_s:
            exchange.abandon("tunnel_silent")

    def lost(self, end: _End, error: Exception | None) -> None:
        """End the tunnel: the connection of one end was closed."""
        if self.exchange.is_over:
            return
        # Proper: this side ended before, or the tunnel closed it after the other side ended.
        if end.has_ended or (error is None and end.other.has_ended):
            self.end()
        else:
            is_client = end is self._client
            self.exchange.abandon("client_gone" if is_client else "upstream_truncated")

    def end(self) -> None:
        """Close both sides: all bytes were passed on."""
        self.exchange.tunnel_over()


class _End(asyncio.BufferedProtocol, ABC):
    """The protocol of one side: passes what it receives to the other end."""

    __slots__ = (
        "_ack_progress",
        "_advanced_at",
        "_side",
        "_tunnel",
        "has_ended",
        "other",
        "transport",
        "waiting",
    )

    other: _End

    def __init__(self, tunnel: Tunnel, side: Side) -> None:
        self.transport = side.transport
        #: It sends no more.
        self.has_ended = False
        #: Unsent bytes for it at the last check.
        self.waiting = 0
        self._ack_progress = AckProgress()
        self._advanced_at = 0.0
        self._tunnel = tunnel
        self._side = side

    def stalled_s(self, now: float) -> float:
        """For how long it has taken none of the bytes that wait for it."""
        self.waiting = self.transport.get_write_buffer_size()
        if self._ack_progress.has_advanced(self.transport) or not self.waiting:
            self._advanced_at = now
        return now - self._advanced_at

    def get_buffer(self, sizehint: int) -> bytearray:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(_VIEW[:nbytes].tobytes())

    def data_received(self, data: bytes) -> None:
        tunnel = self._tunnel
        if tunnel.exchange.is_over:
            return
        tunnel.has_moved = True
        self.count(len(data))
        self.other.transport.write(data)

    @abstractmethod
    def count(self, size: int) -> None:
        """Count received bytes."""

    def eof_received(self) -> bool:
        tunnel, other = self._tunnel, self.other
        if self.has_ended or tunnel.exchange.is_over:
            return False
        self.has_ended = tunnel.has_moved = True
        if other.has_ended:
            tunnel.end()
            return False
        if other.transport.can_write_eof():
            other.transport.write_eof()
        else:
            other.transport.close()
        # Keep it open for the rest of the other side's data.
        return self.transport.can_write_eof()

    def pause_writing(self) -> None:
        if not self._tunnel.exchange.is_over:
            self.other._side.pause()

    def resume_writing(self) -> None:
        if not self._tunnel.exchange.is_over:
            self.other._side.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tunnel.lost(self, exc)
        self._side.connection_lost(exc)


class _ClientEnd(_End):
    __slots__ = ()

    def count(self, size: int) -> None:
        self._tunnel.exchange.bytes_in += size


class _ServerEnd(_End):
    __slots__ = ()

    def count(self, size: int) -> None:
        self._tunnel.exchange.bytes_out += size
