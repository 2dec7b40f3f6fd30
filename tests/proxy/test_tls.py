"""TLS between a socket and a protocol, without either: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import ssl
import weakref
from pathlib import Path
from typing import Any

import pytest

from gateway.proxy.tls import (
    BUSY_BYTES,
    MOST_EMPTY_RECORDS,
    MOST_HANDSHAKE_RECORDS,
    READ_BYTES,
    Records,
    TlsTransport,
)
from tests.kit.certificates import Certificate, make_certificate
from tests.kit.transport import PEER, MemoryTransport

NAME = "gateway.test"


class Upper(asyncio.BufferedProtocol):
    """The protocol above. log: its calls, except for bytes, which are in `data`."""

    transport: TlsTransport

    def __init__(self, room: int = 4096) -> None:
        self.log: list[str] = []
        self.data = bytearray()
        self.lost: Exception | None = None
        self.keeps_open = False
        self._buffer = bytearray(room)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.log.append("made")

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]

    def eof_received(self) -> bool:
        self.log.append("eof")
        return self.keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.log.append("lost")
        self.lost = exc


class Preamble(Upper):
    """Has "hi:" precede the handshake; refuses any other beginning."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.seen: list[bytes] = []
        transport.expect_preamble(self.read)

    def read(self, data: bytes) -> int:
        self.seen.append(data)
        if not b"hi:".startswith(data[:3]):
            self.transport.abort()
        return 3 if data[:3] == b"hi:" else 0


class Peer:
    """The other end: OpenSSL alone, and the socket that leads to it."""

    def __init__(
        self, context: ssl.SSLContext, transport: TlsTransport, *, is_server: bool
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=is_server,
            server_hostname=None if is_server else NAME,
        )
        self.socket = MemoryTransport()
        self.transport = transport
        transport.connection_made(self.socket)

    def deliver(self, data: bytes, piece: int = READ_BYTES) -> None:
        """Have the transport read these bytes from its socket."""
        while data:
            buffer = self.transport.get_buffer(-1)
            size = min(piece, len(buffer), len(data))
            buffer[:size] = data[:size]
            self.transport.buffer_updated(size)
            data = data[size:]

    def shake(self, piece: int = READ_BYTES) -> None:
        """Do the whole handshake."""
        for _ in range(4):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            self.pass_on(piece)

    def pass_on(self, piece: int = READ_BYTES) -> None:
        """Deliver to each end what the other has written so far."""
        self.deliver(self._outgoing.read(), piece)
        self._incoming.write(bytes(self.socket.written))
        self.socket.written.clear()

    def written(self, data: bytes) -> bytes:
        """The records of this data, however long it is."""
        at = 0
        while at < len(data):
            at += self.tls.write(data[at:])
        return self._outgoing.read()

    def send(self, data: bytes, piece: int = READ_BYTES) -> None:
        """Write the data and deliver it."""
        self.deliver(self.written(data), piece)

    def key_updates(self, count: int, *, answered: bool = False) -> bytes:
        """Key updates (RFC 8446, 4.6.3), for which Python's ssl has no call: by OpenSSL's."""
        import _ssl  # the private module behind `ssl`

        library = ctypes.CDLL(_ssl.__file__)
        if not hasattr(library, "SSL_key_update"):
            pytest.skip("OpenSSL is a part of this Python, and does not show SSL_key_update")
        # The object: a head of two words, a reference to its owner, and then OpenSSL's SSL.
        words = ctypes.sizeof(ctypes.c_void_p)
        at = id(self.tls._sslobj) + 3 * words  # type: ignore[attr-defined]
        pointer = ctypes.c_void_p.from_address(at)
        assert self.tls.version() == "TLSv1.3"
        for _ in range(count):
            assert library.SSL_key_update(pointer, int(answered)) == 1
            assert library.SSL_do_handshake(pointer) == 1
        return self._outgoing.read()

    def ends(self) -> None:
        """Send close_notify."""
        with contextlib.suppress(ssl.SSLError):
            self.tls.unwrap()
        self.deliver(self._outgoing.read())

    def read(self) -> bytes:
        """Read all that has arrived."""
        self._incoming.write(bytes(self.socket.written))
        self.socket.written.clear()
        data = b""
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while piece := self.tls.read(65536):
                data += piece
        return data

    def has_ended(self) -> bool:
        """Did the gateway's side send close_notify?"""
        self.read()
        try:
            return self.tls.read(1) == b""
        except ssl.SSLZeroReturnError:
            return True
        except ssl.SSLWantReadError:
            return False


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), [NAME])


