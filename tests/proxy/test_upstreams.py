"""Hostile and failing upstreams over real sockets: what clients see, and what is reused.

Each answer of the table is sent in one piece and in single bytes, with the same result: the client
gets 502, or an answer that is visibly incomplete, or its valid part; the connection that it came on
is not reused; and the client's next request is answered normally.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Literal

import pytest

from gateway.observe.log_throttle import LogThrottle
from tests.kit.upstream import Exchange, echo
from tests.kit.wire import Response, Wire, WireError
from tests.proxy.conftest import Bench, Start

Ending = Literal["stay", "close", "reset"]

#: Above this, pieces of an odd size replace single bytes, which would take too long.
DRIP_BYTES = 2_000

CODES = {"UPSTREAM_INVALID_RESPONSE", "UPSTREAM_CLOSED"}


@dataclass(frozen=True, slots=True)
class Case:
    """An answer, and the expected outcome.

    ending:  what the server does after it
    outcome: "502"; "cut": 502, or an incomplete answer; else the body that is relayed
    """

    name: str
    answer: bytes
    ending: Ending = "stay"
    outcome: str | bytes = "502"
    method: str = "GET"
    status: int = 200


def _status_lines() -> list[Case]:
    lines = [
        b"hello",
        b"",
        b"\r\nHTTP/1.1 200 OK",
        b" HTTP/1.1 200 OK",
        b"HTTP/0.9 200 OK",
        b"HTTP/1.2 200 OK",
        b"HTTP/1.10 200 OK",
        b"HTTP/01.1 200 OK",
        b"HTTP/2.0 200 OK",
        b"HTTP/2 200",
        b"http/1.1 200 OK",
        b"HTTPS/1.1 200 OK",
        b"ICY 200 OK",
        b"HTTP/1.1",
        b"HTTP/1.1 ",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 099 OK",
        b"HTTP/1.1 1000 OK",
        b"HTTP/1.1 -20 OK",
        b"HTTP/1.1 +20 OK",
        b"HTTP/1.1 2 0 OK",
        b"HTTP/1.1 OK 200",
        b"HTTP/1.1 200OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1\t200 OK",
        b"HTTP/1.1 200\tOK",
        b"HTTP/1.1 200 O\x00K",
        b"HTTP/1.1 200 O\x7fK",
        b"HTTP/1.1 200 O\rK",
        b"HTTP/1.1 200 OK\nX: y",
        b"HTTP/1.1 \xd9\xa2\xd9\xa0\xd9\xa0 OK",
    ]
    return [
        Case(f"line-{number}", line + b"\r\nContent-Length: 2\r\n\r\nno")
        for number, line in enumerate(lines)
    ]


def _not_http() -> list[Case]:
    return [
        Case("http-0.9", b"<html>hello</html>", "close"),
        Case("http-0.9-stays", b"<html>hello</html>"),
        Case("tls-alert", b"\x15\x03\x01\x00\x02\x02\x46"),
        Case("ssh", b"SSH-2.0-OpenSSH_9.2\r\n"),
        Case("nul", b"\0" * 7),
        Case("bare-lf", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nno"),
        Case("bare-lf-last", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nno"),
        Case("bare-lf-first", b"\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"),
    ]


def _fields() -> list[Case]:
    lines = [
        b"A : b",
        b"A\t: b",
        b"A\x85: b",
        b"A\x00: b",
        b"A\x0b: b",
        b"A B: c",
        b"A(b): c",
        b"\xc3\x84: b",
        b": b",
        b"no colon",
        b" A: b",
        b"A: b\r\n c",
        b"A: b\r\n\tc",
        b"A: b\x00",
        b"A: b\x01",
        b"A: b\x1b[2J",
        b"A: b\x7f",
        b"A: b\rc",
        b"A: b\nC: d",
        b"A: b\r\r",
        # Ambiguous framing.
        b"Content-Length: 2\r\nContent-Length: 2",
        b"Content-Length: 2\r\nContent-Length: 3",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 2",
        b"Content-Length: -2",
        b"Content-Length: +2",
        b"Content-Length: 0x2",
        b"Content-Length: 2_0",
        b"Content-Length: 2.0",
        b"Content-Length: 2e0",
        b"Content-Length: 2 2",
        b"Content-Length: 2,2",
        b"Content-Length: 2, 3",
        b"Content-Length:",
        b"Content-Length: \xd9\xa2",
        b"Content-Length: 00000000000000000002",
        b"Content-Length: 99999999999999999999",
        b"Content-Length: 2;",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding: ,chunked",
        b"Transfer-Encoding: chunked;q=1",
        b'Transfer-Encoding: "chunked"',
        b"Transfer-Encoding: \x0bchunked",
        b"Transfer-Encoding:",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Connection: Content-Length\r\nContent-Length: 2",
        b"Connection: close, Transfer-Encoding\r\nTransfer-Encoding: chunked",
    ]
    return [
        Case(f"field-{number}", b"HTTP/1.1 200 OK\r\n" + line + b"\r\n\r\n2\r\nno\r\n0\r\n\r\n")
        for number, line in enumerate(lines)
    ] + [
        Case("chunked-1.0", b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        Case("head-two-lengths", _with("Content-Length: 1\r\nContent-Length: 2"), method="HEAD"),
        Case("103-with-body", b"HTTP/1.1 103 X\r\nContent-Length: 2\r\n\r\nno" + _with("A: b")),
    ]


def _with(fields: str, body: bytes = b"", status: str = "200 OK", version: str = "1.1") -> bytes:
    return f"HTTP/{version} {status}\r\n{fields}\r\n\r\n".encode() + body


def _chunks() -> list[Case]:
    bodies = [
        b"zz\r\n",
        b"\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5_0\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"5 5\r\nhello\r\n0\r\n\r\n",
        b"00000000000000005\r\nhello\r\n0\r\n\r\n",
        b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"5;a\nhello\r\n0\r\n\r\n",
        b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        b"5;\x00\r\nhello\r\n0\r\n\r\n",
        b"5;" + b"a" * 1_000_000 + b"\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\nno colon\r\n\r\n",
        b"5\r\nhello\r\n0\r\nA: \x00\r\n\r\n",
        b"5\r\nhello\r\n0\r\nA: b\n\r\n",
        b"5\r\nhello\r\n0\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
        b"1\r\na\r\n" * 10_000 + b"z\r\n",
    ]
    return [
        Case(f"chunk-{number}", _with("Transfer-Encoding: chunked", body), outcome="cut")
        for number, body in enumerate(bodies)
    ]


def _truncations() -> list[Case]:
    heads = [b"", b"H", b"HTTP/1.", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nA: b\r\n"]
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    chunked = "Transfer-Encoding: chunked"
    bodies = [
        _with("Content-Length: 10"),
        _with("Content-Length: 10", b"half"),
        _with(chunked),
        _with(chunked, b"5"),
        _with(chunked, b"5\r\nhe"),
        _with(chunked, b"5\r\nhello"),
        _with(chunked, b"5\r\nhello\r\n"),
        _with(chunked, b"5\r\nhello\r\n0\r\n"),
        _with(chunked, b"5\r\nhello\r\n0\r\nA: b\r\n"),
    ]
    endings: list[Ending] = ["close", "reset"]
    cases = [
        Case(f"{ending}-{number}", answer, ending, outcome)
        for ending in endings
        for outcome, answers in (("502", [*heads, interim]), ("cut", bodies))
        for number, answer in enumerate(answers, 0 if outcome == "502" else len(heads) + 1)
    ]
    # A reset does not complete a body that ends with its connection.
    return [*cases, Case("reset-close-delimited", _with("A: b", b"half"), "reset", "cut")]


def _floods() -> list[Case]:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    return [
        Case("long-value", _with("A: " + "b" * 1_000_000)),
        Case("long-name", _with("a" * 1_000_000 + ": b")),
        Case("long-reason", b"HTTP/1.1 200 " + b"O" * 1_000_000 + b"\r\n\r\n"),
        Case("long-enough", _with("A: " + "b" * 70_000)),
        Case("no-end", b"HTTP/1.1 200 OK\r\nA: " + b"b" * 1_000_000),
        Case("fields", _with("\r\n".join("A: b" for _ in range(10_000)))),
        Case("fields-few", _with("\r\n".join("A: b" for _ in range(300)))),
        Case("100s", b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000),
        Case("102s", b"HTTP/1.1 102 Processing\r\n\r\n" * 100),
        Case("103s", early * 100 + _with("Content-Length: 0")),
        Case("101", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nno"),
        Case("101-plain", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        Case("100-101", b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 101 S\r\nConnection: upgrade\r\n\r\n"),
    ]


def _relays() -> list[Case]:
    poison = _with("Content-Length: 6", b"poison")
    length = "Content-Length: 2"
    interim = b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nLink: </a>\r\n\r\nHTTP/1.1 102 P\r\n\r\n"
    return [
        Case("junk", _with(length, b"okJUNK"), outcome=b"ok"),
        Case("crlf", _with(length, b"ok\r\n"), outcome=b"ok"),
        Case("second", _with(length, b"ok" + poison), outcome=b"ok"),
        Case("second-empty", _with("Content-Length: 0", poison), outcome=b""),
        Case(
            "second-chunked",
            _with("Transfer-Encoding: chunked", b"2;x=y\r\nok\r\n0\r\nA: b\r\n\r\n" + poison),
            outcome=b"ok",
        ),
        Case("204-body", _with(length, b"ok", "204 N"), outcome=b"", status=204),
        Case("204-junk", _with("A: b", poison, "204 N"), outcome=b"", status=204),
        Case(
            "204-chunked",
            _with("Transfer-Encoding: chunked", b"2\r\nok\r\n0\r\n\r\n", "204 N"),
            outcome=b"",
            status=204,
        ),
        Case("304-body", _with(length, b"ok", "304 N"), outcome=b"", status=304),
        Case("304-second", _with("A: b", poison, "304 N"), outcome=b"", status=304),
        Case("head-body", _with(length, b"ok"), outcome=b"", method="HEAD"),
        Case("head-second", _with(length, poison), outcome=b"", method="HEAD"),
        Case("1.0", _with(length, b"ok", version="1.0"), outcome=b"ok"),
        Case("1.0-end", _with("A: b", b"ok", version="1.0"), "close", b"ok"),
        Case("1.1-end", _with("A: b", b"ok"), "close", b"ok"),
        Case("1.1-end-empty", _with("A: b"), "close", b""),
        Case("close", _with(f"{length}\r\nConnection: close", b"ok"), outcome=b"ok"),
        Case("closes", _with(f"{length}\r\nConnection: X, CLOSE", b"ok"), "close", b"ok"),
        Case("interim", interim + _with(length, b"ok", version="1.0"), outcome=b"ok"),
        Case(
            "error",
            _with(f"{length}\r\nConnection: close", b"ok", "500 E"),
            "close",
            b"ok",
            "GET",
            500,
        ),
        Case("ours", _with("X-RateLimit-Limit: 1\r\nContent-Length: 2", b"ok!"), outcome=b"ok"),
    ]


CASES = [
    *_status_lines(),
    *_not_http(),
    *_fields(),
    *_chunks(),
    *_truncations(),
    *_floods(),
    *_relays(),
]


def test_the_table_is_long_enough() -> None:
    """Guards against removing cases by accident."""
    assert len(CASES) >= 95
    assert len({case.name for case in CASES}) == len(CASES)


def _reset(exchange: Exchange) -> None:
    """Close the connection with a reset."""
    made = exchange._writer.get_extra_info("socket")
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    exchange.abort()


async def _play(exchange: Exchange, case: Case, *, drip: bool) -> None:
    step = len(case.answer) or 1
    if drip:
        step = 1 if len(case.answer) <= DRIP_BYTES else 997
    for at in range(0, len(case.answer), step):
        await exchange.write(case.answer[at : at + step])
        if drip:
            await asyncio.sleep(0)
    if case.ending == "reset":
        _reset(exchange)
    elif case.ending == "close":
        exchange.close()
    await exchange.ended()


async def _answer_of(wire: Wire, case: Case, bench: Bench) -> Response | None:
    """The client's answer; None: it was incomplete."""
    try:
        return await wire.request(case.method, "/api/x", bench.auth)
    except (WireError, ConnectionError):
        return None


