"""`respond` of a route: what is read, and each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.static_answer import StaticAnswer
from gateway.policies.load import load
from tests.policies.folder import complaints, write


def routes_with(respond: str, more: str = "") -> str:
    return f"routes: {{r: {{match: GET /b{more}, respond: {respond}}}}}\n"


@pytest.mark.parametrize(
    ("respond", "expected"),
    [
        ("{status: 204}", StaticAnswer(204)),
        ("{status: 410, body: gone}", StaticAnswer(410, b"gone")),
        (
            "{status: 200, body: '{}', content_type: application/json}",
            StaticAnswer(200, b"{}", "application/json"),
        ),
        ("{status: 200, file: a.json}", StaticAnswer(200, b"[]", "application/json")),
        ("{status: 200, file: a.json, content_type: text/x}", StaticAnswer(200, b"[]", "text/x")),
    ],
)
def test_all_settings(tmp_path: Path, respond: str, expected: StaticAnswer) -> None:
    """The route needs no upstream."""
    (tmp_path / "a.json").write_text("[]")
    route = load(write(tmp_path, routes=routes_with(respond))).routes["r"]
    assert (route.respond, route.upstream) == (expected, "")


@pytest.mark.parametrize(
    ("respond", "more", "faults"),
    [
        ("[]", "", ["respond: found a list, expected a mapping with one of status, body"]),
        ("{}", "", ["respond: found a mapping without 'status', expected the key 'status'"]),
        ("{status: 101}", "", ["respond.status: found the number 101, expected a whole number fr"]),
        ("{status: 600}", "", ["respond.status: found the number 600"]),
        ("{status: '200'}", "", ["respond.status: found '200'"]),
        (
            "{status: 304, body: x}",
            "",
            ["respond.body: found a body, expected none, as answers wi"],
        ),
        (
            "{status: 200, body: 1}",
            "",
            ["respond.body: found the number 1, expected text, in quot"],
        ),
        (
            "{status: 200, body: x, content_type: html}",
            "",
            ["respond.content_type: found 'html', expected a media type such as"],
        ),
        (
            '{status: 200, body: x, content_type: "text/html; a=b\\r\\nX: y"}',
            "",
            ["respond.content_type: found 'text/html; a=b\\r\\nX: y'"],
        ),
        ("{status: 200}", ", upstream: api", ["respond: found an upstream and respond, expected"]),
        (
            "{status: 200}",
            ", request_headers: {remove: [A]}",
            ["request_headers: found request_headers and respond, expected no request_headers, as"],
        ),
        (
            f"{{status: 200, body: {'x' * 65_537}}}",
            "",
            ["respond.body: found 65537 bytes, expected"],
        ),
    ],
)
def test_faults(tmp_path: Path, respond: str, more: str, faults: list[str]) -> None:
    """Each says what was found, what was expected, and where."""
    found = complaints(write(tmp_path, routes=routes_with(respond, more)))
    assert len(found) == len(faults), found
    for one, words in zip(found, faults, strict=True):
        assert one.startswith(f"routes.yaml:1: routes.r.{words}"), one


def test_a_body_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    found = complaints(write(tmp_path, routes=routes_with("{status: 200, body: x, file: a.txt}")))
    assert [one.partition(": found")[0] for one in found] == [
        "routes.yaml:1: routes.r.respond.file"
    ]


def test_a_route_needs_one_of_them(tmp_path: Path) -> None:
    """An upstream, or an answer of the gateway."""
    (found,) = complaints(write(tmp_path, routes="routes: {r: {match: GET /b}}\n"))
    assert "found a mapping without 'upstream', expected the key 'upstream'" in found
