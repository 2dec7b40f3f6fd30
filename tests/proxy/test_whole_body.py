"""Bodies that a decision depends on: collected before it, in memory and in manual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.limits import Check
from gateway.domain.policy import Policy
from gateway.errors import COUNTED_BODY_TOO_LARGE
from gateway.http1.framing import LAST_CHUNK, chunk
from gateway.http1.phases import Phase
from gateway.proxy import backlog, connections
from gateway.proxy.client_connection import LINGER_S, MOST_JUDGING_S
from gateway.proxy.whole_body import WholeBody
from tests.kit.proxy import (
    Client,
    PromptLimiter,
    ProxyBench,
    ScriptedDirectory,
    policy_of,
    proxy_bench,
)
from tests.kit.transport import MemoryTransport

COST = "{json: ids, max: 3, bytes: 8KiB}"
ROUTES = """
routes:
  batch:  {match: "* /batch", upstream: api, cost: $IDS}
  scoped: {match: "* /scoped", upstream: api, cost: $IDS, scopes: ["connectors:write"]}
  plain:  {match: "* /plain", upstream: api}
""".replace("$IDS", COST)
PLANS = "plans:\n  pro: {rate: 600/minute}\n"
THREE = b'{"ids": [1, 2, 3]}'


@pytest.fixture
def bench() -> Iterator[ProxyBench]:
    with proxy_bench(routes=ROUTES, plans=PLANS) as bench:
        yield bench


def post(
    key: str, body: bytes | None, path: str = "/batch", *, chunked: bool = False, more: str = ""
) -> bytes:
    """A request; its body is sent whole, in three chunks, or (None) announced only."""
    framing = f"Content-Length: {18 if body is None else len(body)}\r\n"
    if chunked and body is not None:
        framing = "Transfer-Encoding: chunked\r\n"
        parts = (body[:1], body[1:7], body[7:])
        body = b"".join(chunk(part) for part in parts if part) + LAST_CHUNK
    return (
        f"POST {path} HTTP/1.1\r\nHost: gateway.example\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\n{more}{framing}\r\n"
    ).encode() + (body or b"")


def counted(bench: ProxyBench) -> list[int]:
    """The costs of all checks from now on."""
    costs: list[int] = []

    class Watching(PromptLimiter):
        def decide(self, check: Check, done: Any) -> None:
            costs.append(check.cost)
            super().decide(check, done)

    bench.use_limiter(Watching())
    return costs


def forwarded(bench: ProxyBench) -> MemoryTransport:
    """The upstream's end that got a whole request."""
    end = bench.asked()
    assert end is not None
    return end


def phase_of(client: Client) -> int:
    exchange = client.connection.exchange
    assert exchange is not None
    return exchange.phase


# -- collecting ------------------------------------------------------------------------------------
@given(st.lists(st.binary(max_size=9), max_size=9))
def test_all_of_it_or_nothing(parts: list[bytes]) -> None:
    """Up to the bound all bytes are kept; beyond it none, and none afterwards."""
    whole, body = b"".join(parts), WholeBody(20, COUNTED_BODY_TOO_LARGE)
    kept = [body.add(part) for part in parts]
    assert all(kept) == (len(whole) <= 20)
    assert len(body) == (len(whole) if all(kept) else 0)
    assert kept == sorted(kept, reverse=True)
    assert body.take() == (whole if all(kept) else b"")
    assert len(body) == 0


@pytest.mark.parametrize(("parts", "kept"), [((20,), True), ((7, 13), True), ((7, 14), False)])
def test_a_body_of_exactly_the_bound(parts: tuple[int, ...], kept: bool) -> None:
    """It is kept, in however many parts it arrives; a byte more is too much."""
    body = WholeBody(20, COUNTED_BODY_TOO_LARGE)
    assert all(body.add(b"x" * size) for size in parts) is kept


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [1, 2, 7, 50, 10_000])
def test_any_split(bench: ProxyBench, size: int, chunked: bool) -> None:
    """However a request is split into reads, it is counted once, by its elements, and forwarded
    unchanged; a pipelined one is served after it.
    """
    costs = counted(bench)
    client = bench.client()
    bench.add_upstream()
    sent = post(bench.key, THREE, chunked=chunked) + post(bench.key, None, "/plain")
    for at in range(0, len(sent), size):
        client.send(sent[at : at + size])
        bench.loop.run_all()
    end = forwarded(bench)
    head, _, body = bytes(end.written).partition(b"\r\n\r\n")
    assert body == (chunk(THREE) + LAST_CHUNK if chunked else THREE)
    assert (b"Transfer-Encoding: chunked" in head) == chunked
    assert (b"Content-Length: 18" in head) != chunked
    assert b"Content-Type: application/json" in head
    assert costs == [3]
    bench.answer()
    bench.loop.run_all()
    assert costs == [3, 1]


