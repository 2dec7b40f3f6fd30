"""One connection to the endpoint of a watch: sends a request, reads its answer, and again.

The endpoint is not trusted. Of its answer, the head is parsed as strictly as any upstream's, and
little of the body is read: then the connection ends, without TLS's farewell, for which the other
end could let us wait.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from dataclasses import dataclass
from typing import Final, cast

from gateway.domain.webhooks.destinations import Destinations
from gateway.http1.framing import BodyReader, CloseReader
from gateway.http1.response import MOST_HEAD_BYTES, ResponseHead, parse_response_head

#: The most bytes of an answer's body that are read, and of all that comes for one request: of the
#: interim answers, the head, and the body with its chunks' extensions.
MOST_READ: Final = 2 * 1024
MOST_RECEIVED: Final = 2 * MOST_HEAD_BYTES
#: A request is written in such pieces, and no more while the endpoint takes none: TLS copies each.
PIECE: Final = 64 * 1024
#: Interim answers before a final one; an endpoint that sends more is broken or hostile.
_MOST_INTERIM: Final = 16
_BEGINNING: Final = b"HTTP/1."
_retry_after = re.compile(rb"^retry-after: ([^\r]*)\r$", re.IGNORECASE | re.MULTILINE).search


class Closed(Exception):
    """It closed before a byte of the answer."""


class EndedEarly(Exception):
    """It closed in the middle of the answer."""


class NotHttp(Exception):
    """The answer is not valid HTTP."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What is read of an answer. body: its first bytes; retry_after: "": there is no such header"""

    status: int
    body: bytes
    retry_after: str


class EndpointConnection(asyncio.Protocol):
    """The protocol of one connection.

    is_usable:  it can take another request
    idle_since: when it was kept, by the loop's time
    terms:      what its address was judged by, and what was trusted
    """

    __slots__ = (
        "_body",
        "_head",
        "_interim",
        "_is_writing",
        "_partial",
        "_reader",
        "_received",
        "_resumed",
        "_stalled",
        "_waiting",
        "idle_since",
        "is_usable",
        "terms",
        "transport",
    )

    transport: asyncio.Transport
    terms: tuple[Destinations, ssl.SSLContext]

    def __init__(self) -> None:
        self.is_usable = True
        self.idle_since = 0.0
        self._waiting: asyncio.Future[Reply] | None = None
        #: It takes no more of the request for now; set when it takes more again.
        self._stalled = False
        self._resumed: asyncio.Future[None] | None = None
        #: Not all of the request is written.
        self._is_writing = False
        #: An incomplete head.
        self._partial = b""
        self._interim = self._received = 0
        self._head: ResponseHead | None = None
        self._reader: BodyReader | None = None
        self._body = b""

    async def ask(self, head: bytes, body: bytes = b"") -> Reply:
        """Send a request and read the answer. Raises Closed, EndedEarly, NotHttp.

        Where this raises, or is cancelled, the connection has ended.
        """
        self.is_usable = False
        if self.transport.is_closing():
            raise Closed
        waiting: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting = waiting
        self._partial, self._interim, self._received, self._head = b"", 0, 0, None
        try:
            await self._write(head, body, waiting)
            return await waiting
        except BaseException:
            # Also if it was cancelled when the answer was there: nobody would keep it.
            self.is_usable = False
            if not waiting.cancel() and not waiting.cancelled():
                waiting.exception()  # that nobody has seen is no fault
            raise
        finally:
            self._waiting = self._resumed = None
            if not self.is_usable:
                self.transport.abort()

    async def _write(self, head: bytes, body: bytes, waiting: asyncio.Future[Reply]) -> None:
        """Write the request as fast as it is taken, until all is written or the answer is there."""
        self._is_writing = len(body) > PIECE
        self.transport.write(head + body[:PIECE])
        at = PIECE
        while at < len(body) and not waiting.done():
            if self._stalled:
                self._resumed = asyncio.get_running_loop().create_future()
                await asyncio.wait((waiting, self._resumed), return_when=asyncio.FIRST_COMPLETED)
                continue
            self.transport.write(body[at : at + PIECE])
            at += PIECE
        self._is_writing = at < len(body)

    # -- called by asyncio ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(PIECE)

    def pause_writing(self) -> None:
        self._stalled = True

    def resume_writing(self) -> None:
        self._stalled = False
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            # Nothing was asked: these bytes would be taken for the answer to the next request.
            self.is_usable = False
            self.transport.abort()
            return
        self._received += len(data)
        if self._head is not None:
            self._read_body(data)
        elif self._received <= MOST_RECEIVED:
            self._read_heads(data)
        else:
            self._fail(NotHttp())

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_usable = False
        if isinstance(self._reader, CloseReader) and self._head is not None:
            self._done()
        else:
            self._fail(EndedEarly() if self._head is not None or self._partial else Closed())

    # -- reading ----------------------------------------------------------------------------------

    def _read_heads(self, data: bytes) -> None:
        """Read heads until the final one."""
        # The end of the head may have come in part: no byte is searched twice but these.
        fresh = max(len(self._partial) - 3, 0)
        self._partial += data
        while True:
            end = self._partial.find(b"\r\n\r\n", fresh)
            if end > MOST_HEAD_BYTES or (end < 0 and not self._may_become_a_head()):
                self._fail(NotHttp())
                return
            if end < 0:
                return
            raw, rest = self._partial[: end + 2], self._partial[end + 4 :]
            head = parse_response_head(raw)
            self._interim += 1
            if isinstance(head, str) or head.status == 101 or self._interim > _MOST_INTERIM + 1:
                self._fail(NotHttp())
                return
            if head.status >= 200:
                break
            self._partial, fresh = rest, 0
        self._head, self._reader, self._body = head, head.reader("POST"), b""
        if self._reader is None:
            self._done(keep=head.keep and not rest)
        else:
            self._read_body(rest)

    def _may_become_a_head(self) -> bool:
        partial = self._partial
        return len(partial) <= MOST_HEAD_BYTES and (
            partial.startswith(_BEGINNING) or _BEGINNING.startswith(partial)
        )

    def _read_body(self, data: bytes) -> None:
        reader, head = self._reader, self._head
        assert reader is not None
        assert head is not None
        payload, rest = reader.feed(data)
        self._body += payload
        if reader.fault is not None:
            self._fail(NotHttp())
        elif reader.done:
            self._done(keep=head.keep and not rest)
        elif len(self._body) >= MOST_READ or self._received > MOST_RECEIVED:
            self._done()

    def _done(self, *, keep: bool = False) -> None:
        head = self._head
        assert head is not None
        is_written = not self._is_writing and not self._stalled
        self.is_usable = keep and is_written and not self.transport.is_closing()
        found = _retry_after(head.forward)
        retry_after = found[1].decode("latin-1") if found is not None else ""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(Reply(head.status, self._body[:MOST_READ], retry_after))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