@pytest.mark.parametrize("drip", [False, True], ids=["whole", "dripped"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_hostile_answers(start: Start, case: Case, drip: bool) -> None:
    """See the module."""
    bench = await start()
    dropped = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        try:
            await _play(exchange, case, drip=drip)
        finally:
            dropped.set()

    bench.upstream.script = script
    async with await bench.connect() as first, await bench.connect() as second:
        response = await _answer_of(first, case, bench)
        await asyncio.wait_for(dropped.wait(), 20)
        if response is None:
            assert case.outcome == "cut"
        elif isinstance(case.outcome, bytes):
            assert (response.status, response.body) == (case.status, case.outcome)
            assert response["X-RateLimit-Limit"] == "6000"
        else:
            assert response.status == 502
            assert case.method == "HEAD" or response.json()["code"] in CODES
        bench.upstream.script = echo
        wire = second if response is None else first
        again = await wire.request("GET", "/api/y", bench.auth)
    assert again.json()["target"] == "/api/y"
    assert [one.connection for one in bench.upstream.requests] == [0, 1]


@pytest.mark.parametrize(
    ("every_s", "lines"),
    [
        (3600.0, ["upstream api: invalid response: the status line is malformed"]),
        (0.0, ["upstream api: invalid response: the status line is malformed"] * 5),
    ],
)
async def test_invalid_answers_are_throttled(
    start: Start, caplog: pytest.LogCaptureFixture, every_s: float, lines: list[str]
) -> None:
    """Invalid answers do not fill the log: one line a second."""
    bench = await start()
    bench.gateway._context.throttle = LogThrottle(every_s)

    async def nonsense(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 abc\r\n\r\n")

    bench.upstream.script = nonsense
    async with await bench.connect() as wire:
        for _ in range(5):
            assert (await wire.request("GET", "/api/x", bench.auth)).status == 502
    messages = [record.getMessage() for record in caplog.records]
    assert [line for line in messages if "invalid response" in line] == lines