def test_nothing_else_is_held_meanwhile(bench: ProxyBench) -> None:
    """While a body arrives: no upstream connection, no check, and others are served."""
    costs = counted(bench)
    slow, other = bench.client(), bench.client()
    slow.send(post(bench.key, THREE)[:-5])
    bench.loop.run_all()
    assert (phase_of(slow), costs, bench.asked()) == (Phase.READING, [], None)
    other.send(post(bench.key, THREE))
    bench.loop.run_all()
    assert costs == [3]
    bench.answer()
    assert (other.statuses, slow.statuses) == ([200], [])


def test_a_stranger_is_not_waited_for(bench: ProxyBench) -> None:
    """Without a key, or without access, nothing of the body is read first."""
    costs = counted(bench)
    for key, path, status in (
        (bench.unknown_key(), "/batch", 401),
        (bench.key, "/scoped", 403),
    ):
        client = bench.client()
        client.send(post(key, None, path, more="Expect: 100-continue\r\n"))
        bench.loop.run_all()
        assert client.statuses == [status]
        assert client.wrote_eof
    assert costs == [1, 0]  # the first one counts for its address


def test_continue(bench: ProxyBench) -> None:
    """The expectation is met here, once, so that the body arrives."""
    client = bench.client()
    client.send(post(bench.key, None, more="Expect: 100-continue\r\n"))
    assert client.statuses == [100]
    client.send(THREE)
    bench.loop.run_all()
    bench.answer()
    assert client.statuses == [100, 200]
    assert b"xpect" not in bench.upstreams[0].written


def test_a_key_that_is_looked_up(bench: ProxyBench) -> None:
    """What arrived before the key was known is a part of the body."""
    for arrived in (0, 5, 18):
        directory = ScriptedDirectory()
        costs = counted(bench)
        bench.context.gate.directory = directory
        client = bench.client()
        client.send(post(bench.key, None) + THREE[:arrived])
        assert client.is_paused == (0 < arrived < 18)
        directory.answer(bench.identities[bench.key])
        bench.loop.run_all()
        assert not client.is_paused
        client.send(THREE[arrived:])
        bench.loop.run_all()
        assert costs == [3]
        bench.answer()
        assert client.statuses == [200]


def test_a_key_that_is_revoked_meanwhile(bench: ProxyBench) -> None:
    """The key is checked again once the body is here, and nothing is counted for it."""
    costs = counted(bench)
    client = bench.client()
    client.send(post(bench.key, THREE)[:-1])
    bench.change_key(bench.key, status="revoked")
    client.send(THREE[-1:])
    bench.loop.run_all()
    assert (client.statuses, bench.asked()) == ([401], None)
    assert costs == [1]  # of the address


def test_a_policy_that_changes_meanwhile(bench: ProxyBench) -> None:
    """A public route: the request keeps its limit, and the next one has the new one."""
    asked: list[int] = []

    class Watching(PromptLimiter):
        def decide(self, check: Check, done: Any) -> None:
            asked.append(check.limits[0].amount)
            super().decide(check, done)

    def policy(amount: int) -> Policy:
        limit = f"limits: [{{name: of-ip, rate: {amount}/minute, per: ip}}]"
        route = f"{{match: '* /open', upstream: api, auth: none, cost: $COST, {limit}}}"
        return policy_of(routes=f"routes:\n  open: {route}\n".replace("$COST", COST), plans=PLANS)

    bench.use_limiter(Watching())
    bench.use(policy(10))
    sent = post(bench.key, THREE, "/open")
    client = bench.client()
    client.send(sent[:-1])
    bench.use(policy(5))
    client.send(sent[-1:])
    bench.loop.run_all()
    bench.client().send(sent)
    bench.loop.run_all()
    assert asked == [10, 5]


def test_a_client_that_leaves(bench: ProxyBench) -> None:
    """Nothing is counted or forwarded; also if it leaves when all of the body was just read."""
    costs = counted(bench)
    for sent in (post(bench.key, THREE)[:-1], post(bench.key, THREE)):
        client = bench.client()
        client.send(sent)
        client.end()
        bench.loop.run_all()
        assert client.statuses == []
    assert (costs, bench.asked(), bench.metrics.inflight) == ([], None, 0)


