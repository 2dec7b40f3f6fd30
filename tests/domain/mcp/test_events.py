"""Event streams: where a comment fits, and edited events, however the bytes arrive."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.mcp.events import BYTES_FOR_ONE, COMMENT, MOST_IN_A_ROW, EditedStream, Stream
from tests.kit.cost import cost

ENDS = ("\n", "\r\n", "\r")


def parsed(text: bytes) -> list[tuple[str, str]]:
    """The events of a stream as a browser dispatches them: (id, data)."""
    events = []
    last_id, data = "", list[str]()
    lines = text.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for line in lines[:-1]:
        if not line:
            if data:
                events.append((last_id, "\n".join(data)))
            data = []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "id":
            last_id = value
    return events


def pieces(text: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[begin:end] for begin, end in pairwise(at)]


LINES = st.lists(
    st.sampled_from(["data: a", "data: b", "data:c", "id: 1", "event: message", ": c", "data", ""]),
    max_size=12,
)
CUTS = st.lists(st.integers(0, 500), max_size=8)


@given(LINES, st.sampled_from(ENDS), CUTS)
def test_a_comment_between_events_changes_nothing(
    lines: list[str], end: str, cuts: list[int]
) -> None:
    """Wherever the stream says so, a comment may be inserted."""
    text = "".join(f"{line}{end}" for line in lines).encode()
    stream = Stream()
    passed = b""
    for piece in pieces(text, cuts):
        if stream.between:
            passed += COMMENT
        passed += stream.feed(piece)
    assert parsed(passed) == parsed(text)


@pytest.mark.parametrize("end", ENDS)
def test_between_events(end: str) -> None:
    """At the start, and after each empty line."""
    stream = Stream()
    assert stream.between
    for piece, between in (("data: a", False), (end, False), (end, True), ("id: 1", False)):
        stream.feed(piece.encode())
        assert stream.between is between
    stream.feed(b"")
    assert not stream.between


def never() -> None:
    raise AssertionError("no event is too long")


@given(LINES, st.sampled_from(ENDS), CUTS, st.sampled_from([b"", b"a"]))
def test_edited_events(lines: list[str], end: str, cuts: list[int], mark: bytes) -> None:
    """Each whole event is edited once, and keeps its other fields."""
    text = "".join(f"{line}{end}" for line in [*lines, "", ""]).encode()
    stream = EditedStream(lambda data: data.replace(b"a", b"x\ny"), 1_000, never, mark)
    passed = b"".join(stream.feed(piece) for piece in pieces(text, cuts)) + stream.end()
    expected = [(at, data.replace("a", "x\ny")) for at, data in parsed(text)]
    if end == "\r":  # the last event may be passed on as it is: a LF could follow
        expected[-1:] = parsed(passed)[-1:]
    assert parsed(passed) == expected


@given(LINES, st.sampled_from(ENDS), CUTS, st.sampled_from([b"", b"no line has it"]))
def test_unedited_events_are_the_same_bytes(
    lines: list[str], end: str, cuts: list[int], mark: bytes
) -> None:
    """What the edit leaves is passed on byte for byte."""
    text = "".join(f"{line}{end}" for line in lines).encode()
    stream = EditedStream(lambda data: data, 1_000, never, mark)
    assert b"".join(stream.feed(piece) for piece in pieces(text, cuts)) + stream.end() == text


def test_an_event_is_passed_on_when_it_is_whole() -> None:
    """It does not wait for the next one."""
    stream = EditedStream(bytes.upper, 100, never)
    assert stream.feed(b"data: a\n") == b""
    assert (stream.kept, stream.between) == (8, True)
    assert stream.feed(b"\ndata: b") == b"data: A\n\n"
    assert stream.feed(b"\n\n") == b"data: B\n\n"


@given(LINES, st.sampled_from(ENDS[:2]), CUTS)
def test_marked_events(lines: list[str], end: str, cuts: list[int]) -> None:
    """Only events with the mark are edited, however they arrive."""
    text = "".join(f"{line}{end}" for line in [*lines, "", "data: <mark>", "", ""]).encode()
    stream = EditedStream(bytes.upper, 1_000, never, b"<mark>")
    passed = b"".join(stream.feed(piece) for piece in pieces(text, cuts)) + stream.end()
    assert parsed(passed) == parsed(text.replace(b"<mark>", b"<MARK>"))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_first_and_the_last_event(end: bytes) -> None:
    """A byte order mark before the first is none of its bytes; after the last, a CR is enough."""
    stream = EditedStream(bytes.upper, 100, never)
    text = b"\xef\xbb\xbfdata: a%b%bdata: b%b%b" % (end, end, end, end)
    assert stream.feed(text) + stream.end() == b"data: A\n\ndata: B\n\n"


def test_a_long_event() -> None:
    """After an event beyond the bound, the stream is passed on as it is, and once it is told."""
    told: list[None] = []
    stream = EditedStream(bytes.upper, 100, lambda: told.append(None))
    long = b"data: " + b"a" * 100 + b"\n\n"
    assert stream.feed(b"data: a\n\n" + long[:90]) == b"data: A\n\n"
    assert stream.feed(long[90:-1]) == long[:-1]
    assert not stream.is_edited
    assert not stream.between
    assert stream.feed(b"\ndata: b\n\n") == b"\ndata: b\n\n"
    assert stream.between
    assert told == [None]


def test_a_stream_that_is_not_edited_keeps_nothing() -> None:
    """It is passed on as it arrives."""
    stream = Stream()
    assert (stream.feed(b"data: a"), stream.kept, stream.end()) == (b"data: a", 0, b"")


def test_an_event_that_cannot_be_edited() -> None:
    """It is passed on as it is; that is told once in a stream."""
    told: list[None] = []
    stream = EditedStream(lambda data: None, 100, lambda: told.append(None))
    assert stream.feed(b"data: a\n\n" * 3) == b"data: a\n\n" * 3
    assert told == [None]


@pytest.mark.parametrize("size", [1, 7, 30_000])
def test_many_small_events(size: int) -> None:
    """A few are edited in a row, then as many as the bytes allow: editing takes its time."""
    told: list[None] = []
    edited: list[bytes] = []

    def edit(data: bytes) -> bytes:
        edited.append(data)
        return data

    stream = EditedStream(edit, 1_000, lambda: told.append(None), b"<mark>")
    text = b"data: <mark>\n\n" * 4_000
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert b"".join(stream.feed(piece) for piece in pieces) + stream.end() == text
    allowed = MOST_IN_A_ROW + len(text) // BYTES_FOR_ONE
    assert allowed - 8 <= len(edited) <= allowed
    assert told == [None]
    stream.feed(b": more bytes\n\n" * 1_000)
    stream.feed(b"data: <mark>later\n\n")
    assert edited[-1] == b"<mark>later"


@pytest.mark.parametrize(
    "lines",
    [b"a\n", b":\r", b"a\r\n", b"data\n", b"data:\n", b"data: \r", b"datas\n", b"data:\na\n"],
)
def test_an_event_of_short_lines(lines: bytes) -> None:
    """Its lines, of which there may be 262,000, cost little more than as many bytes in one."""
    size = 256 * 1024

    def feed(begin: bytes) -> None:
        EditedStream(lambda data: data, 2 * size, lambda: None, b"m").feed(begin + b"\ndata: m\n\n")

    short, usual = lines * (size // len(lines)), b"data: " + b"x" * size
    assert cost(lambda: feed(short), lambda: feed(usual), 6) < 6


def test_data_among_many_other_lines() -> None:
    """An event of thousands of changes from data to other lines is not edited; that is told."""
    told: list[None] = []
    stream = EditedStream(bytes.upper, 1_000_000, lambda: told.append(None))
    few = b"id: 1\ndata: a\n" * 4_000 + b"\n"
    assert stream.feed(few).startswith(b"id: 1\nid: 1\n")
    assert told == []
    many = b"id: 1\ndata: a\n" * 5_000 + b"\n"
    assert (stream.feed(many), told) == (many, [None])
    # As many lines of one kind are no hindrance.
    assert stream.feed(b"data: a\n" * 100_000 + b"\n").startswith(b"data: A\ndata: A\n")


def test_a_mark_that_arrives_in_parts() -> None:
    """It is found across the ends of reads, also after events that were passed on."""
    stream = EditedStream(bytes.upper, 1_000, never, b"<mark>")
    assert stream.feed(b"data: a\n\ndata: <ma") == b"data: a\n\n"
    assert stream.feed(b"rk>") == b""
    assert stream.feed(b"b\n\ndata: c\n\nda") == b"data: <MARK>B\n\ndata: c\n\n"
    assert stream.feed(b"ta: d\n\n") == b"data: d\n\n"
