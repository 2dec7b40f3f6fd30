"""A client connection, byte by byte: what it answers in one turn, and what is kept for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gateway.domain.limits import Check
from gateway.domain.networks import parse_network
from gateway.errors import INTERNAL
from gateway.http1.framing import LAST_CHUNK, chunk
from gateway.proxy import client_connection
from gateway.proxy.client_connection import (
    HEAD_READ_BYTES,
    LAST_REQUEST_S,
    LINGER_S,
    MOST_AHEAD_BYTES,
    MOST_JUDGING_S,
    MOST_UNSENT_BYTES,
    PROGRESS_BYTES,
)
from gateway.proxy.client_states import PauseReason
from tests.kit.proxy import PromptLimiter, ProxyBench, ScriptedDirectory, proxy_bench, request
from tests.kit.transport import PEER

#: The most that a connection may hold, whatever its client sends and does not read.
MOST_HELD = 64 * 1024
PLAIN = b"GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def parts() -> Iterator[ProxyBench]:
    with proxy_bench() as parts:
        yield parts


def limited(parts: ProxyBench) -> bytes:
    parts.use_limiter(PromptLimiter(allowed=False))
    return PLAIN


def unknown(parts: ProxyBench) -> bytes:
    return request(parts.unknown_key())


#: Requests that are answered at once, without the store or the upstream.
FLOODS: dict[str, Callable[[ProxyBench], bytes]] = {
    "401": lambda _: PLAIN,
    "401, unknown key": unknown,
    "404": lambda _: b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
    "429": limited,
    "health": lambda _: b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    "405": lambda _: b"DELETE /health HTTP/1.1\r\nHost: x\r\nX-A: b\r\n\r\n",
    "a mix": lambda _: PLAIN + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_one_turn_answers_little(parts: ProxyBench, flood: str) -> None:
    """One of the pipelined requests is answered at once, the others in later turns."""
    client = parts.client()
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
def test_a_flood_is_paused(parts: ProxyBench, flood: str, reads: bool) -> None:
    """However much is sent, little is kept; a client that reads gets all answers in the end."""
    client = parts.client()
    client.takes = reads
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
    # When it reads again, the connection continues where it stopped.
    before = client.count
    client.take_all()
    parts.loop.run_all()
    assert client.count > before
    assert not client.is_paused


def test_answers_unread_and_a_long_head(parts: ProxyBench) -> None:
    """Both together stay within the bound, too; the head is read after the answers were."""
    client = parts.client()
    client.takes = False
    while client.get_write_buffer_size() < MOST_UNSENT_BYTES - 1024:
        assert not client.send(PLAIN)
    long = PLAIN[:-2] + b"".join(b"X-%d: %b\r\n" % (at, b"v" * 400) for at in range(70))
    left = client.send(long)
    assert left
    assert client.is_paused
    assert client.connection.held_bytes() <= MOST_HELD
    client.take_all()
    client.connection.check_deadline(0.0)  # a few times a second
    before = client.count
    assert not client.send(left + b"\r\n")
    assert client.count == before + 1


def test_little_is_kept_of_a_long_head(parts: ProxyBench) -> None:
    """What a connection caches of its last request is bounded as well."""
    client = parts.client()
    long = request(parts.key)[:-2] + b"X: %b\r\n\r\n" % (b"v" * 30_000)
    for sent in (long, long.replace(b"Bearer gwk", b"Bearer x")):
        client.send(sent)
        parts.answer()
        connection = client.connection
        cache = connection.cache
        kept = (cache.identity, cache.refusal, cache.key_id)
        assert kept == (None, None, None)
        assert len(connection._intake.fields.forward) < 4096
        assert connection._intake._head == b""
    assert client.count == 2


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("size", "status"), [(19, 200), (20, 200), (21, 413)])
def test_the_largest_body(parts: ProxyBench, size: int, status: int, chunked: bool) -> None:
    """A body of exactly the bound is forwarded; one with a byte more is refused."""
    policy = parts.context.gate.policy
    parts.use(replace(policy, bounds=replace(policy.bounds, body_bytes=20)))
    client, body = parts.client(), b"x" * size
    sent = request(parts.key, "/v1/items", "POST", body)
    if chunked:
        framed = chunk(body[:7]) + chunk(body[7:]) + LAST_CHUNK
        sent = sent.replace(b"Content-Length: %d" % size, b"Transfer-Encoding: chunked")
        sent = sent.removesuffix(body) + framed
    client.send(sent)
    parts.answer()
    assert client.statuses == [status]


CLOSE = b"Connection: close\r\n\r\n"
#: Requests after whose answers the connection ends, and whether the client may be sending still.
LAST = {
    "a refusal": (b"GET /nowhere HTTP/1.1\r\nHost: x\r\n" + CLOSE, True),
    "a refused head": (b"GET /nowhere\r\n\r\n", True),
    "a refusal before the body": (
        b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n" + CLOSE,
        True,
    ),
    "an answer before the body": (
        b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n" + CLOSE,
        True,
    ),
    "an answer": (b"GET /health HTTP/1.1\r\nHost: x\r\n" + CLOSE, False),
}


@pytest.mark.parametrize(("sent", "lingers"), LAST.values(), ids=LAST)
def test_the_end_after_the_last_answer(parts: ProxyBench, sent: bytes, lingers: bool) -> None:
    """Reading goes on briefly after a refusal or an unread body: the kernel would answer bytes
    that arrive after a close with a reset, by which the client may lose the answer.
    """
    client = parts.client()
    client.send(sent)
    assert client.count == 1
    assert (client.wrote_eof, client.ended) == ((True, "") if lingers else (False, "close"))
    client.send(b"more of it")
    assert client.connection.held_bytes() == 0
    parts.loop.advance(LINGER_S)
    client.connection.check_deadline(parts.loop.time())
    assert client.ended == ("abort" if lingers else "close")
    assert client.count == 1


@pytest.mark.parametrize(
    ("expects", "is_open"), [(b"", True), (b"Expect: 100-continue\r\n", False)]
)
def test_a_refusal_before_a_short_body(parts: ProxyBench, expects: bytes, is_open: bool) -> None:
    """The body is discarded. If its client may leave it out, the next request is unknown."""
    client = parts.client()
    head = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n" + expects + b"\r\n"
    client.send(head)
    assert (client.statuses, client.wrote_eof) == ([404], not is_open)
    client.send(b"GET / HTT" + PLAIN)
    assert client.statuses == ([404, 401] if is_open else [404])


def test_what_extends_the_time_for_a_body(parts: ProxyBench) -> None:
    """Not each byte: one at a time would keep the connection for ever."""
    client = parts.client()
    connection = client.connection
    body_s = parts.context.gate.policy.timeouts.body_s
    client.send(request(parts.key, "/v1/items", "POST", bytes(5_000))[:-5_000])
    began_s = parts.loop.time()
    for sent, due_s in ((1, 0), (1, 0), (PROGRESS_BYTES - 3, 0), (1, 4), (1, 4), (1_100, 6)):
        parts.loop.advance(1.0)
        client.send(bytes(sent))
        assert connection.deadline == began_s + due_s + body_s
    parts.loop.advance(body_s)
    connection.check_deadline(parts.loop.time())
    assert client.statuses == [408]


def test_each_reason_to_pause_has_to_go(parts: ProxyBench) -> None:
    """Reading is resumed with the last one, and not before."""
    client = parts.client()
    for reason in (PauseReason.UPSTREAM, PauseReason.AHEAD):
        client.connection.pause(reason)
    found = []
    for reason in (PauseReason.TURN, PauseReason.AHEAD, PauseReason.AHEAD, PauseReason.UPSTREAM):
        client.connection.resume(reason)
        found.append(client.is_paused)
    assert found == [True, True, True, False]


def test_a_reload_during_a_connection(parts: ProxyBench) -> None:
    """The next request is the peer's own, if that is no trusted proxy any more."""
    policy = parts.context.gate.policy
    parts.use(replace(policy, trusted_proxies=(parse_network(PEER[0]),)))
    client = parts.client()
    sent = request(parts.key)[:-2] + b"X-Forwarded-For: 203.0.113.7\r\n\r\n"
    for forwarded in (f"203.0.113.7, {PEER[0]}", PEER[0]):
        parts.upstreams[-1].written.clear()
        client.send(sent)
        lines = bytes(parts.upstreams[-1].written).decode().split("\r\n")
        assert f"X-Forwarded-For: {forwarded}" in lines
        parts.answer()
        parts.use(policy)


