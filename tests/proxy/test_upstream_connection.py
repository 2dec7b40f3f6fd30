"""An upstream connection: its bytes in any split, where an answer ends, and when it is reused."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.upstreams import Server, Upstream
from gateway.proxy.upstream_connection import READ_BYTES, TimedConnection
from tests.bench.rig import deliver
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.proxy import Client, proxy_bench, request
from tests.kit.transport import MemoryTransport
from tests.kit.upstream import Exchange, build_response, echo
from tests.kit.wire import Wire, WireError, bearer, build_request
from tests.proxy.conftest import Bench, Start
from tests.proxy.test_upstreams import CASES, DRIP_BYTES, Case
from tests.wire.judge import read_answers

#: With this, closing sends a reset.
_NO_LINGER = struct.pack("ii", 1, 0)


# -- in memory: bytes in, bytes out ----------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an answer.

    answers:   what the client got: status, interim statuses and body; none: its connection broke,
               or it still waits
    is_reused: the connection is kept for the next request
    """

    answers: tuple[tuple[str, tuple[str, ...], bytes], ...]
    is_reused: bool


def outcome_of(pieces: Iterable[bytes], method: str = "GET", ends: bool = False) -> Outcome:
    """The outcome of an answer that arrives in these pieces. ends: the server closes after it."""
    with proxy_bench() as bench:
        client = bench.client()
        client.send(request(bench.key, "/api/x", method))
        end = bench.asked()
        assert end is not None
        for piece in pieces:
            end.push(piece)
            bench.loop.run_all()
        if ends:
            end.end()
        bench.loop.run_all()
        is_over = client.is_closed or client.wrote_eof
        found, _ = read_answers(bytes(client.written), (method,), is_over and not client.is_aborted)
        answers = tuple((one.start, tuple(one.interim), one.body) for one in found)
        (pool,) = bench.context.pools._by_server.values()
        is_busy = end.protocol.exchange is not None
        assert is_busy + bool(pool.idle) + end.is_closed == 1, "it is busy, or kept, or closed"
        return Outcome(answers, bool(pool.idle))


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
OK_CHUNKS = b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n"

TABLE = [
    # the request's method and the answer; the client's status and body; is the connection kept?
    ("GET", LENGTH + b"\r\nok", "200", b"ok", True),
    ("GET", LENGTH + b"\r\nok!", "200", b"ok", False),  # an extra byte
    ("GET", LENGTH + b"Connection: close\r\n\r\nok", "200", b"ok", False),
    ("GET", LENGTH.replace(b"1.1", b"1.0") + b"\r\nok", "200", b"ok", False),
    ("HEAD", LENGTH + b"\r\n", "200", b"", True),
    ("HEAD", LENGTH + b"\r\nok", "200", b"", False),
    ("GET", CHUNKED + OK_CHUNKS, "200", b"ok", True),
    ("GET", CHUNKED + OK_CHUNKS + b"0", "200", b"ok", False),
    ("GET", b"HTTP/1.1 204 N\r\n\r\n", "204", b"", True),
    # RFC 9110, 8.6: a 204 announces no body; a server that does may send it.
    ("GET", LENGTH.replace(b"200 OK", b"204 N") + b"\r\n", "204", b"", False),
    ("GET", LENGTH.replace(b"200 OK", b"304 N") + b"\r\n", "304", b"", True),
    ("GET", LENGTH.replace(b"200 OK", b"304 N") + b"\r\nok", "304", b"", False),
    ("GET", b"HTTP/1.1 103 E\r\n\r\n" + LENGTH + b"\r\nok", "200", b"ok", True),
    ("GET", b"HTTP/1.1 101 S\r\n\r\n", "502", None, False),
    ("GET", b"HTTP/1.1 100 C\r\n\r\n" * 16 + LENGTH + b"\r\nok", "200", b"ok", True),
    ("GET", b"HTTP/1.1 100 C\r\n\r\n" * 17, "502", None, False),
    ("GET", b"HTTP/1.1 abc\r\n\r\n", "502", None, False),
    ("GET", b"SSH-2.0-OpenSSH\r\n", "502", None, False),
    ("GET", b"HTTP/1.1 200 OK\n", "502", None, False),
]