def server_context(made: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    return context


def client_context(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca))


@pytest.fixture
def upper() -> Upper:
    return Upper()


@pytest.fixture
def client(made: Certificate, upper: Upper) -> Peer:
    """A client connection of a gateway, before its first byte."""
    return Peer(client_context(made.ca), TlsTransport(server_context(made), upper), is_server=False)


@pytest.mark.parametrize("piece", [READ_BYTES, 1])
def test_bytes_pass_both_ways(client: Peer, upper: Upper, piece: int) -> None:
    """For any split, each end reads what the other writes."""
    assert upper.log == ["made"]  # at once: bounds and deadlines hold for the handshake, too
    client.shake(piece)
    client.send(b"a request", piece)
    upper.transport.write(b"an answer")
    assert (bytes(upper.data), client.read()) == (b"a request", b"an answer")
    assert upper.transport.get_extra_info("ssl_object").version() == client.tls.version()
    assert upper.transport.get_extra_info("peername") == PEER


@pytest.mark.parametrize("piece", [READ_BYTES, 2, 1])
@pytest.mark.parametrize("together", [True, False])
def test_a_preamble_before_the_handshake(made: Certificate, piece: int, together: bool) -> None:
    """It is read, however it is split; TLS begins with the byte after it, also in the same read."""
    upper = Preamble()
    begun: list[str] = []
    transport = TlsTransport(server_context(made), upper, begins=lambda: begun.append("tls"))
    peer = Peer(client_context(made.ca), transport, is_server=False)
    if together:
        with contextlib.suppress(ssl.SSLWantReadError):
            peer.tls.do_handshake()
        peer.deliver(b"hi:" + peer._outgoing.read(), piece)
    else:
        peer.deliver(b"hi:", piece)
        assert (begun, transport.held_bytes()) == ([], 0)
    peer.shake(piece)
    peer.send(b"a request", piece)
    upper.transport.write(b"an answer")
    assert (bytes(upper.data), peer.read()) == (b"a request", b"an answer")
    assert begun == ["tls"]
    assert all(len(seen) <= 3 for seen in upper.seen) or together


def test_another_beginning_than_the_preamble(made: Certificate) -> None:
    """The protocol ends it, before TLS takes any memory."""
    upper = Preamble()
    transport = TlsTransport(server_context(made), upper, begins=pytest.fail)
    peer = Peer(client_context(made.ca), transport, is_server=False)
    peer.deliver(b"\x16\x03\x01")
    assert peer.socket.ended == "abort"
    assert transport._tls is None
    transport.connection_lost(None)
    assert upper.log == ["made", "lost"]


def test_what_is_longer_than_a_record(client: Peer, upper: Upper) -> None:
    """Both ways, in as many records as needed."""
    client.shake()
    long = bytes(range(256)) * 1000
    client.send(long)
    upper.transport.write(long)
    assert bytes(upper.data) == long == client.read()


def test_a_proper_end(client: Peer, upper: Upper) -> None:
    """close_notify is the end; it is answered if the protocol does not stay open."""
    client.shake()
    client.ends()
    assert upper.log == ["made", "eof"]
    assert client.socket.ended == "close"
    assert client.has_ended()
    client.transport.connection_lost(None)
    assert (upper.log, upper.lost) == (["made", "eof", "lost"], None)


