"""What the pages of webhooks share: JSON as text, and the answer of a gateway without webhooks."""

from __future__ import annotations

import json

import pytest

from gateway.admin.console.webhook_parts import MOST_SHOWN, json_text
from gateway.domain.json_text import MOST_LEVELS
from tests.kit.console import Browser


def test_json_in_lines() -> None:
    """Letters are shown as they are, what is not printable as JSON escapes it."""
    text, is_cut = json_text(json.dumps({"name": "M\u00fcller", "turn": "\u202e\x07\x7f"}).encode())
    assert text == '{\n  "name": "M\u00fcller",\n  "turn": "\\u202e\\u0007\\u007f"\n}'
    assert not is_cut


@pytest.mark.parametrize(
    "content",
    [
        b"no json \x1b[2J \xff" + b"x" * 20,
        b"[" * 200_000,
        b"[" * MOST_LEVELS + b"]" * MOST_LEVELS,
        b'{"n": ' + b"9" * 5_000 + b"}",
        b'"\\ud800"',
        b"",
    ],
)
def test_any_content_can_be_shown(content: bytes) -> None:
    """Nothing that is not printable is left, and never more than the bound times an escape."""
    text, _ = json_text(content)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len(text) <= 6 * MOST_SHOWN
    text.encode()


def test_long_json_is_cut() -> None:
    """Also where indentation makes a short text very long: it is never made in full."""
    deep = b"[" * MOST_LEVELS + b",".join([b"1"] * 300_000) + b"]" * MOST_LEVELS
    for content in (json.dumps(["x" * 99] * 5_000).encode(), deep, b"x" * 1_000_000):
        text, is_cut = json_text(content)
        assert is_cut
        assert len(text) == MOST_SHOWN


async def test_a_gateway_without_webhooks_says_so(anna: Browser) -> None:
    """The list as a notice, without a link in the menu; pages below it as a refusal."""
    answer = await anna.get("/console/integrations")
    assert answer.status == 200
    assert "This gateway has no webhooks" in answer.text
    assert "/console/integrations/new" not in answer.text
    assert "/console/integrations" not in (await anna.get("/console")).text
    for path in ("/new", "/int_1", "/int_1/watches/wat_1", "/int_1/events/evt_1"):
        answer = await anna.get(f"/console/integrations{path}")
        assert answer.status == 503
        assert "Webhooks need couriers and a Redis" in answer.text