def test_a_slow_body(bench: ProxyBench) -> None:
    """408 when a kilobyte takes longer than timeouts.body; single bytes do not extend it."""
    client = bench.client()
    client.send(post(bench.key, THREE)[:-3])
    for _ in range(3):
        bench.loop.advance(4.0)
        client.connection.check_deadline(bench.loop.time())
        bench.loop.run_all()
        client.send(b" ")
    assert client.statuses == [408]
    assert client.wrote_eof


def test_no_deadline_while_it_is_decided(bench: ProxyBench) -> None:
    """The body's deadline is over with the body, and the decision's begins then."""

    class Never(PromptLimiter):
        def decide(self, check: Check, done: Any) -> None: ...

    bench.use_limiter(Never())
    client = bench.client()
    client.send(post(bench.key, THREE))
    bench.loop.run_all()
    bench.loop.advance(60.0)
    client.connection.check_deadline(bench.loop.time())
    assert (phase_of(client), client.statuses) == (Phase.JUDGING, [])
    exchange = client.connection.exchange
    assert exchange is not None
    assert exchange.body is not None
    exchange.started -= MOST_JUDGING_S + 1
    client.connection.check_deadline(bench.loop.time())
    assert client.statuses == []
    exchange.body.ended -= MOST_JUDGING_S + 1
    client.connection.check_deadline(bench.loop.time())
    assert client.statuses == [503]


@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_a_body_beyond_the_bound(bench: ProxyBench, size: int) -> None:
    """413 as soon as that is known: of a length before the body, of chunks when they arrive.

    The connection stays open if all of the body has been read.
    """
    costs = counted(bench)
    client = bench.client()
    client.send(post(bench.key, b"").replace(b"Length: 0", b"Length: 8193"))
    assert client.statuses == [413]
    client = bench.client()
    sent = post(bench.key, b" " * 9_000, chunked=True)
    for at in range(0, len(sent), size):
        if client.statuses:
            break
        client.send(sent[at : at + size])
        bench.loop.run_all()
    assert (client.statuses, client.wrote_eof) == ([413], size < len(sent))
    assert b'"BODY_TOO_LARGE"' in client.written
    assert b"At most: 8192 bytes." in client.written
    assert set(costs) == {0}


def test_a_faulty_chunk(bench: ProxyBench) -> None:
    """400, and the connection closes, as its next request cannot be found."""
    client = bench.client()
    client.send(post(bench.key, THREE, chunked=True)[:-5] + b"zz\r\n")
    bench.loop.run_all()
    assert (client.statuses, client.wrote_eof) == ([400], True)
    assert b'"BAD_REQUEST"' in client.written


def test_what_it_holds_is_counted(bench: ProxyBench) -> None:
    """The kept bytes count for bounds.memory: the connection that holds most gets 503 and closes.

    Another one, which holds less, is served, although its bytes were those beyond the bound.
    """
    costs = counted(bench)
    client, other = bench.client(), bench.client()
    client.send(post(bench.key, b"x" * 8_000)[:-1])
    assert client.connection.held_bytes() == 7_999
    assert client.connection in bench.context.connections._heavy
    bench.context.connections._budget_bytes = lambda: 10_000
    other.send(post(bench.key, padded(5_000))[:-1])
    bench.context.connections.check()
    assert (client.statuses, client.wrote_eof, other.statuses) == ([503], True, [])
    assert b"\r\nRetry-After: 1\r\n" in client.written
    assert b'"BUFFERS_FULL"' in client.written
    assert (client.connection.held_bytes(), bench.metrics._shed) == (0, 1)
    client.send(b"x" + post(bench.key, None, "/plain"))
    other.send(b" ")
    bench.loop.run_all()
    bench.answer()
    assert (client.count, other.statuses, costs) == (1, [200], [3])
    bench.loop.advance(LINGER_S)
    client.connection.check_deadline(bench.loop.time())
    bench.loop.run_all()
    assert (client.ended, bench.metrics.inflight) == ("abort", 0)


