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
        "_partial",
        "_reader",
        "_received",
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
        #: It takes no more of the request for now.
        self._stalled = False
        #: An incomplete head.
        self._partial = b""
        self._interim = self._received = 0
        self._head: ResponseHead | None = None
        self._reader: BodyReader | None = None
        self._body = b""

    async def ask(self, request: bytes) -> Reply:
        """Send a request and read the answer. Raises Closed, EndedEarly, NotHttp.

        Where this raises, or is cancelled, the connection has ended.
        """
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Reply] = loop.create_future()
        self._waiting = waiting
        self._partial, self._interim, self._received, self._head = b"", 0, 0, None
        self.is_usable = False
        if self.transport.is_closing():
            raise Closed
        self.transport.write(request)
        try:
            return await waiting
        finally:
            self._waiting = None
            if not self.is_usable:
                self.transport.abort()

    # -- called by asyncio ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        self._stalled = True

    def resume_writing(self) -> None:
        self._stalled = False

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
        self.is_usable = keep and not self._stalled and not self.transport.is_closing()
        found = _retry_after(head.forward)
        retry_after = found[1].decode("latin-1") if found is not None else ""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(Reply(head.status, self._body[:MOST_READ], retry_after))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
