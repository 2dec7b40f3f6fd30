"""The event `endpoint` of the transport of 2024-11-05: where it is found, and where it leads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.mcp.endpoints import MOST_BYTES, FirstEvent, target_of
from tests.kit.cost import cost

REFUSED = "/messages/?session_id=1"


def fed(stream: bytes, step: int) -> tuple[bytes, FirstEvent]:
    """What is passed on of a stream that arrives in pieces of some bytes."""
    first = FirstEvent(lambda url: url != REFUSED)
    passed = b"".join(first.feed(stream[at : at + step]) for at in range(0, len(stream), step))
    return passed + first.end(), first


@pytest.mark.parametrize("step", [1, 7, 1_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    ("before", "event"),
    [
        (b"", b"event: endpoint\ndata: /messages/?session_id=1\n\n"),
        (b": hello\n\n:\n\nretry: 5\nid: 1\n\n",
         b"data:/messages/?session_id=1\nevent:endpoint\n\n"),
        (b"", b"event: x\nid: 1\nevent: endpoint\ndata: /messages/?session_id=1\n\n"),
    ],
)  # fmt: skip
def test_an_endpoint_that_is_refused(before: bytes, event: bytes, end: bytes, step: int) -> None:
    """Nothing of the event is passed on, however the stream is written and split."""
    before, event = before.replace(b"\n", end), event.replace(b"\n", end)
    passed, first = fed(before + event, step)
    assert first.refused == REFUSED
    # A LF of the end before may be held back.
    assert before.startswith(passed)
    assert len(before) - len(passed) <= 1


@pytest.mark.parametrize("step", [1, 7, 100_000])
@pytest.mark.parametrize(
    "stream",
    [
        b"event: endpoint\ndata: /mcp/messages\n\ndata: 2\n\n",
        b"data: 1\n\nevent: endpoint\ndata: /messages/?session_id=1\n\n",
        b"event: message\ndata: endpoint\n\n",
        b"event: endpoints\ndata: /messages/?session_id=1\n\n",
        b": only a comment\n\n",
        b"data: not whole",
        b"data: " + b"x" * MOST_BYTES + b"\n\n",
        b"",
    ],
)
def test_streams_that_are_passed_on(stream: bytes, step: int) -> None:
    """Other first events, endpoints that are allowed, and what ends before it is known."""
    passed, first = fed(stream, step)
    assert (passed, first.refused, first.kept) == (stream, None, 0)


LINES = ["", "", ":", "id: 1", "event: endpoint", "event:x", "data", f"data: {REFUSED}", "datas"]


@given(
    st.lists(st.sampled_from(LINES), max_size=10),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 9),
)
def test_the_first_event(lines: list[str], end: str, step: int) -> None:
    """It is the first with data or a name, among comments and empty lines, however it arrives."""
    text = "".join(f"{line}{end}" for line in lines)
    first = next(filter(has_field, events_of(lines)), [])
    names = [line[6:].strip() for line in first if line.startswith("event:")]
    urls = [line[5:].strip() for line in first if line.startswith("data:")]
    is_refused = names[-1:] == ["endpoint"] and "\n".join(urls) == REFUSED
    passed, found = fed(text.encode(), step)
    assert (found.refused is not None) is is_refused
    assert text.encode().startswith(passed)
    assert is_refused or passed == text.encode()


def events_of(lines: list[str]) -> list[list[str]]:
    """The whole events: the lines up to each empty one."""
    events: list[list[str]] = [[]]
    for line in lines:
        if line:
            events[-1].append(line)
        else:
            events.append([])
    return events[:-1]


def has_field(event: list[str]) -> bool:
    return any(line.partition(":")[0] in {"data", "event"} for line in event)


@pytest.mark.parametrize("comment", [b":\n\n", b"\r\r", b"a\r\n\r\n", b"datas\n\n"])
def test_many_comments(comment: bytes) -> None:
    """They take little longer than as many bytes of an event: there may be 30,000 in one read."""
    size = 64 * 1024
    comments, event = comment * (size // len(comment)), b"id: " + b"x" * size

    def feed(data: bytes) -> None:
        assert FirstEvent(lambda _url: True).feed(data)

    assert cost(lambda: feed(comments), lambda: feed(event), 8) < 8


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/messages/?session_id=1", "/messages/?session_id=1"),
        (" /messages#x", "/messages"),
        ("messages?a=b:c", "/mcp/messages?a=b:c"),
        ("../messages", "/mcp/../messages"),
        ("?session_id=1", "/mcp/sse?session_id=1"),
        ("http://H.example/messages", "/messages"),
        ("//h.example/messages", "/messages"),
        ("http://10.0.0.1:9000/messages", None),
        ("//10.0.0.1/messages", None),
        ("https://h.example", None),
        ("javascript:alert(1)", None),
        ("", "/mcp/"),
    ],
)
def test_where_a_url_leads(url: str, expected: str | None) -> None:
    """As clients resolve it; None at another server."""
    assert target_of(url, "/mcp/sse", "h.example") == expected
