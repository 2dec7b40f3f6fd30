"""`error_pages`: what is read, and each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.error_pages import ErrorPages
from gateway.policies.load import load
from tests.policies.folder import complaints, write

JSON = b'{"error": {"status": {status}, "wait": {retry_after}, "text": "{message}"}}'


def test_both(tmp_path: Path) -> None:
    """The texts are part of the policy; Accept is read only if there is a choice."""
    (tmp_path / "e.html").write_bytes("<p>ü {message}".encode())
    (tmp_path / "e.json").write_bytes(JSON)
    policy = load(write(tmp_path, e="error_pages: {html: e.html, json: e.json}\n"))
    assert policy.error_pages == ErrorPages("<p>ü {message}".encode(), JSON)
    assert policy.counted_headers == {"accept"}
    policy = load(write(tmp_path, e="error_pages: {json: e.json}\n"))
    assert policy.counted_headers == set()


@pytest.mark.parametrize(
    ("setting", "content", "fault"),
    [
        ("[]", b"", ": found a list, expected a mapping with one of html, json"),
        ("{}", b"", ": found none of them, expected html, json or both"),
        ("{htm: page}", b"", ".htm: found the key 'htm', expected one of html, json"),
        ("{html: nothing}", b"", ".html: found 'nothing' (No such file or directory)"),
        ("{html: page}", b"a\xff", ".html: found 'page' with the byte 0xff at 1, expected a text"),
        (
            "{html: page}",
            b"{mesage}",
            ".html: found 'page' with {mesage}, expected the variables {status}, {code}, "
            "{message}, {request_id}, {retry_after} (did you mean 'message'?); other braces",
        ),
        ("{json: page}", b"", ".json: found 'page' (Expecting value: line 1 column 1 (char 0)), e"),
        ("{json: page}", b'{"a": {message}}', ".json: found 'page' (Expecting value"),
        ("{json: page}", b"[" * 60_000, ".json: found 'page' (found 101 levels"),
    ],
)
def test_faults(tmp_path: Path, setting: str, content: bytes, fault: str) -> None:
    """A page that would not be JSON is found when it is loaded, not when it is sent."""
    (tmp_path / "page").write_bytes(content)
    found = complaints(write(tmp_path, e=f"error_pages: {setting}\n"))
    assert len(found) == 1, found
    assert found[0].startswith(f"e.yaml:1: error_pages{fault}"), found
