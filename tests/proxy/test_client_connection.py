"""A client's connection by its bytes: what it is answered in one turn, and what is kept of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.domain.limits import Check
from gateway.errors import INTERNAL
from gateway.proxy import downstream
from gateway.proxy.downstream import (
    HEAD_READ_BYTES,
    MOST_AHEAD_BYTES,
    MOST_JUDGING_S,
    MOST_UNSENT_BYTES,
    Downstream,
)
from tests.bench.cases import SIZED, request
from tests.bench.rig import PromptLimiter, Rig, rig

#: What a connection may hold by design, whatever its client sends and does not read.
MOST_HELD = 64 * 1024
PLAIN = b"GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"


class Client:
    """A client and the transport between: it takes answers while `reads`, and no faster."""

    def __init__(self, parts: Rig, peer: tuple[str, int] | None = ("192.0.2.1", 40_000)) -> None:
        parts.add_upstream()
        self._peer = peer
        self.reads = True
        self.answers = b""
        self.is_paused = self.is_closed = self.is_aborted = self.wrote_eof = False
        self._unsent = 0
        self._high = MOST_UNSENT_BYTES
        self._write_paused = False
        self.connection = Downstream(parts.context)
        self.connection.connection_made(self)  # type: ignore[arg-type]

    # -- what the protocol asks of its transport
    def write(self, data: bytes) -> None:
        self.answers += data
        if not self.reads:
            self._unsent += len(data)
            if self._unsent > self._high and not self._write_paused:
                self._write_paused = True
                self.connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def set_write_buffer_limits(self, high: int) -> None:
        self._high = high

    def get_extra_info(self, name: str) -> Any:
        return self._peer if name == "peername" else None

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.wrote_eof = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    # -- what the client does
    def send(self, data: bytes) -> bytes:
        """Send as much as is read at once; what is left of it."""
        while data and not self.is_paused and not self.is_closed:
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.connection.buffer_updated(size)
        return data

    def read_all(self) -> None:
        """Take everything that waits, and go on taking."""
        self.reads = True
        self._unsent = 0
        if self._write_paused:
            self._write_paused = False
            self.connection.resume_writing()

    @property
    def count(self) -> int:
        """How many answers there were."""
        return self.answers.count(b"HTTP/1.1 ")


@pytest.fixture
def parts() -> Iterator[Rig]:
    with rig() as parts:
        yield parts


def limited(parts: Rig) -> bytes:
    parts.use_limiter(PromptLimiter(allowed=False))
    return PLAIN


def unknown(parts: Rig) -> bytes:
    return request(parts.unknown)


#: Requests that are answered at once, without asking anybody.
FLOODS: dict[str, Callable[[Rig], bytes]] = {
    "401": lambda _: PLAIN,
    "401, unknown key": unknown,
    "404": lambda _: b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
    "429": limited,
    "health": lambda _: b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    "405": lambda _: b"DELETE /health HTTP/1.1\r\nHost: x\r\nX-A: b\r\n\r\n",
    "a mix": lambda _: PLAIN + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_one_turn_answers_little(parts: Rig, flood: str) -> None:
    """Of requests that were sent ahead one is answered at once, the others in their turns."""
    client = Client(parts)
    sent = FLOODS[flood](parts)
    client.send(sent * (HEAD_READ_BYTES // len(sent)))
    assert client.count == 1
    before, turns = 1, 0
    while parts.loop.run():
        assert client.count > before
        before, turns = client.count, turns + 1
    assert client.count == sent.count(b"HTTP/1.1") * (HEAD_READ_BYTES // len(sent))
    assert turns >= 2


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("reads", [True, False])
def test_a_flood_is_held_back(parts: Rig, flood: str, reads: bool) -> None:
    """However much is sent, little is kept; whoever reads gets all answers, in the end."""
    client = Client(parts)
    client.reads = reads
    sent = FLOODS[flood](parts)
    left = whole = sent * 3_000
    while True:
        rest = client.send(left)
        assert client.connection.held_bytes() <= MOST_HELD
        if not parts.loop.run() and rest == left:
            break
        left = rest
    if reads:
        assert not left
        assert client.count == whole.count(b"HTTP/1.1")
        return
    assert client.is_paused
    assert client.get_write_buffer_size() <= MOST_UNSENT_BYTES + 2048
    assert len(client.connection._buffer) <= MOST_AHEAD_BYTES
    # Once it reads, it goes on where it stopped.
    before = client.count
    client.read_all()
    while parts.loop.run():
        pass
    assert client.count > before
    assert not client.is_paused


def test_answers_unread_and_a_long_head(parts: Rig) -> None:
    """Both together stay within the bound, too; and the head is read once the answers are."""
    client = Client(parts)
    client.reads = False
    while client.get_write_buffer_size() < MOST_UNSENT_BYTES - 1024:
        assert not client.send(PLAIN)
    long = PLAIN[:-2] + b"".join(b"X-%d: %b\r\n" % (at, b"v" * 400) for at in range(70))
    left = client.send(long)
    assert left
    assert client.is_paused
    assert client.connection.held_bytes() <= MOST_HELD
    client.read_all()
    client.connection.check_deadline(0.0)  # a few times a second
    before = client.count
    assert not client.send(left + b"\r\n")
    assert client.count == before + 1


def test_little_is_kept_of_a_long_head(parts: Rig) -> None:
    """What a connection remembers of its last request is bounded as well."""
    client = Client(parts)
    long = request(parts.keys[0])[:-2] + b"X: %b\r\n\r\n" % (b"v" * 30_000)
    for sent in (long, long.replace(b"Bearer gwk", b"Bearer x")):
        client.send(sent)
        parts.answer(SIZED)
        connection = client.connection
        kept = (connection.passed, connection.told, connection.key_fields)
        assert kept == (None, None, None)
        assert len(connection._intake.fields.forward) < 4096
        assert connection._intake._head == b""
    assert client.count == 2


@pytest.mark.parametrize("piece", [1, 7, 1000, HEAD_READ_BYTES])
def test_pipelined_requests_in_pieces(parts: Rig, piece: int) -> None:
    """Answered in order, each once, however they are cut; one that is admitted keeps the others."""
    client = Client(parts)
    body = b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /"
    admitted = request(parts.keys[0])
    message = PLAIN * 3 + admitted + body + b"\r\n" + PLAIN + admitted + PLAIN
    for at in range(0, len(message), piece):
        assert not client.send(message[at : at + piece])
        while parts.loop.run():
            pass
    parts.answer(SIZED)
    while parts.loop.run():
        pass
    parts.answer(SIZED)
    while parts.loop.run():
        pass
    statuses = [line[:3] for line in client.answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"401"] * 3 + [b"200", b"405", b"401", b"200", b"401"]


def test_a_policy_that_changes_in_mid_head(parts: Rig) -> None:
    """A line that was judged when it came is judged again under what counts by then."""
    client = Client(parts)
    client.send(PLAIN[:30])
    parts.context.gate.use(parts.context.gate.policy)
    client.send(PLAIN[30:])
    assert client.count == 1


def test_a_body_of_tiny_chunks_takes_turns(parts: Rig) -> None:
    """After many chunks at once others are looked after, before more of the body is read."""
    client = Client(parts)
    chunked = request(parts.keys[0], "/v1/items", "POST").replace(
        b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    left = client.send(chunked + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
    turns = 0
    while left:
        assert client.is_paused
        assert parts.loop.run()
        assert not client.is_paused
        before, left = left, client.send(left)
        assert len(before) - len(left) <= HEAD_READ_BYTES
        turns += 1
    assert turns >= 20_000 * 6 // HEAD_READ_BYTES
    parts.loop.run()
    parts.answer(SIZED)
    assert client.answers.startswith(b"HTTP/1.1 200 ")


def test_an_answer_of_tiny_chunks_takes_turns(parts: Rig) -> None:
    """So are they where an upstream answers like that; a slow client holds it back all the same."""
    client = Client(parts)
    upstream = parts._ups[-1]
    paused: list[bool] = []
    upstream.transport.pause_reading = lambda: paused.append(True)  # type: ignore[method-assign]
    upstream.transport.resume_reading = lambda: paused.append(False)  # type: ignore[method-assign]
    client.send(request(parts.keys[0]))
    tiny = b"1\r\nx\r\n" * 5_000
    parts.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    parts.answer(tiny)
    assert paused == [True]
    parts.loop.run()
    assert paused == [True, False]
    client.reads = False
    parts.answer(tiny + b"8000\r\n")
    parts.answer(bytes(MOST_UNSENT_BYTES - len(tiny) // 6))
    parts.loop.run()
    assert paused[-1] is True
    client.read_all()
    assert paused[-1] is False


class Broken:
    """A limiter with a fault of ours."""

    def decide(self, check: Check, done: Callable[..., None]) -> None:
        raise KeyError("a fault")

    def release(self, check: Check) -> None: ...


class Wrong(Broken):
    """One whose answer cannot be used."""

    def decide(self, check: Check, done: Callable[..., None]) -> None:
        done(object())


@pytest.mark.parametrize("limiter", [Broken, Wrong])
def test_a_fault_of_ours(
    parts: Rig, limiter: type[Broken], caplog: pytest.LogCaptureFixture
) -> None:
    """Costs its own request a 500 and a line in the log; the next connection is served."""
    prompt = parts.context.gate.limiter
    parts.use_limiter(limiter())
    client = Client(parts)
    with caplog.at_level(logging.ERROR):
        client.send(request(parts.keys[0]))
    assert client.answers.startswith(b"HTTP/1.1 500 ")
    assert INTERNAL.message.encode() in client.answers
    assert client.wrote_eof or client.is_closed
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert parts.keys[0] not in caplog.text
    parts.use_limiter(prompt)
    client = Client(parts)
    client.send(request(parts.keys[0]))
    parts.answer(SIZED)
    assert client.answers.startswith(b"HTTP/1.1 200 ")


class Wondering:
    """A directory that knows no key, and answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Any], None]] = []

    def known(self, _key_id: str) -> None: ...

    def look_up(self, _key_id: str, done: Callable[[Any], None]) -> None:
        self.asked.append(done)


