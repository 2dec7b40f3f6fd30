"""TLS between a socket's transport and the protocol above it, in bounded memory.

To the transport below it is a protocol, to the protocol above it is the transport. It differs from
what the event loop brings along in four ways, each of which a stranger can turn against us:

- it keeps nothing of its own for a connection but OpenSSL's state: what is read from the socket
  goes through one buffer that all connections share, and no more is read while the protocol above
  is paused. The loop's own takes 256 KB for each connection that once sent as much;
- the protocol of a client's connection is there from the moment the connection is accepted, so that
  bounds and deadlines hold for handshakes as well, and so does the budget of memory: OpenSSL takes
  50 KB for one, from its first byte on;
- records without data are few. A key update takes 27 bytes of a connection and 8 to 16 µs of ours,
  some 200 times what 27 bytes of a request take, and a read goes through all that have come;
- the end of a connection counts as an end only where the other side said so (close_notify).
  RFC 8446, 6.1: without it, "truncation attacks" are possible. A connection that just ends is lost
  with an error, as one that was reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from gateway.proxy.kernel import unread_bytes

#: What one read of a socket may bring: little, as it may have to be kept for a while; more where a
#: body is on its way, which is passed on. The buffer is emptied before another connection is read.
READ_BYTES: Final = 16 * 1024
_BUFFER: Final = bytearray(64 * 1024)
_VIEW: Final = memoryview(_BUFFER)
_FEW: Final = _VIEW[:READ_BYTES]
#: RFC 8446, 5.1: "The record layer fragments information blocks into TLSPlaintext records carrying
#: data in chunks of 2^14 bytes or less."
RECORD_BYTES: Final = 16 * 1024

#: What OpenSSL keeps for a connection that is in the middle of something, in round figures.
BUSY_BYTES: Final = 64 * 1024
#: Records of a handshake. A server's certificates, the most there is to send, take seven.
MOST_HANDSHAKE_RECORDS: Final = 256
#: Records without data that a connection may have, and one more for each so many bytes of data. RFC
#: 8446, 5.5: keys are to be renewed after 2^24.5 records at the latest.
MOST_EMPTY_RECORDS: Final = 32
_DATA_PER_EMPTY_BYTES: Final = 64 * 1024
#: Records that OpenSSL is given at once, so that few are read before they are judged.
_MOST_AT_ONCE: Final = 64
#: RFC 8446, 5.1: a type, two bytes of a version, and the length of what follows.
_HEADER_BYTES: Final = 5

#: In place of the protocol of a connection that is lost.
_NOBODY: Final = asyncio.Protocol()


class Records:
    """The records that have come, counted by their headers, which are not encrypted."""

    __slots__ = ("_header", "_left", "whole")

    def __init__(self) -> None:
        #: Those that have come to their end.
        self.whole = 0
        self._header = b""
        self._left = 0

    def is_one(self, data: memoryview) -> bool:
        """Is this one record and no more, as most reads bring? It is counted then."""
        size = len(data)
        if self._left or self._header or size < _HEADER_BYTES:
            return False
        if size - _HEADER_BYTES != data[3] << 8 | data[4]:
            return False
        self.whole += 1
        return True

    def take(self, data: memoryview, start: int) -> int:
        """Count the records from here on, some at a time; where the next ones begin."""
        at, end = start, len(data)
        most = self.whole + _MOST_AT_ONCE
        while at < end and self.whole < most:
            if not self._left:
                header = self._header + data[at : at + _HEADER_BYTES - len(self._header)].tobytes()
                at += len(header) - len(self._header)
                if len(header) < _HEADER_BYTES:
                    self._header = header
                    break
                self._header = b""
                self._left = int.from_bytes(header[3:])
            taken = min(self._left, end - at)
            at += taken
            self._left -= taken
            if not self._left:
                self.whole += 1
        return at


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection's TLS.

    protocol: what is above
    begins:   called when a client's handshake begins to take memory
    opened:   set when the handshake is done, and the protocol hears of the connection then; None:
              it hears of it at once
    server:   the name of the server at the other end; None: a client is there
    """

    __slots__ = (
        "_begins",
        "_closing",
        "_context",
        "_data_bytes",
        "_data_records",
        "_failure",
        "_filled",
        "_incoming",
        "_opened",
        "_outgoing",
        "_paused",
        "_protocol",
        "_ready",
        "_records",
        "_rest",
        "_socket",
        "_tls",
        "_unwrapped",
    )

    _socket: asyncio.Transport
    _protocol: asyncio.BufferedProtocol | asyncio.Protocol

    def __init__(
        self,
        context: ssl.SSLContext,
        protocol: asyncio.BaseProtocol,
        *,
        server: str | None = None,
        opened: asyncio.Future[None] | None = None,
        begins: Callable[[], None] | None = None,
    ) -> None:
        self.set_protocol(protocol)
        self._context = context
        self._opened = opened
        self._begins = begins
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        #: None: a client that has not sent a byte.
        self._tls: ssl.SSLObject | None = None
        if server is not None:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server)
        self._records = Records()
        #: Those that held data, with those of the handshake, and how much data.
        self._data_records = self._data_bytes = 0
        #: Bytes of a record that was read in part.
        self._rest = 0
        #: The handshake is done.
        self._ready = False
        #: The last read of the socket had no room for more.
        self._filled = False
        self._paused = False
        self._closing = False
        #: No more will be written: our close_notify is out.
        self._unwrapped = False
        #: Why the connection is lost, where TLS is the reason.
        self._failure: Exception | None = None

    # -- the socket's side ------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        if self._opened is None:
            self._protocol.connection_made(self)
        if self._tls is not None:
            self._shake()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._filled and self._ready and isinstance(self._protocol, asyncio.BufferedProtocol):
            room = len(cast(bytearray, self._protocol.get_buffer(-1)))
            return _VIEW[: max(room, READ_BYTES)]
        return _FEW

    def buffer_updated(self, nbytes: int) -> None:
        self._filled = nbytes >= READ_BYTES
        if self._tls is None:
            self._begin()
        data, at = _VIEW[:nbytes], 0
        if self._ready and self._records.is_one(data):
            self._incoming.write(data)
            self._read()
            return
        while at < nbytes and not self._closing:
            start, at = at, self._records.take(data, at)
            self._incoming.write(data[start:at])
            if self._ready:
                self._read()
            else:
                self._shake()

    def eof_received(self) -> bool:
        # The peer's close_notify would have been read before.
        self._failure = self._failure or ConnectionResetError("closed without close_notify")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        failure = self._failure or exc
        opened = self._opened
        # Else each would keep the other alive.
        protocol, self._protocol, self._begins = self._protocol, _NOBODY, None
        if opened is None or self._ready:
            protocol.connection_lost(failure)
        elif not opened.done():
            opened.set_exception(failure or ConnectionAbortedError("closed during the handshake"))

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # -- TLS --------------------------------------------------------------------------------------
    def _begin(self) -> None:
        """A client has sent its first bytes."""
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        if self._begins is not None:
            self._begins()

    def _shake(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if self._records.whole > MOST_HANDSHAKE_RECORDS:
                self._fail(ssl.SSLError("a handshake of too many records"))
            return
        except ssl.SSLError as error:  # a certificate that does not verify, too
            self._fail(error)
            return
        self._flush()
        self._ready = True
        self._data_records = self._records.whole
        if self._opened is not None:
            if self._opened.done():  # whoever waited has given up
                self.abort()
                return
            self._protocol.connection_made(self)
            self._opened.set_result(None)
        self._read()

    def _read(self) -> None:
        """Hand over what has come, record by record, while the protocol takes it."""
        tls, incoming = self._tls, self._incoming
        assert tls is not None
        while not (self._paused or self._closing):
            if not incoming.pending and not self._rest:
                break
            try:
                has_ended = not self._hand_over(tls)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                has_ended = True
            except ssl.SSLError as error:
                self._fail(error)
                return
            if has_ended:
                # close_notify: the other side sends no more.
                if not self._protocol.eof_received():
                    self.close()
                return
        # Whatever read them, as OpenSSL goes over them to the next data.
        if self._records.whole - self._data_records > MOST_EMPTY_RECORDS:
            self._judge()
        # OpenSSL answers a key update, for one, by itself.
        if self._outgoing.pending and not self._closing:
            self._flush()

    def _hand_over(self, tls: ssl.SSLObject) -> bool:
        """Read once, and hand it over; False: nothing can come any more. Raises ssl.SSLError.

        OpenSSL gives what is of one record, or a part of that.
        """
        protocol, data = self._protocol, b""
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = cast(bytearray, protocol.get_buffer(-1))
            count = cast(int, tls.read(len(buffer), buffer))
        else:
            data = tls.read(RECORD_BYTES)
            count = len(data)
        self._data_bytes += count
        self._rest = tls.pending()
        if not self._rest:
            self._data_records += 1
        if data:
            cast(asyncio.Protocol, protocol).data_received(data)
        elif count:
            cast(asyncio.BufferedProtocol, protocol).buffer_updated(count)
        return count > 0

    def _judge(self) -> None:
        """How many records had no data? What was not read yet may have some."""
        if self._closing or self._is_behind():
            return
        empty = self._records.whole - self._data_records
        if empty > MOST_EMPTY_RECORDS + self._data_bytes // _DATA_PER_EMPTY_BYTES:
            self._fail(ssl.SSLError("too many records without data"))

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._socket.write(data)

    def _fail(self, error: ssl.SSLError) -> None:
        """Tell the other side by what OpenSSL has to say (an alert), and end."""
        self._failure = self._failure or error
        self._flush()
        self._closing = True
        self._socket.close()

    # -- the protocol's side ----------------------------------------------------------------------
    def has_unread(self) -> bool:
        """Has more come than was handed over?"""
        return self._is_behind() or (self._filled and unread_bytes(self._socket) > 0)

    def _is_behind(self) -> bool:
        return self._incoming.pending > 0 or self._rest > 0

    def held_bytes(self) -> int:
        """What is kept here for it, in round figures; of an idle connection little."""
        if self._ready:
            is_busy = self._is_behind() or self._socket.get_write_buffer_size() > 0
        else:
            is_busy = self._tls is not None
        return BUSY_BYTES if is_busy else 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        tls = self._tls
        if self._unwrapped or self._closing or tls is None:
            return
        sent, size = 0, len(data)
        try:
            # OpenSSL takes a record's worth at a time.
            while sent < size:
                sent += tls.write(data if not sent else memoryview(data)[sent:])
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._socket.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Say that no more is sent. What the other side sends is still read."""
        self._unwrap()
        self._socket.write_eof()

    def _unwrap(self) -> None:
        tls = self._tls
        if self._unwrapped or not self._ready or tls is None:
            return
        self._unwrapped = True
        with contextlib.suppress(ssl.SSLError):  # the other side's close_notify has not come yet
            tls.unwrap()
        self._flush()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._unwrap()
            self._socket.close()

    def abort(self) -> None:
        self._closing = True
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._closing or self._socket.is_closing()

    def pause_reading(self) -> None:
        self._paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self._socket.resume_reading()
        if self._ready and self._is_behind():
            asyncio.get_running_loop().call_soon(self._read)

    def is_reading(self) -> bool:
        return not (self._paused or self._closing)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.BufferedProtocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._context
        return self._tls if name == "ssl_object" else self._socket.get_extra_info(name, default)
