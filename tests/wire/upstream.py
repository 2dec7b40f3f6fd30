"""An upstream that judges every byte it is sent, over real sockets or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from tests.wire.judge import Message, NotExact, read_requests

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


class JudgingUpstream:
    """What all connections to it share.

    requests: the whole ones, in order; raw: every byte; faults: what was not exactly HTTP
    answers:  what to answer, one a request, then a plain 200 to every further one
    """

    def __init__(self) -> None:
        self.requests: list[Message] = []
        self.raw = bytearray()
        self.faults: list[str] = []
        self.answers: list[bytes] = []
        self.hangs_up = False

    def expect(self, answers: Sequence[bytes], hangs_up: bool) -> None:
        """Forget what was, and answer so from now on."""
        self.requests.clear()
        self.raw.clear()
        self.faults.clear()
        self.answers[:] = answers
        self.hangs_up = hangs_up

    def next_answer(self, request: Message) -> tuple[bytes, bool]:
        """The bytes of an answer, and whether the connection ends after them."""
        if self.answers:
            return self.answers.pop(0), self.hangs_up
        return PLAIN + (b"" if request.method == "HEAD" else b"ok"), False


class Conversation:
    """One connection to it. write, end: the way back."""

    def __init__(
        self, upstream: JudgingUpstream, write: Callable[[bytes], None], end: Callable[[], None]
    ) -> None:
        self.upstream = upstream
        self._write = write
        self._end = end
        self._held = b""

    def feed(self, data: bytes) -> None:
        self.upstream.raw += data
        try:
            found, self._held = read_requests(self._held + data)
        except NotExact as fault:
            self.upstream.faults.append(str(fault))
            self._end()
            return
        for request in found:
            self.upstream.requests.append(request)
            answer, hangs_up = self.upstream.next_answer(request)
            self._write(answer)
            if hangs_up:
                self._end()


class SocketConversation(asyncio.Protocol):
    """A conversation over a real socket."""

    def __init__(self, upstream: JudgingUpstream) -> None:
        self._upstream = upstream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        real = cast(asyncio.Transport, transport)
        self._conversation = Conversation(self._upstream, real.write, real.close)

    def data_received(self, data: bytes) -> None:
        self._conversation.feed(data)


class MemoryTransport(asyncio.Transport):
    """One side's transport without a socket: what is written goes to a function.

    Calls of the protocol come in later turns of the loop, as they do from a socket.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol | asyncio.BufferedProtocol,
        write: Callable[[bytes], None],
    ) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self._loop = asyncio.get_running_loop()
        self.protocol = protocol
        self._write = write
        self._waiting: list[bytes] = []
        self.paused = False
        self.closing = False
        self.aborted = False
        self.wrote_eof = False

    # -- the protocol's side ----------------------------------------------------------------------
    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closing:
            self._write(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass  # all that is written is taken at once

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.wrote_eof = True

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        self._loop.call_soon(self._hand_over)

    def is_reading(self) -> bool:
        return not self.paused

    # -- the other end's side ---------------------------------------------------------------------
    def deliver(self, data: bytes) -> None:
        """Let the protocol receive this, when it is ready to."""
        self._waiting.append(data)
        self._loop.call_soon(self._hand_over)

    def deliver_end(self) -> None:
        """Let the protocol see the other end close."""
        self._loop.call_soon(self._end)

    @property
    def is_drained(self) -> bool:
        return self.closing or not self._waiting

    def _hand_over(self) -> None:
        while self._waiting and not self.paused and not self.closing:
            data = self._waiting.pop(0)
            if isinstance(self.protocol, asyncio.Protocol):
                self.protocol.data_received(data)
                continue
            room = memoryview(self.protocol.get_buffer(-1))
            size = min(len(room), len(data))
            room[:size] = data[:size]
            if rest := data[size:]:
                self._waiting.insert(0, rest)
            self.protocol.buffer_updated(size)

    def _end(self) -> None:
        self._hand_over()
        if not self.closing and not self.protocol.eof_received():
            self.close()


def connect_in_memory(
    upstream: JudgingUpstream, factory: Callable[[], asyncio.Protocol]
) -> tuple[MemoryTransport, asyncio.Protocol]:
    """What `loop.create_connection` gives, with the judging upstream at the other end."""
    protocol = factory()
    # The two need each other; nothing is written before both are there.
    transport = MemoryTransport(protocol, lambda data: conversation.feed(data))  # noqa: PLW0108
    conversation = Conversation(upstream, transport.deliver, transport.deliver_end)
    protocol.connection_made(transport)
    return transport, protocol
