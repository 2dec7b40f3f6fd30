"""Changed header fields: set, added, removed; variables, also with hostile values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.header_edits import VARIABLES, EditRules, HeaderEdits, read_template

LINES = b"Host: x\r\nX-A: 1\r\nx_a: 2\r\nX-B: 3\r\nx-a: 4\r\n"


def applied(edits: HeaderEdits, lines: bytes = LINES, **values: str) -> bytes:
    rules = EditRules(edits)
    return rules.without(lines) + rules.added({**dict.fromkeys(VARIABLES, ""), **values})


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        (HeaderEdits(), LINES),
        (HeaderEdits(set=(("X-A", "9"),)), b"Host: x\r\nX-B: 3\r\nX-A: 9\r\n"),
        (HeaderEdits(add=(("X-A", "9"),)), LINES + b"X-A: 9\r\n"),
        (HeaderEdits(remove=("x-b",)), LINES.replace(b"X-B: 3\r\n", b"")),
        (HeaderEdits(remove=("X-C",)), LINES),
        (
            HeaderEdits(set=(("X-C", "1"),), add=(("X-C", "2"),), remove=("X-A", "X-B")),
            b"Host: x\r\nX-C: 1\r\nX-C: 2\r\n",
        ),
    ],
)
def test_fields(edits: HeaderEdits, expected: bytes) -> None:
    """A removed or replaced field goes in any spelling that upstreams take for it."""
    assert applied(edits) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("{account}", "acme"),
        ("{account}/{plan} of {key_id}", "acme/free of k1"),
        ('{{"a": "{plan}"}}', '{"a": "free"}'),
        ("}}{{", "}{"),
        ("{{{plan}}}", "{free}"),
        ("{client_ip}", ""),
        ("{client_ip} ", ""),
        ("[{client_ip}]", "[]"),
    ],
)
def test_variables(text: str, value: str) -> None:
    """Braces are doubled; what is empty is not sent, but replaces what was there."""
    found = applied(
        HeaderEdits(set=(("X-A", text),)), b"", account="acme", plan="free", key_id="k1"
    )
    assert found == (f"X-A: {value}\r\n".encode() if value else b"")


@pytest.mark.parametrize("text", ["{", "}", "{}", "{acount}", "{plan", "plan}", "{ plan }", "{{{"])
def test_faults(text: str) -> None:
    """An unknown variable, or a single brace: the known ones are listed."""
    with pytest.raises(ValueError, match=r"one of the variables \{request_id\}, \{client_ip\}, "):
        read_template(text)


@given(st.text())
def test_values_end_no_line(text: str) -> None:
    """Whatever a record in the store has, it is one field's value, in printable ASCII."""
    found = applied(HeaderEdits(set=(("X-A", "[{account}]"),)), b"", account=text)
    assert found.startswith(b"X-A: [")
    assert found.endswith(b"]\r\n")
    assert all(0x20 <= byte <= 0x7E for byte in found[:-2])


def test_own_answers_keep_their_fields() -> None:
    """What the gateway says of its own answer is not said twice."""
    rules = EditRules(
        HeaderEdits(set=(("Content-type", "x/y"), ("X-A", "1")), add=(("Allow", "x"),))
    )
    assert rules.added({}, is_own=True) == b"X-A: 1\r\n"
    assert rules.added({}) == b"Content-type: x/y\r\nX-A: 1\r\nAllow: x\r\n"


def test_constant_values_need_no_request() -> None:
    """So cached refusals stay valid."""
    assert not EditRules(HeaderEdits(set=(("X-A", "{{1}}"),))).has_variables
    assert EditRules(HeaderEdits(add=(("X-A", "{plan}"),))).has_variables
