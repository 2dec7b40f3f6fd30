"""Reading heads: the same result for any split into reads, and what is cached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.domain.policy import Bounds
from tests.kit.proxy import Client, PromptLimiter, ProxyBench, policy_of, proxy_bench, request

#: A policy without the paths that are requested here.
OTHER = "routes: {other: {match: GET /other, upstream: api}}\n"
LINE = b"GET /api/x HTTP/1.1\r\n"
HOST = b"Host: gateway.test\r\n"
#: Replaced by a known key, of the same length.
KEY = b"{key}".ljust(66, b"?")
BOUNDS = Bounds()
#: The longest request line: a URL, and the longest text around one.
MOST_LINE = BOUNDS.url_bytes + 64


@pytest.fixture
def bench() -> Iterator[ProxyBench]:
    with proxy_bench() as bench:
        yield bench


def pieces(data: bytes, step: int) -> list[bytes]:
    """The data in pieces of `step` bytes; 0: whole."""
    step = step or max(len(data), 1)
    return [data[at : at + step] for at in range(0, len(data), step)]


def talk(bench: ProxyBench, sent: list[bytes]) -> Client:
    """A client that sends these pieces; its requests are answered as they reach the upstream."""
    client = bench.client()
    for piece in sent:
        left = client.send(piece)
        bench.loop.run_all()
        while bench.asked() is not None or left:
            bench.answer()
            bench.loop.run_all()
            if left and (now := client.send(left)) == left:
                break
            left = now if left else b""
    return client


def is_over(client: Client) -> bool:
    return client.is_closed or client.wrote_eof


def block_of(size: int) -> bytes:
    """A header block of exactly this many bytes."""
    block = HOST + b"apiKey: " + KEY + b"\r\n"
    return block + b"X: " + b"y" * (size - len(block) - 5) + b"\r\n"


TABLE = [
    # what is sent, the statuses, a note
    (LINE + block_of(BOUNDS.headers_bytes) + b"\r\n", [200], "as much as there may be"),
    (LINE + block_of(BOUNDS.headers_bytes + 1) + b"\r\n", [431], "a byte more"),
    (LINE + b"X: " + b"y" * BOUNDS.headers_bytes, [431], "too much, and not whole"),
    (b"GET /" + b"x" * (MOST_LINE - 14) + b" HTTP/1.1\r\n\r\n", [414], "the longest line"),
    (b"GET /" + b"x" * (MOST_LINE - 14) + b" HTTP/2.0\r\n\r\n", [505], "of another version"),
    (b"GET /" + b"x" * (MOST_LINE - 13) + b" HTTP/2.0\r\n\r\n", [414], "a byte more"),
    (b"A" * MOST_LINE + b" / HTTP/1.1\r\n\r\n", [414], "no URL, but too long"),
    (b"A" * 100 + b" / HTTP/1.1\r\n\r\n", [400], "no method has so many letters"),
    (b"x" * MOST_LINE + b"\r\r\n\r\n", [414], "a CR too many at the bound"),
    (b"x" * MOST_LINE + b"\n", [400], "a bare LF at the bound"),
    (b"x" * (MOST_LINE + 1) + b"\n", [414], "a bare LF beyond the bound"),
    (b"GET / HTTP/2.0\r\nX: a\nb", [505], "two faults: the first counts"),
    (b"BAD\r\nX: " + b"y" * BOUNDS.headers_bytes, [400], "two faults: the first counts"),
    (
        LINE + b"X: a\nb" + b"y" * BOUNDS.headers_bytes + b"\r\n\r\n",
        [400],
        "a bare LF, and then too much",
    ),
    (
        LINE + b"X: " + b"y" * BOUNDS.headers_bytes + b"\n\r\n\r\n",
        [431],
        "too much, and then a bare LF",
    ),
    (b"\r\n\r\n" + LINE, [400], "two empty lines"),
    (b"\r\n" + LINE + block_of(200) + b"\r\n", [200], "one empty line"),
    (LINE + b"\n", [400], "a bare LF where a field begins"),
    (b"\n", [400], "a bare LF where a request begins"),
]


@pytest.mark.parametrize(
    ("data", "statuses", "remark"), TABLE, ids=[f"{n}-{row[2]}" for n, row in enumerate(TABLE)]
)
@pytest.mark.parametrize("step", [0, 1, 2, 7, 4096])
def test_bounds_do_not_depend_on_the_cut(
    bench: ProxyBench, data: bytes, statuses: list[int], remark: str, step: int
) -> None:
    """A head of exactly the bound passes, and of two faults the first is reported."""
    client = talk(bench, pieces(data.replace(KEY, bench.key.encode()), step))
    assert client.statuses == statuses, remark
    assert is_over(client) == (statuses != [200])


#: Heads that are refused at their last byte here, whatever follows it.
IN_DOUBT_NO_LONGER = [
    (b"\n", 400),
    (b"\r\n\r\n", 400),
    (b"GET / HTTP/1.1\n", 400),
    (b"GET / HTTP/2.0\r\n", 505),
    (b"GET /\r\n", 400),
    (LINE + b"Host: x\n", 400),
    (LINE + HOST + b"\n", 400),
    (b"x" * (MOST_LINE + 1) + b"\n", 414),
    (b"x" * (MOST_LINE + 1) + b"\r\nX: a\r\n\r\n", 414),
    (b"x" * (MOST_LINE + BOUNDS.headers_bytes + 1), 414),
    (LINE + b"y" * (BOUNDS.headers_bytes + 1), 431),
]


@pytest.mark.parametrize(("data", "status"), IN_DOUBT_NO_LONGER)
def test_a_fault_is_answered_at_once(bench: ProxyBench, data: bytes, status: int) -> None:
    """As soon as the bytes prove it, and not a byte earlier."""
    client = bench.client()
    for at in range(len(data) - 1):
        client.send(data[at : at + 1])
    assert client.statuses == []
    client.send(data[-1:])
    assert client.statuses == [status]
    assert is_over(client)


def test_a_long_line_waits_for_its_fields(bench: ProxyBench) -> None:
    """They have the key whose limits are reported; after the deadline it is 414 without them."""
    client = bench.client()
    client.send(b"GET /" + b"x" * MOST_LINE)
    client.send(b" HTTP/1.1\r\nHost: x\r\nX: y")
    assert client.statuses == []
    client.connection.check_deadline(client.connection.deadline)
    assert client.statuses == [414]
    assert is_over(client)


def test_a_long_line_is_served_under_another_bound(bench: ProxyBench) -> None:
    """A policy that was loaded meanwhile decides; nothing of it is kept for the next head."""
    client = bench.client()
    line = b"GET /api/" + b"x" * MOST_LINE
    client.send(line)
    bench.use(replace(policy_of(), bounds=replace(BOUNDS, url_bytes=2 * BOUNDS.url_bytes)))
    client.send(b" HTTP/1.1\r\n" + HOST + b"apiKey: " + bench.key.encode() + b"\r\n\r\n")
    bench.answer()
    assert client.statuses == [200]
    client.send(LINE + b"X")
    client.connection.check_deadline(client.connection.deadline)
    assert client.statuses == [200, 408]


#: Heads that are refused, with {} for the key's line; the status; are the key's limits reported?
REFUSED: list[tuple[str, bytes, int, bool]] = [
    ("url", b"GET /" + b"x" * MOST_LINE + b" HTTP/1.1\r\nHost: x\r\n{}\r\n", 414, True),
    ("url of 30 KiB", b"GET /" + b"x" * 30_000 + b" HTTP/1.1\r\n{}\r\n", 414, True),
    ("url of 50 KiB", b"GET /" + b"x" * 50_000 + b" HTTP/1.1\r\n{}\r\n", 414, False),
    ("segments", b"GET " + b"/a" * 200 + b" HTTP/1.1\r\nHost: x\r\n{}\r\n", 414, True),
    ("too much", LINE + HOST + b"{}X: " + b"y" * BOUNDS.headers_bytes + b"\r\n\r\n", 431, True),
    ("too much first", LINE + b"X: " + b"y" * 50_000 + b"\r\n{}\r\n", 431, False),
    ("too many", LINE + HOST + b"X: y\r\n" * 200 + b"{}\r\n", 431, True),
    ("two keys", LINE + b"apiKey: x\r\n{}Host : x\r\n\r\n", 400, False),
    ("no host", LINE + b"{}\r\n", 400, True),
    ("a bad field", LINE + HOST + b"{}X y\r\n\r\n", 400, True),
    ("a bad field first", LINE + HOST + b"X y\r\n{}\r\n", 400, True),
    ("a bare LF", LINE + HOST + b"X: y\n{}\r\n", 400, False),
    ("a bare LF after it", LINE + HOST + b"{}X: y\n\r\n", 400, True),
    ("in the body", LINE + b"\r\n{}\r\n\r\n", 400, False),
    ("two lengths", LINE + HOST + b"{}" + b"Content-Length: 1\r\n" * 2 + b"\r\n", 400, True),
    ("a coding", LINE + HOST + b"{}Transfer-Encoding: gzip, chunked\r\n\r\n", 501, True),
    ("expects", LINE + HOST + b"Expect: a\r\n{}\r\n", 417, True),
    ("length", LINE + HOST + b"{}Content-Length: 99999999\r\n\r\n", 413, True),
    ("version", b"GET / HTTP/2.0\r\n{}\r\n", 505, True),
    ("no target", b"GET\r\n{}\r\n", 400, True),
    ("method", b"TRACE /api/x HTTP/1.1\r\nHost: x\r\n{}\r\n", 405, True),
]
CARRIED = [b"apiKey: %b\r\n", b"authorization: bearer %b \r\n", b"APIKEY:\t%b\t\r\n"]


@pytest.mark.parametrize(
    ("head", "status", "is_read"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
@pytest.mark.parametrize("lines", CARRIED)
def test_the_limits_of_a_refused_head(
    bench: ProxyBench, head: bytes, status: int, is_read: bool, lines: bytes
) -> None:
    """They are the plan's if a valid key was received in it, and nothing is counted."""
    key = bench.key.encode()
    carried = lines.replace(b"%b", key)
    client = talk(bench, [head.replace(b"{}", carried)])
    assert client.statuses == [status]
    limiter = bench.context.gate.limiter
    assert isinstance(limiter, PromptLimiter)
    assert limiter.last is not None
    assert limiter.last.limits[0].name == ("plan" if is_read else "failed_auth")
    assert limiter.last.cost == 0