def test_an_end_without_close_notify(client: Peer, upper: Upper) -> None:
    """A connection that ends without it was cut off: the protocol gets an error, and no EOF."""
    client.shake()
    client.send(b"half an answ")
    assert not client.transport.eof_received()
    client.transport.connection_lost(None)
    assert upper.log == ["made", "lost"]
    assert isinstance(upper.lost, ConnectionResetError)


def test_one_direction_ends(client: Peer, upper: Upper) -> None:
    """A side that has ended can still receive, in both directions."""
    upper.keeps_open = True
    client.shake()
    client.send(b"all")
    client.ends()
    assert not client.socket.is_closed
    upper.transport.write(b"an answer")
    assert client.read() == b"an answer"
    upper.transport.write_eof()
    assert client.socket.wrote_eof
    assert client.has_ended()
    upper.transport.write(b"too late")
    assert client.read() == b""


async def test_a_protocol_that_is_paused(client: Peer, upper: Upper) -> None:
    """It gets no more; what was read before waits until it resumes."""
    client.shake()
    upper.buffer_updated = lambda nbytes: (  # type: ignore[method-assign]
        Upper.buffer_updated(upper, nbytes),
        upper.transport.pause_reading(),
    )[0]
    client.send(b"x" * READ_BYTES, piece=READ_BYTES)
    assert client.socket.is_paused
    assert client.transport.has_unread()
    seen = []
    while len(upper.data) < READ_BYTES:
        seen.append(len(upper.data))
        upper.transport.resume_reading()
        await asyncio.sleep(0)
    assert seen == list(range(4096, READ_BYTES, 4096))
    assert not client.transport.has_unread()


def test_reads_are_small(client: Peer, upper: Upper) -> None:
    """One read returns a record's worth, unless the protocol has room for more."""
    client.shake()
    sent = client.written(b"y" * READ_BYTES * 4)
    client.deliver(sent[:READ_BYTES])
    assert len(client.transport.get_buffer(-1)) == READ_BYTES
    client.transport.set_protocol(Upper(room=4 * READ_BYTES))
    assert len(client.transport.get_buffer(-1)) == 4 * READ_BYTES
    client.deliver(sent[READ_BYTES:])
    client.send(b"y")
    assert len(client.transport.get_buffer(-1)) == READ_BYTES


def test_what_waits_behind_an_answer(client: Peer, upper: Upper) -> None:
    """A second record in the same read is known of while the first one is passed on."""
    client.shake()
    found = []

    def look(nbytes: int) -> None:
        Upper.buffer_updated(upper, nbytes)
        found.append(client.transport.has_unread())

    upper.buffer_updated = look  # type: ignore[method-assign]
    client.tls.write(b"an answer")
    client.send(b"and what nobody asked for")
    assert found == [True, False]


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 64]
)
def test_bytes_that_are_not_tls(client: Peer, upper: Upper, garbage: bytes) -> None:
    """It is answered by an alert or nothing, and closed."""
    client.deliver(garbage)
    assert client.socket.ended == "close"
    client.transport.connection_lost(None)
    assert isinstance(upper.lost, ssl.SSLError)
    assert upper.data == b""


def test_invalid_records(client: Peer, upper: Upper) -> None:
    """After the handshake, too."""
    client.shake()
    client.deliver(b"\x17\x03\x03\x00\x20" + b"z" * 32)
    assert client.socket.ended == "close"
    client.transport.connection_lost(None)
    assert isinstance(upper.lost, ssl.SSLError)


