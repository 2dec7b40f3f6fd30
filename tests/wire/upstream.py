"""An upstream that checks every byte it receives, over real sockets or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from tests.kit.transport import MemoryTransport
from tests.wire.judge import Message, NotExact, read_requests

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


class JudgingUpstream:
    """The state that all its connections share.

    requests: the complete ones, in order; raw: every byte; faults: what was not exactly HTTP
    answers:  what to answer, one per request, then a plain 200 to every further one
    """

    def __init__(self) -> None:
        self.requests: list[Message] = []
        self.raw = bytearray()
        self.faults: list[str] = []
        self.answers: list[bytes] = []
        self.hangs_up = False

    def expect(self, answers: Sequence[bytes], hangs_up: bool) -> None:
        """Reset the state, and answer with these from now on."""
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
    """One connection to it. write, end: how it answers."""

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


def connect_in_memory(
    upstream: JudgingUpstream, factory: Callable[[], asyncio.Protocol]
) -> tuple[MemoryTransport, asyncio.Protocol]:
    """Like `loop.create_connection`, with the checking upstream at the other end."""
    protocol = factory()
    # The two refer to each other; nothing is written before both exist.
    transport = MemoryTransport(protocol, on_write=lambda data: conversation.feed(data))  # noqa: PLW0108
    conversation = Conversation(upstream, transport.deliver, transport.deliver_end)
    protocol.connection_made(transport)
    return transport, protocol
