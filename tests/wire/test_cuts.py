"""Heads at their bounds: one outcome however they are cut, and no more work for many pieces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.domain.policy import Bounds
from tests.wire.bench import KEY_TEXTS, MemoryBench
from tests.wire.verdict import read_statuses

KEY_LINE = b"apiKey: %b\r\n" % KEY_TEXTS[b"{key}"]
LINE = b"GET /api/x HTTP/1.1\r\n"
BOUNDS = Bounds()
#: The longest request line, whatever is in it: a URL, and what may stand around one.
MOST_LINE = BOUNDS.url_bytes + 64


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBench]:
    made = MemoryBench(tmp_path_factory.mktemp("memory"))
    yield made
    made.close()


def block_of(size: int) -> bytes:
    """A header block of just so many bytes."""
    block = b"Host: gateway.test\r\n" + KEY_LINE
    return block + b"X: " + b"y" * (size - len(block) - 5) + b"\r\n"


TABLE = [
    # what is sent, the statuses, a remark
    (LINE + block_of(BOUNDS.headers_bytes) + b"\r\n", ["200"], "as much as there may be"),
    (LINE + block_of(BOUNDS.headers_bytes + 1) + b"\r\n", ["431"], "a byte more"),
    (LINE + b"X: " + b"y" * BOUNDS.headers_bytes, ["431"], "too much, and not whole"),
    (b"GET /" + b"x" * (MOST_LINE - 14) + b" HTTP/1.1\r\n\r\n", ["414"], "the longest line"),
    (b"GET /" + b"x" * (MOST_LINE - 14) + b" HTTP/2.0\r\n\r\n", ["505"], "of another version"),
    (b"GET /" + b"x" * (MOST_LINE - 13) + b" HTTP/2.0\r\n\r\n", ["414"], "a byte more"),
    (b"A" * MOST_LINE + b" / HTTP/1.1\r\n\r\n", ["414"], "no URL, but too long"),
    (b"A" * 100 + b" / HTTP/1.1\r\n\r\n", ["400"], "no method has so many letters"),
    (b"x" * MOST_LINE + b"\r\r\n\r\n", ["414"], "a CR too many at the bound"),
    (b"x" * MOST_LINE + b"\n", ["400"], "a bare LF at the bound"),
    (b"x" * (MOST_LINE + 1) + b"\n", ["414"], "a bare LF beyond the bound"),
    (b"GET / HTTP/2.0\r\nX: a\nb", ["505"], "two faults: the first counts"),
    (b"BAD\r\nX: " + b"y" * BOUNDS.headers_bytes, ["400"], "two faults: the first counts"),
    (
        LINE + b"X: a\nb" + b"y" * BOUNDS.headers_bytes + b"\r\n\r\n",
        ["400"],
        "a bare LF, and then too much",
    ),
    (
        LINE + b"X: " + b"y" * BOUNDS.headers_bytes + b"\n\r\n\r\n",
        ["431"],
        "too much, and then a bare LF",
    ),
    (b"\r\n\r\n" + LINE, ["400"], "two empty lines"),
    (b"\r\n" + LINE + block_of(100 + len(KEY_LINE)) + b"\r\n", ["200"], "one empty line"),
    (LINE + b"\n", ["400"], "a bare LF where a field begins"),
    (b"\n", ["400"], "a bare LF where a request begins"),
]


@pytest.mark.parametrize(
    ("data", "statuses", "remark"), TABLE, ids=[f"{n}-{row[2]}" for n, row in enumerate(TABLE)]
)
@pytest.mark.parametrize("step", [0, 1, 2, 7, 4096])
def test_bounds_do_not_depend_on_the_cut(
    bench: MemoryBench, data: bytes, statuses: list[str], remark: str, step: int
) -> None:
    """A head that is just small enough passes, and of two faults the first is told."""
    step = step or len(data)
    outcome = bench.run([[data[at : at + step] for at in range(0, len(data), step)]])
    assert read_statuses(outcome.written, (), outcome.ended)[0] == statuses, remark
    assert outcome.ended == (statuses != ["200"])


def test_a_line_is_judged_once(bench: MemoryBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pieces the fields after it come in, a request line is not read again."""
    gate = bench.gateway._context.gate
    lines: list[bytes] = []
    requested = gate.requested

    def counted(line: bytes) -> object:
        lines.append(line)
        return requested(line)

    monkeypatch.setattr(gate, "requested", counted)
    head = LINE + block_of(2_000) + b"\r\n"
    outcome = bench.run([[head[at : at + 1] for at in range(len(head))]])
    assert read_statuses(outcome.written, (), outcome.ended)[0] == ["200"]
    assert lines == [LINE[:-2]]  # as soon as it is there; when the head is whole, it is known
