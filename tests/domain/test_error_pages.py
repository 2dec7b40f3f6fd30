"""Pages of refusals: which is chosen by Accept, and what escaped values make of it."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.error_pages import (
    MOST_ACCEPT,
    ErrorPages,
    Kind,
    pieces,
    prefers_html,
    unknown_variable,
)

CHROMIUM = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,"
    "*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"
)


@pytest.mark.parametrize(
    ("accept", "is_html"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/html", True),
        ("TEXT/HTML", True),
        (CHROMIUM, True),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("text/html, application/json", False),
        ("text/html;q=0.9, application/json;q=0.8", True),
        ("text/html;q=0.8, application/json;q=0.9", False),
        ("text/html;q=0.5, */*", False),
        ("application/json;q=0.1, text/html; q=0.2", True),
        ("text/html;q=0", False),
        ("text/html;q=0, text/*", False),
        ("text/html;level=1", True),
        ("text/html;level=1;q=0.4, */*;q=0.5", False),
        ("text/html;q=x", False),
        ("text/html;q=2", False),
        ("text/html;q=-1", False),
        ("text/html;q=1e9", False),
        ("text/html;q=0.1234", False),
        ("text/html ; q=1.000 ,*/*;q=0", True),
        (",,;;,text/html", True),
        ("text/htmlx", False),
        ("text/html" + "," * MOST_ACCEPT, False),
        (",".join(f"text/x{n};q=0.{n}" for n in range(600)) + ",text/html", False),
    ],
)
def test_preference(accept: str, is_html: bool) -> None:
    """HTML only if it is wanted more than JSON (RFC 9110, 12.5.1); of a long list never."""
    assert prefers_html(accept) is is_html


@given(st.text(alphabet="texhml/jsonapic*;,q=01. ", max_size=100))
def test_any_accept_is_read(accept: str) -> None:
    """Malformed ones too."""
    assert prefers_html(accept) in (True, False)


@pytest.mark.parametrize(
    ("pages", "browser", "script"),
    [
        (ErrorPages(b"h", b"j"), ("html", b"h", True), ("json", b"j", True)),
        (ErrorPages(b"h"), ("html", b"h", True), ("json", None, True)),
        (ErrorPages(None, b"j"), ("json", b"j", False), ("json", b"j", False)),
    ],
)
def test_choice(pages: ErrorPages, browser: object, script: object) -> None:
    """JSON where there is no HTML, of the gateway if the policy has none."""
    assert pages.chosen(CHROMIUM) == browser
    assert pages.chosen("*/*") == script


class Reader(HTMLParser):
    """What a browser makes of a page: its tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[object] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.found.append(data)


@given(st.text(alphabet=st.characters(exclude_characters="\r\n\0", codec="utf-8")))
def test_messages_add_no_markup(message: str) -> None:
    """In a text and in an attribute; a policy's own message may have any character."""
    page = b'<p title="{message}">x{message}</p>'
    reader = Reader()
    reader.feed(b"".join(pieces("html", page, 403, "C", message, None)).decode())
    reader.close()
    assert reader.found == [("p", [("title", message)]), f"x{message}"]


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_messages_end_no_string(message: str) -> None:
    """JSON has the same text."""
    (page,) = pieces("json", b'{"m": "{message}", "n": {status}}', 403, "C", message, None)
    assert json.loads(page) == {"m": message, "n": 403}


@pytest.mark.parametrize(
    ("kind", "retry_s", "expected"),
    [
        ("html", 5, (b"404 a 5 ", b"!")),
        ("html", None, (b"404 a  ", b"!")),
        ("json", 5, (b"404 a 5 ", b"!")),
        ("json", None, (b"404 a null ", b"!")),
    ],
)
def test_pieces(kind: Kind, retry_s: int | None, expected: tuple[bytes, ...]) -> None:
    """The id joins them; all else has its value."""
    page = b"{status} {code} {retry_after} {request_id}!"
    assert pieces(kind, page, 404, "a", "m", retry_s) == expected


def test_a_value_is_no_template() -> None:
    """A message that has a variable's name in braces stays so."""
    assert pieces("json", b"{message}", 404, "a", "{request_id}", None) == (b"{request_id}",)
    assert pieces("html", b"no variable", 404, "a", "", None) == (b"no variable",)
    assert pieces("html", b"{request_id}{request_id}", 404, "a", "", None) == (b"", b"", b"")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{mesage}", "mesage"),
        ("{status} {x}", "x"),
        ("p { color: red } {} {A} {1}", None),
        ('{"a": {status}}', None),
    ],
)
def test_unknown_variables(text: str, name: str | None) -> None:
    """Only a lower-case word alone in braces is meant as one."""
    assert unknown_variable(text) == name
