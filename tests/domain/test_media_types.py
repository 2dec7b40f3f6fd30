"""What a Content-Type field says, and which ones are not read."""

from __future__ import annotations

from gateway.domain.media_types import MOST_CHARACTERS, MediaType, read_media_type
from tests.kit.rows import each_row


@each_row(
    ("value", "name", "parameters"),
    [
        ("application/json", "application/json", ()),
        ("Application/JSON", "application/json", ()),
        (" text/plain\t", "text/plain", ()),
        ("a/b; Charset=UTF-8", "a/b", (("charset", "UTF-8"),)),
        ('a/b \t;c="d e" ; f=g\t', "a/b", (("c", "d e"), ("f", "g"))),
        ('a/b;c=""', "a/b", (("c", ""),)),
        ("a/b; charset*=utf-16''x", "a/b", (("charset*", "utf-16''x"),)),
        ("", "", ()),
        ("json", "", ()),
        ("a/", "", ()),
        ("a/b/c", "", ()),
        ("a/b, c/d", "", ()),
        ("é/b", "", ()),
        ("a/b;", "a/b", None),
        ("a/b; c", "a/b", None),
        ("a/b; c=d e", "a/b", None),
        ("a/b; c=d, e/f", "a/b", None),
        ('a/b;c="', "a/b", None),
        ('a/b;c="d;e"', "a/b", None),
        ('a/b;c="d\\"e"', "a/b", None),
    ],
)
def test_values(value: str, name: str, parameters: object) -> None:
    """The name is readable where the parameters are not; these have one reading, or none."""
    assert read_media_type(value) == MediaType(name, parameters, len(value))  # type: ignore[arg-type]


@each_row(
    ("values", "words"),
    [
        ((), "no Content-Type"),
        (("",), "no Content-Type"),
        (("Text/Plain; a=b",), "the Content-Type text/plain"),
        (("a/b", "a/b"), "a Content-Type that cannot be read"),
        (("<script>",), "a Content-Type that cannot be read"),
        (('a/b;c="',), "a Content-Type that cannot be read"),
        (("a/b;" + "x" * 300,), "a Content-Type of 304 characters, of at most 256"),
    ],
)
def test_words(values: tuple[str, ...], words: str) -> None:
    """They have nothing of the field but a readable name. Two fields are no media type."""
    assert read_media_type(*values).words == words


def test_the_longest() -> None:
    """A value beyond the bound has no parameters; its name only if that ends within the bound."""
    longest = "a/b;c=".ljust(MOST_CHARACTERS, "d")
    assert read_media_type(longest).is_exactly("a/b")
    assert read_media_type(longest + "d") == MediaType("a/b", None, MOST_CHARACTERS + 1)
    assert not read_media_type(longest + "d").is_exactly("a/b")
    name = "a/".ljust(MOST_CHARACTERS, "b")
    assert read_media_type(name).name == name
    assert read_media_type(name + "b").name == ""
    assert read_media_type(f"{name}b;c=d").name == ""


@each_row(
    ("value", "expected"),
    [
        ("a/b", True),
        ("a/b; charset=utf-8", True),
        ('a/b; Charset="UTF-8"', True),
        ("a/b; charset=utf-16", False),
        ("a/b; charset=utf-8; charset=utf-8", False),
        ("a/b; charset*=utf-8", False),
        ("a/b; charset=", False),
    ],
)
def test_utf8(value: str, expected: bool) -> None:
    """No charset, or UTF-8 once."""
    found = read_media_type(value)
    assert (found.parameters is not None and found.is_utf8) is expected
