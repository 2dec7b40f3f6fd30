"""A WebSocket once both sides have agreed: bytes pass, unread, until either side ends.

Each of the two connections gets an `_End` for its protocol. What one end receives, the other
sends; one that takes no more holds the other back, so that nothing piles up in between.

A side that sends no more is not gone: the close frames of RFC 6455, 7.1.1 and whatever was under
way still have to arrive, and closing over unread bytes would be a reset that takes them away. So
the other side is told by the same sign, after all that was sent before it, and has a moment to
end as well. TLS cannot end in one direction only; there it is closed once everything is written.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from gateway.domain.policy import Policy
from gateway.proxy.kernel import Taking

#: How long one side may still send after the other has ended.
CLOSING_S: Final = 2.0
#: What one read of either side may bring. Emptied before another connection is read.
_BUFFER: Final = bytearray(32 * 1024)
_VIEW: Final = memoryview(_BUFFER)


class Side(Protocol):
    """One of the two connections, whose protocol hears of the end.

    It may be held already, by these very means, and is let go by them.
    """

    transport: asyncio.Transport

    def hold(self) -> None:
        """Read no more from it."""
        ...

    def let_go(self) -> None:
        """Read on."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        ...


class Tunneled(Protocol):
    """The exchange that the tunnel came of. bytes_in, bytes_out: counted here"""

    policy: Policy
    bytes_in: int
    bytes_out: int

    @property
    def is_over(self) -> bool:
        """Both sides are closed, or about to be."""
        ...

    def tunnel_over(self) -> None:
        """Both sides have ended in good order."""
        ...

    def abandon(self, reason: str) -> None:
        """Break it off."""
        ...


class Tunnel:
    """Both ends, and the clock of the whole. Its exchange lives as long as it does."""

    __slots__ = ("_client", "_quiet_since", "_server", "exchange", "has_moved")

    def __init__(self, exchange: Tunneled, client: Side, server: Side) -> None:
        self.exchange = exchange
        #: Something has come from either side since the last look.
        self.has_moved = True
        self._quiet_since = 0.0
        self._client, self._server = _ClientEnd(self, client), _ServerEnd(self, server)
        self._client.other, self._server.other = self._server, self._client

    def open(self, early: bytes) -> None:
        """Begin. early: what the client sent before it could know that there is a tunnel."""
        for end in (self._client, self._server):
            end.transport.set_protocol(end)
        if early:
            self._client.data_received(early)

    def check(self, now: float) -> None:
        """Act on the time: called a few times a second with the loop's clock."""
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
        """An end's connection is closed."""
        if self.exchange.is_over:
            return
        # It was closed after it had ended, or by this side after the other had.
        if end.has_ended or (error is None and end.other.has_ended):
            self.end()
        else:
            is_client = end is self._client
            self.exchange.abandon("client_gone" if is_client else "upstream_truncated")

    def end(self) -> None:
        """All that will come has been passed on: close both."""
        self.exchange.tunnel_over()


class _End(asyncio.BufferedProtocol):
    """One side's connection: what it sends goes to the other end."""

    __slots__ = (
        "_side",
        "_taken_at",
        "_taking",
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
        #: Bytes for it that its connection had not taken at the last look.
        self.waiting = 0
        self._taking = Taking()
        self._taken_at = 0.0
        self._tunnel = tunnel
        self._side = side

    def stalled_s(self, now: float) -> float:
        """For how long it has taken nothing of what waits for it."""
        self.waiting = self.transport.get_write_buffer_size()
        if self._taking.goes_on(self.transport) or not self.waiting:
            self._taken_at = now
        return now - self._taken_at

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

    def count(self, size: int) -> None:
        """So many bytes came."""
        # Each end books them on its own side of the account; there is no third end.
        raise NotImplementedError

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
        # Kept open for what the other side still has to say.
        return self.transport.can_write_eof()

    def pause_writing(self) -> None:
        if not self._tunnel.exchange.is_over:
            self.other._side.hold()

    def resume_writing(self) -> None:
        if not self._tunnel.exchange.is_over:
            self.other._side.let_go()

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