def test_whom_a_drain_waits_for(parts: ProxyBench) -> None:
    """A request in progress, and a first one; a next one only for a moment."""
    client, fresh = parts.client(), parts.client()
    client.send(request(parts.key))
    assert (client.connection.drain(), fresh.connection.drain()) == (True, True)
    parts.answer()
    assert client.connection.drain() is False
    assert client.connection.deadline == parts.loop.time() + LAST_REQUEST_S
    client.send(PLAIN[:9])
    assert client.connection.drain() is True


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_connection_that_holds_too_much(parts: ProxyBench, has_begun: bool) -> None:
    """It is answered while no upstream has its request, which can then be sent again."""
    client = parts.client()
    if not has_begun:
        parts.context.gate.directory = ScriptedDirectory()
    client.send(request(parts.key, "/v1/items", "POST", bytes(5_000))[:-1])
    assert (parts.upstreams[-1].written != b"") is has_begun
    client.connection.shed()
    assert client.statuses == ([] if has_begun else [503])
    assert client.is_aborted is has_begun


def test_a_key_that_is_revoked_while_its_answer_is_relayed(parts: ProxyBench) -> None:
    """The connection is cut off at the next check of deadlines."""
    client = parts.client()
    client.send(request(parts.key))
    parts.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    client.connection.check_deadline(parts.loop.time())
    assert not client.is_closed
    parts.change_key(parts.key, status="revoked")
    client.connection.check_deadline(parts.loop.time())
    assert client.is_aborted