def test_a_plain_protocol(made: Certificate) -> None:
    """A protocol with `data_received` gets bytes."""
    pieces: list[bytes] = []

    class Plain(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            pieces.append(data)

    client = Peer(
        client_context(made.ca), TlsTransport(server_context(made), Plain()), is_server=False
    )
    client.shake()
    client.send(b"hello")
    assert pieces == [b"hello"]


def test_abort_and_close(client: Peer, upper: Upper) -> None:
    """Abort sends nothing; after a close nothing is written or passed on."""
    client.shake()
    upper.transport.close()
    assert upper.transport.is_closing()
    upper.transport.write(b"more")
    client.send(b"more")
    assert (bytes(upper.data), client.read()) == (b"", b"")
    upper.transport.abort()
    assert client.socket.is_aborted


class ToServer:
    """A connection of the gateway to a server."""

    def __init__(self, made: Certificate, trusted: Path, name: str = NAME) -> None:
        self.upper = Upper()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        transport = TlsTransport(
            client_context(trusted), self.upper, server=name, opened=self.opened
        )
        self.peer = Peer(server_context(made), transport, is_server=True)
        self.peer.pass_on()

    def shake(self) -> None:
        for _ in range(4):
            with contextlib.suppress(ssl.SSLError):
                self.peer.tls.do_handshake()
            if not self.peer.socket.is_closed:
                self.peer.pass_on()


async def test_a_server_that_verifies(made: Certificate) -> None:
    """After the handshake, its protocol gets the connection, and the waiting task continues."""
    server = ToServer(made, made.ca)
    assert server.upper.log == []
    server.shake()
    await server.opened
    assert server.upper.log == ["made"]
    server.upper.transport.write(b"a request")
    server.peer.send(b"an answer")
    assert (server.peer.read(), bytes(server.upper.data)) == (b"a request", b"an answer")


async def test_a_server_that_does_not(made: Certificate, tmp_path: Path) -> None:
    """With another authority or name, the waiting task gets the error."""
    other = make_certificate(tmp_path, ["other.test"])
    for server in (ToServer(made, other.ca), ToServer(made, made.ca, "other.test")):
        server.shake()
        assert server.peer.socket.ended == "close"
        server.peer.transport.connection_lost(None)
        with pytest.raises(ssl.SSLCertVerificationError):
            await server.opened
        assert server.upper.log == []


async def test_a_server_that_closes(made: Certificate) -> None:
    """If it closes during the handshake, the waiting task gets the error."""
    server = ToServer(made, made.ca)
    server.peer.transport.eof_received()
    server.peer.transport.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await server.opened


async def test_a_handshake_after_its_timeout(made: Certificate) -> None:
    """A handshake that ends after its timeout is aborted."""
    server = ToServer(made, made.ca)
    server.opened.cancel()
    server.shake()
    assert server.peer.socket.is_aborted
    assert server.upper.log == []


@pytest.mark.parametrize("piece", [1, 7, READ_BYTES])
def test_records_are_counted(piece: int) -> None:
    """For any split, each is counted at its end, and no byte is lost."""
    sizes = [0, 1, 300, 16_384, 2, 0]
    data = b"".join(b"\x17\x03\x03" + size.to_bytes(2) + bytes(size) for size in sizes)
    records, ends = Records(), []
    for start in range(0, len(data), piece):
        view = memoryview(data)[start : start + piece]
        at = 0
        while at < len(view):
            before, at = records.whole, records.take(view, at)
            ends += [records.whole] * (records.whole - before)
    assert records.whole == len(sizes)
    assert ends == sorted(ends)


def test_many_records_are_taken_some_at_a_time() -> None:
    """Records behind an invalid one are not read."""
    data = memoryview(b"\x17\x03\x03\0\1x" * 1000)
    assert Records().take(data, 0) == 64 * 6


def test_key_updates_without_end(client: Peer, upper: Upper) -> None:
    """Some are fine; hundreds without data between them end the connection after a few dozen."""
    client.shake()
    client.deliver(client.key_updates(MOST_EMPTY_RECORDS, answered=True))
    client.send(b"a request")
    assert bytes(upper.data) == b"a request"
    assert not client.socket.is_closed
    client.deliver(client.key_updates(500))
    assert client.socket.ended == "close"
    upper.transport.connection_lost(None)
    assert "too many records without data" in str(upper.lost)


def test_key_updates_among_data(client: Peer, upper: Upper) -> None:
    """A connection with much data may renew its keys now and then."""
    client.shake()
    for _ in range(3 * MOST_EMPTY_RECORDS):
        client.deliver(client.key_updates(1))
        client.send(bytes(64 * 1024))
    assert not client.socket.is_closed
    for _ in range(2 * MOST_EMPTY_RECORDS):
        client.deliver(client.key_updates(1))
        if not client.socket.is_closed:
            client.send(b"x")
    assert client.socket.ended == "close"


def test_key_updates_before_each_byte(client: Peer, upper: Upper) -> None:
    """Data behind them in the same read does not hide them."""
    client.shake()
    for _ in range(3 * MOST_EMPTY_RECORDS):
        if not client.socket.is_closed:
            client.deliver(client.key_updates(1) + client.written(b"x"))
    assert client.socket.ended == "close"


async def test_unread_key_updates(client: Peer, upper: Upper) -> None:
    """Unread records are not counted until they are read."""
    client.shake()
    upper.transport.pause_reading()
    client.deliver(client.written(b"a request") + client.key_updates(500))
    assert not client.socket.is_closed
    upper.transport.resume_reading()
    await asyncio.sleep(0)
    assert bytes(upper.data) == b"a request"
    assert client.socket.ended == "close"


@pytest.mark.parametrize("piece", [READ_BYTES, 1])
def test_short_records_of_data(client: Peer, upper: Upper, piece: int) -> None:
    """A byte in each is slow, but allowed."""
    client.shake()
    for _ in range(1000):
        client.send(b"x", piece)
    assert bytes(upper.data) == b"x" * 1000
    assert not client.socket.is_closed


def test_a_handshake_of_many_records(client: Peer, upper: Upper) -> None:
    """A handshake may be split into records of one byte, but only up to a bound."""
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    hello = client._outgoing.read()[5:]
    cut = b"".join(b"\x16\x03\x01\0\1" + bytes([byte]) for byte in hello)
    client.deliver(cut[: 6 * MOST_HANDSHAKE_RECORDS])
    assert not client.socket.is_closed
    client.deliver(cut[6 * MOST_HANDSHAKE_RECORDS :])
    assert client.socket.ended == "close"


def test_what_is_held(made: Certificate, upper: Upper) -> None:
    """Nothing before the first byte; then a handshake's state, which is reported."""
    begun: list[int] = []
    transport = TlsTransport(server_context(made), upper, begins=lambda: begun.append(1))
    client = Peer(client_context(made.ca), transport, is_server=False)
    assert (transport.held_bytes(), begun) == (0, [])
    client.deliver(b"\x16")
    assert (transport.held_bytes(), begun) == (BUSY_BYTES, [1])
    client = Peer(
        client_context(made.ca), TlsTransport(server_context(made), upper), is_server=False
    )
    client.shake()
    assert client.transport.held_bytes() == 0
    client.transport.pause_reading()
    client.send(b"ahead")
    assert client.transport.held_bytes() == BUSY_BYTES


async def test_a_client_that_is_reported_after_its_handshake(made: Certificate) -> None:
    """As for the admin listener, whose protocol needs only the data."""
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    upper = Upper()
    transport = TlsTransport(server_context(made), upper, opened=opened)
    client = Peer(client_context(made.ca), transport, is_server=False)
    assert upper.log == []
    client.shake()
    await opened
    client.send(b"a request")
    assert (upper.log, bytes(upper.data)) == (["made"], b"a request")


def test_a_connection_that_is_lost_is_freed(made: Certificate) -> None:
    """It is freed at once, without the cycle collector, which workers do not run."""
    upper = Upper()
    transport = TlsTransport(server_context(made), upper, begins=upper.resume_writing)
    transport.connection_made(MemoryTransport())
    seen = weakref.ref(upper)
    transport.connection_lost(None)
    gc.disable()
    try:
        del upper
        assert seen() is None
    finally:
        gc.enable()
