"""TLS between a socket's transport and the protocol above it, in bounded memory.

It is a protocol for the transport below, and a transport for the protocol above. It differs from
the event loop's TLS in four ways, against four attacks:

- for a connection, it keeps only OpenSSL's state: sockets are read into one buffer that all
  connections share, and not while the protocol above is paused. The event loop's TLS takes 256 KB
  for each connection that once sent as much;
- the protocol of a client connection exists from the accept on, so that bounds, deadlines and the
  budget of memory hold for handshakes as well: OpenSSL takes 50 KB for one, from its first byte on;
- records without data are limited. A key update takes 27 bytes, and 8 to 16 µs of CPU time, some
  200 times as much as 27 bytes of a request, and a read processes all that have arrived;
- a connection ends properly only by close_notify. RFC 8446, 6.1: without it, "truncation attacks"
  are possible. A connection that ends otherwise is lost with an error, like one that was reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from gateway.proxy.kernel import unread_bytes

#: The most that one read of a socket returns: little, as it may have to be kept; more during a
#: body, which is passed on. The buffer is emptied before another connection is read.
READ_BYTES: Final = 16 * 1024
_BUFFER: Final = bytearray(64 * 1024)
_VIEW: Final = memoryview(_BUFFER)
_FEW: Final = _VIEW[:READ_BYTES]
#: RFC 8446, 5.1: "The record layer fragments information blocks into TLSPlaintext records carrying
#: data in chunks of 2^14 bytes or less."
RECORD_BYTES: Final = 16 * 1024

#: About what OpenSSL holds for a connection that is reading or writing.
BUSY_BYTES: Final = 64 * 1024
#: Records of a handshake. A server's certificates, its longest part, take seven.
MOST_HANDSHAKE_RECORDS: Final = 256
#: Records without data that a connection may have, and one more for this many bytes of data. RFC
#: 8446, 5.5: keys must be updated after 2^24.5 records at the latest.
MOST_EMPTY_RECORDS: Final = 32
_DATA_PER_EMPTY_BYTES: Final = 64 * 1024
#: Records that OpenSSL gets at once, so that few are read before they are checked.
_MOST_AT_ONCE: Final = 64
#: RFC 8446, 5.1: a type, a version of two bytes, and the length of the rest.
_HEADER_BYTES: Final = 5

#: Replaces the protocol after the connection was lost.
_NO_PROTOCOL: Final = asyncio.Protocol()


class Records:
    """Counts received records by their headers, which are not encrypted."""

    __slots__ = ("_header", "_left", "whole")

    def __init__(self) -> None:
        #: Complete records.
        self.whole = 0
        self._header = b""
        self._left = 0

    def is_one(self, data: memoryview) -> bool:
        """Is this exactly one record, as most reads are? If so, count it."""
        size = len(data)
        if self._left or self._header or size < _HEADER_BYTES:
            return False
        if size - _HEADER_BYTES != data[3] << 8 | data[4]:
            return False
        self.whole += 1
        return True

    def take(self, data: memoryview, start: int) -> int:
        """Count some of the records from `start` on; return where the next ones begin."""
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

    protocol: the protocol above
    begins:   called when a client's handshake begins to take memory
    opened:   set when the handshake is done, after the protocol's `connection_made`; None: that is
              called at once
    server:   the host name of the server at the other end; None: a client is there
    """

    __slots__ = (
        "_before",
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
        "_preamble",
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
        #: Reads what precedes the handshake, if something does, and its bytes so far.
        self._preamble: Callable[[bytes], int] | None = None
        self._before = b""
        self._records = Records()
        #: Records with data, or of the handshake; bytes of data.
        self._data_records = self._data_bytes = 0
        #: Unread bytes of a record that was read in part.
        self._rest = 0
        #: The handshake is done.
        self._ready = False
        #: The last read filled the buffer.
        self._filled = False
        self._paused = False
        self._closing = False
        #: Our close_notify was sent: nothing more is written.
        self._unwrapped = False
        #: Why TLS ended the connection.
        self._failure: Exception | None = None

    # -- called by the transport below ------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        if self._opened is None:
            self._protocol.connection_made(self)
        if self._tls is not None:
            self._handshake()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._filled and self._ready and isinstance(self._protocol, asyncio.BufferedProtocol):
            room = len(cast(bytearray, self._protocol.get_buffer(-1)))
            return _VIEW[: max(room, READ_BYTES)]
        return _FEW

    def buffer_updated(self, nbytes: int) -> None:
        self._filled = nbytes >= READ_BYTES
        if self._tls is None:
            if self._preamble is not None:
                nbytes = self._read_preamble(self._preamble, nbytes)
            if not nbytes or self._closing:
                return
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
                self._handshake()

    def eof_received(self) -> bool:
        # The peer's close_notify would have been read before.
        self._failure = self._failure or ConnectionResetError("closed without close_notify")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        failure = self._failure or exc
        opened = self._opened
        # This breaks the reference cycle.
        protocol, self._protocol = self._protocol, _NO_PROTOCOL
        self._begins = self._preamble = None
        if opened is None or self._ready:
            protocol.connection_lost(failure)
        elif not opened.done():
            opened.set_exception(failure or ConnectionAbortedError("closed during the handshake"))

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _read_preamble(self, read: Callable[[bytes], int], nbytes: int) -> int:
        """Read what precedes the handshake; return how many bytes follow it in the buffer."""
        self._before += _VIEW[:nbytes].tobytes()
        length = read(self._before)
        if not length:
            return 0
        rest, self._before, self._preamble = self._before[length:], b"", None
        _VIEW[: len(rest)] = rest
        return len(rest)

    # -- TLS --------------------------------------------------------------------------------------
    def _begin(self) -> None:
        """Create OpenSSL's state, when a client has sent its first bytes."""
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        if self._begins is not None:
            self._begins()

    def _handshake(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if self._records.whole > MOST_HANDSHAKE_RECORDS:
                self._fail(ssl.SSLError("a handshake of too many records"))
            return
        except ssl.SSLError as error:  # includes a certificate that does not verify
            self._fail(error)
            return
        self._flush()
        self._ready = True
        self._data_records = self._records.whole
        if self._opened is not None:
            if self._opened.done():  # cancelled, with the task that waited
                self.abort()
                return
            self._protocol.connection_made(self)
            self._opened.set_result(None)
        self._read()

    def _read(self) -> None:
        """Pass on the data, record by record, unless reading is paused."""
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
                # close_notify: the other side sends nothing more.
                if not self._protocol.eof_received():
                    self.close()
                return
        # OpenSSL skips records without data, so they are counted after each read.
        if self._records.whole - self._data_records > MOST_EMPTY_RECORDS:
            self._check_empty_records()
        # OpenSSL's own answers, for example to a key update.
        if self._outgoing.pending and not self._closing:
            self._flush()

    def _hand_over(self, tls: ssl.SSLObject) -> bool:
        """Read once, and pass that on; False: there will be no more. Raises ssl.SSLError.

        OpenSSL returns the data of one record, or a part of it.
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

    def _check_empty_records(self) -> None:
        """Fail if too many records had no data. Unread ones may have some."""
        if self._closing or self._is_behind():
            return
        empty = self._records.whole - self._data_records
        if empty > MOST_EMPTY_RECORDS + self._data_bytes // _DATA_PER_EMPTY_BYTES:
            self._fail(ssl.SSLError("too many records without data"))

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._socket.write(data)

    def _fail(self, error: ssl.SSLError) -> None:
        """Close, after sending OpenSSL's alert."""
        self._failure = self._failure or error
        self._flush()
        self._closing = True
        self._socket.close()

    # -- called by the protocol above -------------------------------------------------------------
    def expect_preamble(self, read: Callable[[bytes], int]) -> None:
        """Call `read` with all bytes so far, until it returns the length of what precedes TLS.

        read: returns 0 for an incomplete preamble; it has to bound its length, or abort
        """
        self._preamble = read

    def has_unread(self) -> bool:
        """Were more bytes received than passed on?"""
        return self._is_behind() or (self._filled and unread_bytes(self._socket) > 0)

    def _is_behind(self) -> bool:
        return self._incoming.pending > 0 or self._rest > 0

    def held_bytes(self) -> int:
        """About what is held for it; 0 for an idle connection."""
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
            # OpenSSL takes at most one record at a time.
            while sent < size:
                sent += tls.write(data if not sent else memoryview(data)[sent:])
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._socket.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Announce that nothing more is sent. Data from the other side is still read."""
        self._unwrap()
        self._socket.write_eof()

    def _unwrap(self) -> None:
        tls = self._tls
        if self._unwrapped or not self._ready or tls is None:
            return
        self._unwrapped = True
        with contextlib.suppress(ssl.SSLError):  # the other side's close_notify was not received
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