@pytest.mark.parametrize(("method", "answer", "status", "body", "is_reused"), TABLE)
@pytest.mark.parametrize("step", [0, 1, 3])
def test_answers(
    method: str, answer: bytes, status: str, body: bytes | None, is_reused: bool, step: int
) -> None:
    """What the client gets, and whether the connection is reused."""
    step = step or len(answer)
    pieces = [answer[at : at + step] for at in range(0, len(answer), step)]
    outcome = outcome_of(pieces, method)
    ((got, _, content),) = outcome.answers
    assert (got, outcome.is_reused) == (status, is_reused)
    assert body is None or content == body


SHORT = [case for case in CASES if len(case.answer) <= DRIP_BYTES]


@given(st.sampled_from(SHORT), st.lists(st.integers(0, DRIP_BYTES), max_size=6))
def test_the_pieces_do_not_matter(case: Case, cuts: list[int]) -> None:
    """The outcome is the same for any split of an answer."""
    answer, ends = case.answer, case.ending == "close"
    places = sorted({min(cut, len(answer)) for cut in cuts} | {0, len(answer)})
    pieces = [answer[start:end] for start, end in pairwise(places)]
    found, whole = (outcome_of(sent, case.method, ends) for sent in (pieces, [answer]))
    if case.outcome == "cut":
        # How much was sent before that was detected depends on the pieces.
        assert {found.is_reused, whole.is_reused} == {False}
        assert {one[0] for one in (*found.answers, *whole.answers)} <= {"502"}
    else:
        assert found == whole


#: Bodies that are not complete yet: their framing, and what of them was sent.
UNFINISHED = {
    "length": ("Content-Length: 99", b"abc"),
    "nothing yet": ("Content-Length: 99", b""),
    "chunked": ("Transfer-Encoding: chunked", b"3\r\nabc\r\n"),
    "in a chunk": ("Transfer-Encoding: chunked", b"63\r\nabc"),
}
#: Answers that end at different places of the code: at once, later, without a body, in chunks.
EARLY = {
    "length": [b"HTTP/1.1 413 L\r\nContent-Length: 2\r\n\r\nno"],
    "length, later": [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"ok"],
    "no body": [b"HTTP/1.1 204 N\r\n\r\n"],
    "chunked": [CHUNKED + OK_CHUNKS],
    "chunked, later": [CHUNKED, OK_CHUNKS],
}


@pytest.mark.parametrize("answer", EARLY)
@pytest.mark.parametrize("body", UNFINISHED)
def test_an_unfinished_request_ends_its_connection(body: str, answer: str) -> None:
    """The server would read the head of the next client's request as the rest of the body."""
    framing, begun = UNFINISHED[body]
    with proxy_bench() as bench:
        other = bench.add_upstream()
        first = bench.client()
        (used,) = (end for end in bench.upstreams if end is not other)
        head = request(bench.key, "/api/first", "POST")[:-2]
        first.send(head + framing.encode() + b"\r\n\r\n" + begun)
        for piece in EARLY[answer]:
            used.push(piece)
        bench.loop.run_all()
        sent = bytes(used.written)
        assert sent.startswith(b"POST /api/first HTTP/1.1\r\n")
        assert sent.count(b" HTTP/1.1\r\n") == 1
        assert len(first.statuses) == 1
        second = Client(bench.context)
        second.send(request(bench.key, "/api/second"))
        bench.loop.run_all()
        assert (bytes(used.written), used.is_closed) == (sent, True)
        assert other.written.startswith(b"GET /api/second HTTP/1.1\r\n")
        other.push(LENGTH + b"\r\nok")
        bench.loop.run_all()
        assert second.statuses == [200]


