"""Body readers: the outcome is the same for any split of the bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.http1.framing import (
    LAST_CHUNK,
    MOST_CHUNK_LINE_BYTES,
    MOST_TRAILER_BYTES,
    BodyReader,
    ChunkedReader,
    CloseReader,
    LengthReader,
    chunk,
)
from tests.kit.rows import each_row

Outcome = tuple[bytes, bytes, bool, bool]


def read(reader: BodyReader, pieces: list[bytes]) -> Outcome:
    """Feed the pieces; return the payload, the bytes after the end, done, faulty."""
    payload, beyond = b"", b""
    for piece in pieces:
        if reader.fault is not None:
            break
        if reader.done:
            beyond += piece
            continue
        part, rest = reader.feed(piece)
        payload += part
        beyond += rest
    return payload, beyond, reader.done, reader.fault is not None


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


GOOD = [
    (b"0\r\n\r\n", b"", b""),
    (b"5\r\nhello\r\n0\r\n\r\nGET", b"hello", b"GET"),
    (b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde", b""),
    (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789", b""),
    (b'00005;x=1;y="z"\r\nhello\r\n0;last\r\n\r\n', b"hello", b""),
    (b"1 ;x\r\na\r\n0\r\n\r\n", b"a", b""),
    (b"1\r\na\r\n0\r\nX-Trailer: y\r\nContent-Length: 9\r\n\r\nrest", b"a", b"rest"),
    (b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n", b""),
    (b'1 ; a = "b;\\"\\\\c" ;d=e;f;g=""\r\na\r\n0;a\r\n\r\n', b"a", b""),
    (b"1\t;\ta\t=\tb\r\na\r\n0\r\n\r\n", b"a", b""),
]

BAD = [
    b"0x5\r\nhello\r\n0\r\n\r\n",
    b"+5\r\nhello\r\n0\r\n\r\n",
    b"5_0\r\n",
    b"5 5\r\n",
    b" 5\r\n",
    b"5 \r\n",
    b"\r\n",
    b"g\r\n",
    b"-1\r\n",
    b"1" * 17 + b"\r\n",
    b"5\nhello\r\n0\r\n\r\n",
    b"5;a\nb\r\nhello\r\n",
    b"5;\x00\r\nhello\r\n",
    b"5;\x00a\r\nhello\r\n",
    b'5;a="\x00"\r\nhello\r\n',
    *[
        b"5;%b\r\nhello\r\n0\r\n\r\n" % extension
        for extension in (
            *(b"", b" ", b";", b"a;", b";a", b"=", b"a=", b"a= ", b"=b", b"a=b=c", b"a b"),
            *(b"a=b c", b"a,b", b"bad[=x", b"a=[", b'"', b'a="', b'a="b', b'a="b"c', b'a="\\"'),
            *(b'"a"=b', b"a ", b"a=b\t", b'a="\\\x7f"', b"\xe9"),
        )
    ],
    b"5\r\nhelloXX0\r\n\r\n",
    b"5\r\nhello\n0\r\n\r\n",
    b"5\r\nhello\r0\r\n\r\n",
    b"5\r\nhello0\r\n\r\n",
    b"5\r\nhello\nX0\r\n\r\n",
    b"5\r\nhello\rX0\r\n\r\n",
    b"0\r\nbad trailer\r\n\r\n",
    b"0\r\n folded: x\r\n\r\n",
    b"0\r\nX: a\nb\r\n\r\n",
    b"5;" + b"x" * MOST_CHUNK_LINE_BYTES + b"\r\n",
    b"5;" + b"x" * 4 * MOST_CHUNK_LINE_BYTES,
    b"0\r\n" + b"X: yyyyyyyy\r\n" * (MOST_TRAILER_BYTES // 10),
    b"0\r\nX: " + b"y" * 2 * MOST_TRAILER_BYTES,
]


@pytest.mark.parametrize("cut", [lambda data: [data], bytewise], ids=["whole", "bytewise"])
@each_row(("data", "payload", "beyond"), GOOD)
def test_good_chunks(
    data: bytes, payload: bytes, beyond: bytes, cut: Callable[[bytes], list[bytes]]
) -> None:
    """Chunks give their payload; extensions and trailers are dropped; the next message is kept."""
    assert read(ChunkedReader(), cut(data)) == (payload, beyond, True, False)


@pytest.mark.parametrize("cut", [lambda data: [data], bytewise], ids=["whole", "bytewise"])
@each_row("data", BAD)
def test_bad_chunks(data: bytes, cut: Callable[[bytes], list[bytes]]) -> None:
    """Bytes that are not exactly the grammar are a fault, and never the end of a body."""
    _, beyond, done, faulty = read(ChunkedReader(), cut(data))
    assert (beyond, done, faulty) == (b"", False, True)


@pytest.mark.parametrize("line", [b"5\n", b"5;a\n", b"0\r\nX: a\n"])
def test_a_line_that_ends_in_a_bare_lf(line: bytes) -> None:
    """It is a fault as soon as it is there: no more is waited for."""
    assert read(ChunkedReader(), [line])[3]
    assert read(ChunkedReader(), bytewise(line))[3]


@given(
    st.lists(st.binary(min_size=1, max_size=20), max_size=5),
    st.binary(max_size=10),
    st.data(),
)
def test_chunks_survive_any_cut(parts: list[bytes], beyond: bytes, data: st.DataObject) -> None:
    """What `chunk` writes is read back, for any split."""
    message = b"".join(map(chunk, parts)) + LAST_CHUNK + beyond
    cuts = sorted(data.draw(st.lists(st.integers(0, len(message)), max_size=8)))
    pieces = [message[a:b] for a, b in zip([0, *cuts], [*cuts, len(message)], strict=True)]
    assert read(ChunkedReader(), pieces) == (b"".join(parts), beyond, True, False)


#: A size in any spelling: leading zeros, either case, with or without an extension.
_SIZES = st.tuples(st.integers(0, 13), st.booleans(), st.sampled_from([b"", b";a=b", b" ; a"]))


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), _SIZES), max_size=40),
    st.lists(st.integers(0, 2000), max_size=6),
)
@example([(b"\r\n", (0, False, b"")), (b"1\r\nx\r\n", (2, True, b""))], [])
@example([(bytes([at]) * size, (0, True, b"")) for at, size in enumerate(range(1, 18))], [])
def test_chunks_in_any_spelling(
    parts: list[tuple[bytes, tuple[int, bool, bytes]]], cuts: list[int]
) -> None:
    """Many tiny ones at once are read as one by one: their data may look like chunks."""
    message = b""
    for payload, (zeros, upper, extension) in parts:
        size = b"%x" % len(payload)
        line = b"0" * zeros + (size.upper() if upper else size) + extension
        message += line + b"\r\n" + payload + b"\r\n"
    message += LAST_CHUNK
    places = sorted(min(at, len(message)) for at in cuts)
    pieces = [message[a:b] for a, b in zip([0, *places], [*places, len(message)], strict=True)]
    whole = b"".join(payload for payload, _ in parts)
    assert read(ChunkedReader(), pieces) == (whole, b"", True, False)


def test_tiny_chunks_are_read_together() -> None:
    """A body of 65,536 chunks of one byte takes a few steps, not one per chunk."""
    steps = 0

    class Counted(ChunkedReader):
        def _line_end(self, data: bytes, at: int, most: int) -> int:
            nonlocal steps
            steps += 1
            return super()._line_end(data, at, most)

    reader = Counted()
    payload, _ = reader.feed(b"1\r\nx\r\n" * 65_536 + LAST_CHUNK)
    assert (len(payload), reader.done, reader.chunks) == (65_536, True, 65_536)
    assert steps < 5


@given(st.binary(max_size=80), st.integers(0, 80))
def test_any_bytes_have_one_outcome_in_two_pieces(data: bytes, at: int) -> None:
    """Hostile bytes have one outcome, for any split."""
    whole = read(ChunkedReader(), [data])
    cut = read(ChunkedReader(), [data[:at], data[at:]])
    if not whole[3] and not cut[3]:
        assert whole == cut
    else:
        # A fault may be detected late, but then neither completes the body.
        assert not whole[2]
        assert not cut[2]


def test_an_early_end_is_a_fault() -> None:
    """If the peer ends before the body's end, the body is faulty."""
    for reader in (LengthReader(5), ChunkedReader()):
        reader.feed(b"1\r\n")
        reader.end()
        assert not reader.done
        assert reader.fault


def test_a_whole_body_may_end() -> None:
    """After the body's end, it is no fault; it completes a body framed by close."""
    length, chunked, close = LengthReader(2), ChunkedReader(), CloseReader()
    length.feed(b"ab")
    chunked.feed(LAST_CHUNK)
    assert close.feed(b"anything") == (b"anything", b"")
    for reader in (length, chunked, close):
        reader.end()
        assert reader.done
        assert reader.fault is None


@pytest.mark.parametrize("cut", [lambda data: [data], bytewise], ids=["whole", "bytewise"])
def test_length(cut: Callable[[bytes], list[bytes]]) -> None:
    """A stated length takes that many bytes and leaves the rest."""
    assert read(LengthReader(5), cut(b"hellorest")) == (b"hello", b"rest", True, False)
    assert LengthReader(0).done
