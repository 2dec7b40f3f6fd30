"""Properties of all messages: one outcome for any split, and an answer or a close for any bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.kit.tiers import examples
from tests.wire.bench import KEY_TEXTS, MemoryBench
from tests.wire.cases import Case, read_all
from tests.wire.judge import read_answers
from tests.wire.verdict import judge, read_statuses, sends_of

KEY = KEY_TEXTS[b"{key}"]
GOOD = b"GET /api/x HTTP/1.1\r\nHost: gateway.test\r\napiKey: %b\r\n\r\n" % KEY

#: Above this, a message in hundreds of pieces would take too long.
CASES = [case for case in read_all() if sum(map(len, case.sends)) < 8 * 1024]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBench]:
    made = MemoryBench(tmp_path_factory.mktemp("memory"))
    yield made
    made.close()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The pieces of the data, cut at these places."""
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(at)]


@settings(max_examples=examples(600), deadline=None)
@given(st.sampled_from(CASES), st.lists(st.integers(0, 1 << 16), max_size=12))
def test_any_split_has_the_same_outcome(bench: MemoryBench, case: Case, places: list[int]) -> None:
    """For any split of a message, its case's outcome is the same."""
    outcome = bench.run([cut(data, places) for data in sends_of(case)], case.answers, case.hangs_up)
    judge(case, outcome.written, outcome.ended, bench.upstream)


PIECES = st.sampled_from(
    [
        b"GET /api/x HTTP/1.1\r\n",
        b"POST /api/x HTTP/1.1\r\n",
        b"HEAD /api/x HTTP/1.0\r\n",
        b"GET //v1/../api/%2e/x?a HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"Host: gateway.test\r\n",
        b"apiKey: %b\r\n" % KEY,
        b"Authorization: Bearer %b\r\n" % KEY,
        b"Content-Length: 5\r\n",
        b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Connection: keep-alive\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        b"Expect: 100-continue\r\n",
        b"X-Forwarded-For: 192.0.2.1\r\n",
        b"X: y\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\0",
        b":",
        b"hello",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"0\r\n",
        GOOD,
    ]
)
STREAMS = st.lists(PIECES | st.binary(max_size=8), max_size=24).map(b"".join)


@settings(max_examples=examples(800), deadline=None)
@example(b"", [])
@example(GOOD * 100 + b"BAD\r\n\r\n" + GOOD, [])
@example(GOOD + b"\r\n\r\n" + GOOD, [len(GOOD) + 2])
@given(STREAMS, st.lists(st.integers(0, 1 << 16), max_size=4))
def test_any_bytes_give_an_answer_or_a_close(
    bench: MemoryBench, data: bytes, places: list[int]
) -> None:
    """Any bytes are answered in order, and only admitted requests reach the upstream.

    For any split, the answers are the same, and nothing is raised.
    """
    bench.complaints.clear()
    bench.upstream.expect((), False)
    whole = bench.run([[data]])
    methods = tuple(re.findall(rb"^([A-Z]+) /", data, re.MULTILINE))
    requests = check(bench, whole.written, whole.ended)
    pieces = bench.run([cut(data, places)])
    assert check(bench, pieces.written, pieces.ended) == requests
    assert pieces.ended == whole.ended
    if b"HEAD" not in methods:
        statuses, _ = read_statuses(whole.written, (), whole.ended)
        assert read_statuses(pieces.written, (), pieces.ended)[0] == statuses


def check(bench: MemoryBench, written: bytes, ended: bool) -> list[str]:
    """Check what holds for any bytes; return the complete requests that reached the upstream."""
    assert bench.complaints == []
    assert bench.upstream.faults == []
    requests = [one.start for one in bench.upstream.requests]
    assert len(requests) <= bench.limiter.admitted
    # An admitted request that did not reach the upstream completely was the last one.
    assert bench.limiter.admitted - len(requests) <= 1
    if not any(one.startswith("HEAD") for one in requests) and b"HEAD" not in written:
        read_answers(written, (), ended)
    assert KEY not in written
    return requests


def test_100_pipelined_of_which_one_is_bad(bench: MemoryBench) -> None:
    """The 60 before it are answered in order and counted; none after it is read."""
    numbered = [GOOD.replace(b"/api/x", b"/api/%d" % number) for number in range(100)]
    numbered[60] = b"GET /api/60 HTTP/1.1\r\nHost: gateway.test\r\nX : y\r\n\r\n"
    outcome = bench.run([[b"".join(numbered)]])
    statuses, left = read_statuses(outcome.written, (), outcome.ended)
    assert (statuses, left) == (["200"] * 60 + ["400"], b"")
    assert outcome.ended
    assert [one.start for one in bench.upstream.requests] == [f"GET /api/{n}" for n in range(60)]
    assert bench.limiter.admitted == 60