def test_the_limits_of_a_head_that_is_late(bench: ProxyBench) -> None:
    """A key that has arrived is read; one that is cut off is not."""
    limiter = bench.context.gate.limiter
    assert isinstance(limiter, PromptLimiter)
    line = b"apiKey: " + bench.key.encode()
    for received, name in ((line + b"\r\n", "plan"), (line, "failed_auth")):
        client = bench.client()
        client.send(LINE + received)
        client.connection.check_deadline(client.connection.deadline)
        assert client.statuses == [408]
        assert limiter.last is not None
        assert limiter.last.limits[0].name == name


def test_a_line_is_read_once(bench: ProxyBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request line is parsed once, however many pieces the fields after it have."""
    gate = bench.context.gate
    lines: list[bytes] = []
    requested = gate.requested

    def counted(line: bytes) -> object:
        lines.append(line)
        return requested(line)

    monkeypatch.setattr(gate, "requested", counted)
    head = LINE + block_of(2_000).replace(KEY, bench.key.encode()) + b"\r\n"
    assert talk(bench, pieces(head, 1)).statuses == [200]
    assert lines == [LINE[:-2]]  # when the line is complete; the head's end finds it cached


# -- several heads on one connection ---------------------------------------------------------------
def conversation(bench: ProxyBench) -> bytes:
    """Requests with the same answers for any split: 200, 401, 404, 200, 405, 200, 400."""
    good = request(bench.key, "/api/x")
    return b"".join(
        [
            b"\r\n" + good,
            LINE + HOST + b"\r\n",
            request(bench.key, "/nowhere"),
            request(bench.key, "/api/x", "POST", b"GET / HTTP/1.1\r\n\r\n"),
            request(bench.key, "/health", "PUT"),
            good,
            b"GET /api/x HTTP/1.1\r\nHost : x\r\n\r\n",
            good,
        ]
    )


STATUSES = [200, 401, 404, 200, 405, 200, 400]


@pytest.mark.parametrize("step", [0, 1])
def test_a_line_feed_after_a_body_that_ends_in_a_carriage_return(
    bench: ProxyBench, step: int
) -> None:
    """They are no line end together."""
    sent = request(bench.key, "/api/x", "POST", b"a\r") + b"\n"
    client = talk(bench, pieces(sent, step))
    assert client.statuses == [200, 400]
    assert is_over(client)


@pytest.mark.parametrize("step", [0, 1, 2, 3, 50, 1000])
def test_pipelined_requests_in_pieces(bench: ProxyBench, step: int) -> None:
    """Each is answered once and in order, up to the first invalid one."""
    client = talk(bench, pieces(conversation(bench), step))
    assert client.statuses == STATUSES
    assert is_over(client)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 2_000), max_size=12))
def test_any_cut_gives_the_same(places: list[int]) -> None:
    """For any split, the same requests reach the upstream, to the byte."""

    def outcome(cuts: list[int]) -> tuple[list[int], list[bytes]]:
        with proxy_bench() as bench:
            data = conversation(bench)
            at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
            client = talk(bench, [data[start:end] for start, end in pairwise(at)])
            return client.statuses, [bytes(end.written) for end in bench.upstreams]

    assert outcome(places) == outcome([])


# -- what is cached of the last head ---------------------------------------------------------------
def test_the_same_head_under_another_policy(bench: ProxyBench) -> None:
    """It is parsed again: the route, and the fields that count, may have changed."""
    head = request(bench.key, "/api/x")
    client = bench.client()
    for files, status in [({}, 200), ({"routes": OTHER}, 404), ({}, 200)]:
        bench.use(policy_of(**files))
        client.send(head)
        bench.answer()
        assert client.statuses[-1] == status
    assert len(client.statuses) == 3


def test_a_policy_that_changes_in_mid_head(bench: ProxyBench) -> None:
    """A line that was parsed on arrival is parsed again under the new policy."""
    head = request(bench.key, "/api/x")
    client = bench.client()
    client.send(head[:40])
    bench.use(policy_of(routes=OTHER))
    client.send(head[40:])
    assert client.statuses == [404]


@pytest.mark.parametrize("step", [0, 1, 7])
def test_the_same_fields_under_another_line(bench: ProxyBench, step: int) -> None:
    """Repeated fields are those of this request, whatever its version."""
    fields = HOST + b"apiKey: " + bench.key.encode() + b"\r\n\r\n"
    lines = [
        b"GET /api/x HTTP/1.1\r\n",
        b"GET /api/x HTTP/1.1\r\n",
        b"GET /nowhere HTTP/1.1\r\n",
        b"DELETE /api/x HTTP/1.1\r\n",
        b"GET /api/x HTTP/1.0\r\n",  # HTTP/1.0 closes by default
    ]
    client = talk(bench, [one for line in lines for one in pieces(line + fields, step)])
    assert client.statuses == [200, 200, 404, 200, 200]
    assert is_over(client)


def test_a_head_in_pieces_and_a_shorter_one(bench: ProxyBench) -> None:
    """What was scanned of a head in pieces does not count for the next one."""
    long = b"GET /" + b"x" * 200 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    short = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nab\r\n\r\ncd"
    client = talk(bench, [long, long[:150], long[150:], short, short])
    assert client.statuses == [404] * 4