@pytest.mark.parametrize(("is_known", "left"), [(True, 0), (True, 1), (False, 1)])
def test_its_own_bytes_are_beyond_the_bound(
    bench: ProxyBench, monkeypatch: pytest.MonkeyPatch, is_known: bool, left: int
) -> None:
    """It gets 503 while they are read, also if they are its last or its key is being looked up. It
    is read on, so that it can read the answer, and closed after a while.
    """
    monkeypatch.setattr(connections, "MOST_UNCOUNTED", 0)
    bench.context.connections._budget_bytes = lambda: 5_000
    bench.context.connections.check()
    costs = counted(bench)
    if not is_known:
        bench.context.gate.directory = ScriptedDirectory()
    client, sent = bench.client(), post(bench.key, padded(6_000))
    sent = sent[: len(sent) - left]
    if is_known:
        client.send(sent[:4_000])
        sent = sent[4_000:]
    client.send(sent)
    assert (client.statuses, client.wrote_eof, client.is_paused) == ([503], True, False)
    bench.loop.run_all()
    assert (client.connection.exchange, costs, bench.asked()) == (None, [], None)
    bench.loop.advance(LINGER_S)
    client.connection.check_deadline(bench.loop.time())
    assert client.is_aborted


def test_no_answer_of_the_gateway_within_another(bench: ProxyBench) -> None:
    """A request that an upstream has, or whose client reads no answers, is cut off without one."""
    held = bench.client()
    held.send(post(bench.key, THREE))
    bench.loop.run_all()
    assert phase_of(held) == Phase.WAITING
    unread = bench.client()
    unread.takes = False
    unread.send(post(bench.key, None, "/plain", more="Expect: 100-continue\r\n"))
    unread.unsent_bytes += 1
    unread.send(post(bench.key, THREE)[:-1])
    count = unread.count
    for client in (held, unread):
        client.connection.shed()
        assert client.is_aborted
    assert (held.statuses, unread.count) == ([], count)


def test_another_policy_meanwhile(bench: ProxyBench) -> None:
    """The request is decided under the policy that it began with."""
    costs = counted(bench)
    client = bench.client()
    client.send(post(bench.key, THREE)[:-1])
    with proxy_bench(routes=ROUTES.replace("max: 3", "max: 2"), plans=PLANS) as other:
        policy = other.context.gate.policy
    with bench.loop.running():
        bench.context.gate.use(policy)
        client.send(THREE[-1:])
        bench.loop.run_all()
    assert costs == [3]


# -- counting in turn ------------------------------------------------------------------------------
def padded(size: int) -> bytes:
    """THREE, as a body of this size."""
    return THREE + b" " * (size - len(THREE))


def known(bench: ProxyBench) -> list[int]:
    """As `counted`, with a key that the worker knows: its requests are decided at once."""
    bench.client().send(post(bench.key, None, "/plain"))
    bench.loop.run_all()
    return counted(bench)


@pytest.mark.parametrize("held_back", [0, 1])
@pytest.mark.parametrize("is_known", [True, False])
def test_many_bodies_are_counted_in_turn(
    bench: ProxyBench, monkeypatch: pytest.MonkeyPatch, held_back: int, is_known: bool
) -> None:
    """Bodies of many clients, all complete in one turn of the loop, are counted one a turn once its
    time is up, whether they came whole or missed a byte, also after a look-up of their key.
    """
    monkeypatch.setattr(backlog, "TURN_S", 0.0)
    costs = known(bench) if is_known else counted(bench)
    clients = [bench.client() for _ in range(5)]
    request = post(bench.key, padded(5000))
    for client in clients:
        client.send(request[: len(request) - held_back])
        client.send(request[len(request) - held_back :])
    assert costs == []
    for turn in range(len(clients)):
        bench.loop.run()
        assert len(costs) <= turn + 1
    bench.loop.run_all()
    assert costs == [3] * len(clients)


def test_a_large_body_with_a_request_behind_it(bench: ProxyBench) -> None:
    """A large body that comes in one read with its head and a pipelined request waits for its turn,
    is forwarded unchanged, and the other request is served after it.
    """
    costs = known(bench)
    client, body = bench.client(), padded(8000)
    bench.add_upstream()
    client.send(post(bench.key, body) + post(bench.key, None, "/plain"))
    assert (phase_of(client), costs) == (Phase.READING, [])
    bench.loop.run_all()
    end = forwarded(bench)
    assert bytes(end.written).partition(b"\r\n\r\n")[2] == body
    assert costs == [3]
    bench.answer()
    bench.loop.run_all()
    assert costs == [3, 1]


def test_a_client_that_leaves_before_its_turn(
    bench: ProxyBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Its body is not counted, and nothing is forwarded: that is no error."""
    costs = known(bench)
    client = bench.client()
    client.send(post(bench.key, padded(5000)))
    client.connection.eof_received()
    bench.loop.run_all()
    assert (costs, bench.asked(), caplog.text) == ([], None, "")