def test_an_answer_after_a_finished_request_keeps_its_connection() -> None:
    """An answer may begin before the request's end; if it ends after it, nothing is missing."""
    with proxy_bench() as bench:
        client = bench.client()
        (used,) = bench.upstreams
        client.send(request(bench.key, "/api/first", "POST", b"whole")[:-2])
        used.push(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
        client.send(b"le")
        used.push(b"k")
        Client(bench.context).send(request(bench.key, "/api/second"))
        bench.loop.run_all()
        assert b"\r\n\r\nwholeGET /api/second HTTP/1.1\r\n" in used.written
        assert not used.is_closed


def test_interim_responses_of_two_requests() -> None:
    """Each may have as many as the other."""
    with proxy_bench() as bench:
        client = bench.client()
        for _ in range(2):
            client.send(request(bench.key, "/api/x"))
            bench.answer(b"HTTP/1.1 100 C\r\n\r\n" * 16 + LENGTH + b"\r\nok")
        assert client.statuses == [200, 200]
        assert not bench.upstreams[0].is_closed


def test_a_server_that_answers_and_does_not_take_the_request() -> None:
    """Its connection is not used again: what is still unsent would come before the next head."""
    with proxy_bench() as bench:
        client = bench.client()
        (end,) = bench.upstreams
        end.takes = False
        client.send(request(bench.key, "/api/x", "POST", b"x" * 60_000))
        exchange = client.connection.exchange
        assert exchange is not None
        assert exchange.is_sent
        end.push(LENGTH + b"\r\nok")
        assert (client.statuses, end.is_closed) == ([200], True)


class Unread:
    """A TLS connection that has received more than it has passed on."""

    def has_unread(self) -> bool:
        return True


def test_decrypted_bytes_behind_an_answer() -> None:
    """Over TLS they may be there already: the connection is not used again."""
    with proxy_bench() as bench:
        client = bench.client()
        (end,) = bench.upstreams
        end.protocol._tls = Unread()
        client.send(request(bench.key, "/api/x"))
        end.push(LENGTH + b"\r\nok")
        assert (client.statuses, end.is_closed) == ([200], True)


@pytest.mark.parametrize(
    ("is_used", "answer", "failures"),
    [
        (True, b"", 0),  # it may close an idle connection at any moment
        (False, b"", 1),
        (True, b"HTTP/1.1 200 OK\r\n", 1),
        (True, LENGTH + b"\r\no", 0),  # what it says of its own answer
        (True, b"SSH-2.0-OpenSSH\r\n", 1),
        (True, CHUNKED + b"x\r\n", 0),
    ],
)
def test_failures_of_the_server(is_used: bool, answer: bytes, failures: int) -> None:
    """Only those before an answer has begun; enough of them eject it."""
    with proxy_bench() as bench:
        client = bench.client()
        (pool,) = bench.context.pools._by_server.values()
        if is_used:
            client.send(request(bench.key, "/api/first"))
            bench.answer()
        client.send(request(bench.key, "/api/x", "POST"))
        (end,) = bench.upstreams
        end.push(answer)
        end.end()
        bench.loop.run_all()
        assert pool.health.failures == failures


def test_an_answer_that_is_late() -> None:
    """It is a failure of the server."""
    with proxy_bench() as bench:
        client = bench.client()
        (pool,) = bench.context.pools._by_server.values()
        client.send(request(bench.key, "/api/x"))
        client.connection.check_deadline(bench.loop.now_s + pool.response_s)
        assert (client.statuses, pool.health.failures) == ([504], 1)


@pytest.mark.parametrize(("body", "waited_s"), [(b"whole", 3.0), (b"who", 0.0)])
def test_how_long_a_server_took(
    monkeypatch: pytest.MonkeyPatch, body: bytes, waited_s: float
) -> None:
    """Its time begins when it has the whole request: an answer that comes before is not late."""
    with proxy_bench() as bench:
        (pool,) = bench.context.pools._by_server.values()
        pool.health.counted = True
        found: list[float] = []
        monkeypatch.setattr(type(pool), "answered", lambda _pool, _status, s: found.append(s))
        connection = TimedConnection(pool)
        end = MemoryTransport(connection)
        connection.connection_made(end)
        pool.idle.append(connection)
        client = Client(bench.context)
        client.send(request(bench.key, "/api/x", "POST", b"whole")[:-5])
        bench.loop.advance(2.0)
        client.send(body)
        bench.loop.advance(3.0)
        end.push(LENGTH + b"\r\nok")
        assert found == [waited_s]


def test_a_head_that_comes_at_once_and_is_too_long() -> None:
    """The bound also holds for a complete head."""
    answer = b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n"
    for pieces in ([answer], [answer[:50_000], answer[50_000:]]):
        outcome = outcome_of(pieces)
        assert [one[0] for one in outcome.answers] == ["502"]
        assert not outcome.is_reused


@given(st.lists(st.binary(max_size=40), max_size=5), st.booleans(), st.booleans())
def test_any_bytes_at_all(pieces: list[bytes], has_begun: bool, ends: bool) -> None:
    """Any bytes are an answer, an incomplete one, or refused; never an exception."""
    begun = [b"HTTP/1.1 200 OK\r\n"] if has_begun else []
    outcome_of([*begun, *(piece for piece in pieces if piece)], ends=ends)


# -- an answer that ends with its connection -------------------------------------------------------
HALF = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf"


def says_goodbye(connection: ssl.SSLSocket) -> None:
    """close_notify, then FIN."""
    connection.unwrap().close()


def just_ends(connection: ssl.SSLSocket) -> None:
    """FIN without close_notify, as an attacker in between can send it."""
    connection.shutdown(socket.SHUT_WR)


def resets(connection: ssl.SSLSocket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    connection.close()


@pytest.fixture
def tls_upstream(tmp_path: Path) -> Iterator[Callable[..., Upstream]]:
    """An https upstream that answers one request with `answer`, and then ends in the given way."""
    made = make_certificate(tmp_path / "upstream", ["localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    tasks: list[asyncio.Future[None]] = []

    def serve(answer: bytes, end: Callable[[ssl.SSLSocket], None]) -> None:
        accepted, _ = listener.accept()
        with context.wrap_socket(accepted, server_side=True) as connection:
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            connection.sendall(answer)
            try:
                end(connection)
                connection.recv(1)
            except OSError:
                pass

    def start(answer: bytes, end: Callable[[ssl.SSLSocket], None]) -> Upstream:
        loop = asyncio.get_running_loop()
        tasks.append(loop.run_in_executor(None, serve, answer, end))
        server = Server("https", "localhost", listener.getsockname()[1])
        return Upstream("api", (server,), ca=str(made.ca))

    yield start
    listener.close()


@pytest.mark.parametrize(
    ("end", "is_whole"), [(says_goodbye, True), (just_ends, False), (resets, False)]
)
async def test_a_body_that_ends_with_its_tls(
    start: Start,
    tls_upstream: Callable[..., Upstream],
    end: Callable[[ssl.SSLSocket], None],
    is_whole: bool,
) -> None:
    """Only close_notify completes it (RFC 9112, 9.8); else the client sees a truncated one."""
    seen = threading.Event()

    def end_after_that(connection: ssl.SSLSocket) -> None:
        seen.wait(20)  # a reset would overtake it
        end(connection)

    bench = await start(upstreams={"api": tls_upstream(HALF, end_after_that)})
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", bench.auth))
        head = await wire.read_head()
        assert await wire.read_chunk() == b"half"
        seen.set()
        if is_whole:
            assert await wire.read_body(head) == b""
        else:
            with pytest.raises((WireError, ConnectionError)):
                await wire.read_body(head)


async def test_a_body_that_ends_with_its_connection(start: Start) -> None:
    """Without TLS, a FIN completes it."""
    bench = await start()

    async def script(exchange: Exchange) -> None:
        await exchange.write(HALF)
        exchange.close()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", bench.auth)).body == b"half"


# -- bytes behind an answer ------------------------------------------------------------------------
HIDDEN = build_response(200, b"of another request")


def filling() -> bytes:
    """An answer that is exactly as long as a whole read."""
    length = READ_BYTES
    bare = len(build_response(200, b"")) + len(str(length)) - 1
    answer = build_response(200, b"x" * (length - bare))
    assert len(answer) == length
    return answer


@pytest.mark.parametrize("pipelined", [True, False])
async def test_bytes_behind_a_full_read(start: Start, pipelined: bool) -> None:
    """Bytes after an answer that fills the last read are no answer to the next request."""
    bench = await start()
    answer = filling()

    async def script(exchange: Exchange) -> None:
        if exchange.request.target == "/api/1":
            await exchange.write(answer + HIDDEN)
        else:
            await echo(exchange)

    bench.upstream.script = script
    async with await bench.connect() as wire:
        for _ in range(3):
            first, second = (build_request("GET", f"/api/{at}", bench.auth) for at in (1, 2))
            if pipelined:
                await wire.send(first + second)
                assert len((await wire.read_response()).body) > READ_BYTES - 200
            else:
                await wire.request("GET", "/api/1", bench.auth)
                await wire.send(second)
            assert (await wire.read_response()).json()["target"] == "/api/2"


async def test_an_honest_full_read(start: Start) -> None:
    """After an answer that fills a read, without more bytes, the connection is reused."""
    bench = await start()
    answer = filling()

    async def script(exchange: Exchange) -> None:
        await exchange.write(answer)

    bench.upstream.script = script
    async with await bench.connect() as wire:
        for _ in range(3):
            assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
    assert {request.connection for request in bench.upstream.requests} == {0}


async def test_bytes_in_another_record(start: Start, tls_upstream: Callable[..., Upstream]) -> None:
    """Over TLS, too: with decrypted bytes after the answer, the connection is not reused."""
    whole = build_response(200, b"ok")

    def hides(connection: ssl.SSLSocket) -> None:
        connection.sendall(HIDDEN)

    bench = await start(upstreams={"api": tls_upstream(whole, hides)})
    pools = bench.gateway._context.pools
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/1", bench.auth)).body == b"ok"
        (pool,) = pools._by_server.values()
        await eventually(lambda: not pool.idle, "the connection is not kept")


# -- a connection that was closed before the request reached it ------------------------------------
class RawUpstream:
    """A listening socket, and its accepted connections, controlled by the test."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self._accepted: list[socket.socket] = []
        self._loop = asyncio.get_running_loop()

    @property
    def upstream(self) -> Upstream:
        return Upstream("api", (Server("http", "127.0.0.1", self.listener.getsockname()[1]),))

    async def accept(self) -> socket.socket:
        async with asyncio.timeout(20):
            self._accepted.append((await self._loop.sock_accept(self.listener))[0])
        return self._accepted[-1]

    def close(self) -> None:
        for one in (self.listener, *self._accepted):
            one.close()

    async def answer(self, connection: socket.socket) -> bytes:
        """Answer one request; return its bytes."""
        got = b""
        async with asyncio.timeout(20):
            while b"\r\n\r\n" not in got:
                got += (piece := await self._loop.sock_recv(connection, 65536))
                assert piece
            await self._loop.sock_sendall(connection, build_response(200, b"ok"))
        return got


Prepare = Callable[[], Awaitable[tuple[Bench, Wire, RawUpstream, socket.socket]]]


@pytest.fixture
async def prepare(start: Start) -> AsyncIterator[Prepare]:
    """A client and an idle connection to the upstream, which had a request before."""
    async with AsyncExitStack() as stack:
        raw = RawUpstream()
        stack.callback(raw.close)

        async def prepared() -> tuple[Bench, Wire, RawUpstream, socket.socket]:
            bench = await start(upstreams={"api": raw.upstream})
            wire = await stack.enter_async_context(await bench.connect())
            await wire.send(build_request("GET", "/api/first", bench.auth))
            connection = await raw.accept()
            await raw.answer(connection)
            assert (await wire.read_response()).status == 200
            return bench, wire, raw, connection

        yield prepared


def ask_now(bench: Bench, request: bytes) -> None:
    """Have the gateway read this before it reads any other socket."""
    (conn,) = bench.gateway._context.connections
    deliver(conn, request)


BODY = [("Content-Length", "4")]


@pytest.mark.parametrize(
    ("method", "fields", "body", "is_repeated"),
    [
        ("GET", [], b"", True),
        ("DELETE", [], b"", True),
        ("PUT", BODY, b"body", True),
        ("DELETE", BODY, b"body", True),
        ("PUT", BODY, b"bo", False),
        ("POST", [], b"", True),
        ("PATCH", [], b"", True),
        ("POST", BODY, b"body", False),
        ("PATCH", BODY, b"body", False),
        ("PUT", [("Transfer-Encoding", "chunked")], b"4\r\nbody\r\n0\r\n\r\n", True),
    ],
)
async def test_closed_before_it_arrived(
    prepare: Prepare, method: str, fields: list[tuple[str, str]], body: bytes, is_repeated: bool
) -> None:
    """Sent again, if the method is idempotent and all is still here, or the server got no byte."""
    bench, wire, raw, connection = await prepare()
    connection.close()
    ask_now(bench, build_request(method, "/api/second", [*bearer(bench.key), *fields]) + body)
    if is_repeated:
        got = await raw.answer(await raw.accept())
        assert got.startswith(f"{method} /api/second HTTP/1.1\r\n".encode())
        assert got.endswith(body or b"\r\n\r\n")
    response = await wire.read_response()
    assert response.status == (200 if is_repeated else 502)
    if not is_repeated:
        with pytest.raises(BlockingIOError):
            raw.listener.accept()


@pytest.mark.parametrize("has_read", [True, False])
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_closed_after_it_arrived(prepare: Prepare, method: str, has_read: bool) -> None:
    """The server may have acted on what its kernel received: a POST is not sent again."""
    bench, wire, raw, connection = await prepare()
    await wire.send(build_request(method, "/api/second", bench.auth))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(20):
        # All of it, or so little that the close drops the rest, with a reset.
        await loop.sock_recv(connection, 65536 if has_read else 1)
    connection.close()
    if method == "GET":
        await raw.answer(await raw.accept())
    assert (await wire.read_response()).status == (200 if method == "GET" else 502)