@pytest.mark.parametrize("trusted", [True, False])
def test_whom_the_proxy_protocol_is_believed(parts: ProxyBench, trusted: bool) -> None:
    """Trusted proxies alone; and a connection is counted for the one client that it is of."""
    policy, connections = parts.context.gate.policy, parts.context.connections
    proxies = (parse_network(PEER[0] if trusted else "198.51.100.1"),)
    parts.use(replace(policy, proxy_protocol=True, trusted_proxies=proxies))
    client = parts.client()
    client.send(b"PROXY TCP4 203.0.113.7 192.0.2.9 1111 443\r\n" + PLAIN)
    assert client.statuses == ([401] if trusted else [400])
    assert client.connection.client.ip == ("203.0.113.7" if trusted else PEER[0])
    assert connections._of == {client.connection.client.ip: 1}
    client.connection.connection_lost(None)
    assert connections._of == {}


def test_a_body_of_tiny_chunks_takes_turns(parts: ProxyBench) -> None:
    """After many chunks at once, other connections are served before more of the body is read."""
    client = parts.client()
    chunked = request(parts.key, "/v1/items", "POST").replace(
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
    parts.answer()
    assert client.written.startswith(b"HTTP/1.1 200 ")


def test_an_answer_of_tiny_chunks_takes_turns(parts: ProxyBench) -> None:
    """The same for an upstream's answer; a slow client still pauses it."""
    client = parts.client()
    upstream = parts.upstreams[-1]
    client.send(request(parts.key))
    tiny = b"1\r\nx\r\n" * 5_000
    parts.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    parts.answer(tiny)
    assert upstream.log == ["pause_reading"]
    parts.loop.run()
    assert upstream.log == ["pause_reading", "resume_reading"]
    client.takes = False
    parts.answer(tiny + b"8000\r\n")
    parts.answer(bytes(MOST_UNSENT_BYTES - len(tiny) // 6))
    parts.loop.run_all()
    assert upstream.is_paused
    client.take_all()
    assert not upstream.is_paused


def test_a_slow_client_and_tiny_chunks(parts: ProxyBench) -> None:
    """The next turn does not resume an upstream whose client takes no more."""
    client = parts.client()
    upstream = parts.upstreams[-1]
    client.send(request(parts.key))
    client.takes = False
    parts.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    parts.answer(chunk(bytes(MOST_UNSENT_BYTES - 1_000)) + b"1\r\nx\r\n" * 5_000)
    parts.loop.run_all()
    assert upstream.is_paused
    client.take_all()
    assert not upstream.is_paused


class Broken:
    """A limiter that raises."""

    def decide(self, check: Check, done: Callable[..., None]) -> None:
        raise KeyError("a fault")

    def release(self, check: Check) -> None: ...


class Wrong(Broken):
    """A limiter with an invalid answer."""

    def decide(self, check: Check, done: Callable[..., None]) -> None:
        done(object())


@pytest.mark.parametrize("limiter", [Broken, Wrong])
def test_an_internal_error(
    parts: ProxyBench, limiter: type[Broken], caplog: pytest.LogCaptureFixture
) -> None:
    """Only its own request gets a 500, and a line in the log; the next connection is served."""
    prompt = parts.context.gate.limiter
    parts.use_limiter(limiter())
    client = parts.client()
    with caplog.at_level(logging.ERROR):
        client.send(request(parts.key))
    assert client.written.startswith(b"HTTP/1.1 500 ")
    assert INTERNAL.message.encode() in client.written
    assert client.wrote_eof or client.is_closed
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert parts.key not in caplog.text
    parts.use_limiter(prompt)
    client = parts.client()
    client.send(request(parts.key))
    parts.answer()
    assert client.written.startswith(b"HTTP/1.1 200 ")


def test_an_internal_error_after_a_look_up(parts: ProxyBench) -> None:
    """An exception in the store's callback is a 500 at once, too."""
    directory = ScriptedDirectory()
    parts.context.gate.directory = directory  # type: ignore[assignment]
    client = parts.client()
    client.send(request(parts.key))
    assert client.count == 0
    directory.answer(object())
    assert client.written.startswith(b"HTTP/1.1 500 ")
    assert client.wrote_eof or client.is_closed


class Silent(Broken):
    """A limiter that never answers."""

    def decide(self, check: Check, done: Callable[..., None]) -> None: ...


@pytest.mark.parametrize("who", ["limiter", "directory"])
def test_no_decision_comes(parts: ProxyBench, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    """Without a decision, the client gets a 503 after a while."""
    if who == "limiter":
        parts.use_limiter(Silent())
    else:
        parts.context.gate.directory = ScriptedDirectory()  # type: ignore[assignment]
    client = parts.client()
    client.send(request(parts.key))
    client.connection.check_deadline(0.0)
    assert client.count == 0
    now_s = client_connection.perf_counter()
    monkeypatch.setattr(client_connection, "perf_counter", lambda: now_s + MOST_JUDGING_S + 1)
    client.connection.check_deadline(0.0)
    assert client.written.startswith(b"HTTP/1.1 503 ")


def test_a_client_that_reset_before_it_was_accepted(parts: ProxyBench) -> None:
    """The kernel has no address for it: it is closed, and counted for no subject."""
    client = parts.client(peer=None)
    assert client.is_aborted
    client.connection.check_deadline(0.0)
    client.connection.connection_lost(None)
    assert len(parts.context.connections) == 0
    assert parts.context.connections._of == {}