def test_a_fault_of_ours_after_a_look_up(parts: Rig) -> None:
    """What fails in the turn in which the store has answered is a 500 at once, too."""
    directory = Wondering()
    parts.context.gate.directory = directory  # type: ignore[assignment]
    client = Client(parts)
    client.send(request(parts.keys[0]))
    assert client.count == 0
    directory.asked[0](object())
    assert client.answers.startswith(b"HTTP/1.1 500 ")
    assert client.wrote_eof or client.is_closed


class Silent(Broken):
    """A limiter that never answers."""

    def decide(self, check: Check, done: Callable[..., None]) -> None: ...


@pytest.mark.parametrize("who", ["limiter", "directory"])
def test_no_decision_comes(parts: Rig, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    """Nobody waits for ever to be judged: after a while it is 503."""
    if who == "limiter":
        parts.use_limiter(Silent())
    else:
        parts.context.gate.directory = Wondering()  # type: ignore[assignment]
    client = Client(parts)
    client.send(request(parts.keys[0]))
    client.connection.check_deadline(0.0)
    assert client.count == 0
    now_s = downstream.perf_counter()
    monkeypatch.setattr(downstream, "perf_counter", lambda: now_s + MOST_JUDGING_S + 1)
    client.connection.check_deadline(0.0)
    assert client.answers.startswith(b"HTTP/1.1 503 ")


def test_a_client_that_reset_before_it_was_accepted(parts: Rig) -> None:
    """The kernel does not know who it was: it is closed, and counts as nobody's."""
    client = Client(parts, peer=None)
    assert client.is_aborted
    client.connection.check_deadline(0.0)
    client.connection.connection_lost(None)
    assert len(parts.context.connections) == 0
    assert parts.context.connections._of == {}


def test_a_head_in_pieces_and_a_shorter_one(parts: Rig) -> None:
    """What was seen of a head that came in pieces is not taken for a part of the next one."""
    client = Client(parts)
    long = b"GET /" + b"x" * 200 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    short = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nab\r\n\r\ncd"
    for piece in (long, long[:150], long[150:], short, short):
        assert client.send(piece) == b""
    assert client.answers.count(b"HTTP/1.1 404 ") == client.count == 4
