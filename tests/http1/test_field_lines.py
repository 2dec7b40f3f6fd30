"""Header lines: recognised by the exact grammar, and without whitespace around values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http1.field_lines import name_of, plain_lines, split_fields, without

NAMES = st.text("aZ09-_!~", min_size=1, max_size=5).map(str.encode)
SPACE = st.sampled_from([b"", b" ", b"\t", b" \t "])
VALUES = st.lists(st.sampled_from([b"a", b":", b"\xe9", b"~!", b" ", b"\t"]), max_size=6).map(
    b"".join
)


@pytest.mark.parametrize(
    ("block", "plain"),
    [
        (b"", b""),
        (b"A: b\r\n", b"A: b\r\n"),
        (b"A:b\r\nC: \t d e \t\r\n", b"A: b\r\nC: d e\r\n"),
        (b"A:\r\nB: \r\n", b"A: \r\nB: \r\n"),
        (b"A: b: c\r\n", b"A: b: c\r\n"),
        (b"A: \xe9\x80\r\n", b"A: \xe9\x80\r\n"),
        *[
            (block, None)
            for block in (
                *(b"\r\n", b"A\r\n", b": b\r\n", b"A : b\r\n", b" A: b\r\n", b"A: b", b"A: b\r"),
                *(b"A: b\n", b"A: b\r\n c\r\n", b"A: b\rC: d\r\n", b"A: b\nC: d\r\n"),
                *(b"A: \x00\r\n", b"A: b\x7f\r\n", b"A(: b\r\n", b"\xe9: b\r\n", b"A: b\r\n\r\n"),
            )
        ],
    ],
)
def test_plain_lines(block: bytes, plain: bytes | None) -> None:
    """Exactly the lines of the grammar are accepted."""
    assert plain_lines(block) == plain


@given(st.lists(st.tuples(NAMES, SPACE, VALUES, SPACE), max_size=5))
def test_what_plain_lines_say(fields: list[tuple[bytes, bytes, bytes, bytes]]) -> None:
    """Names and values stay; written once, the lines stay as they are."""
    plain = plain_lines(b"".join(b"%b:%b%b%b\r\n" % field for field in fields))
    assert plain is not None
    assert plain_lines(plain) is plain
    found = [(name, value.strip(b" \t")) for name, _, value, _ in fields]
    assert [(name, value) for _, name, value in split_fields(plain)] == found
    lines = [b"%b: %b" % field for field in found]
    assert [line for line, _, _ in split_fields(plain)] == lines
    assert [name_of(line) for line in lines] == [name.lower() for name, _ in found]


def test_without() -> None:
    """Every line of a name is left out, in any letter case; the others stay."""
    block = b"Aa: 1\r\nB: aa: \r\naA: 2\r\nC: 3\r\n"
    assert without(block, {b"aa", b"c", b"d"}) == b"B: aa: \r\n"
    assert without(b"", {b"a"}) == b""
