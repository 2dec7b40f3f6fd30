"""`request_headers` and `response_headers`: what is read, and each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.header_edits import HeaderEdits
from gateway.policies.load import load
from tests.policies.folder import complaints, write


def routes_with(setting: str, edits: str) -> str:
    return f'routes: {{r: {{match: "* /b", upstream: api, {setting}: {edits}}}}}\n'


@pytest.mark.parametrize("setting", ["request_headers", "response_headers"])
def test_all_settings(tmp_path: Path, setting: str) -> None:
    """In the order that they are written."""
    text = '{set: {X-B: "{plan}", X-A: "1"}, add: {Vary: Accept}, remove: [Cookie, X-C]}'
    route = load(write(tmp_path, routes=routes_with(setting, text))).routes["r"]
    expected = HeaderEdits(
        (("X-B", "{plan}"), ("X-A", "1")), (("Vary", "Accept"),), ("Cookie", "X-C")
    )
    assert getattr(route, setting) == expected


@pytest.mark.parametrize(
    ("edits", "faults"),
    [
        ("[]", [": found a list, expected a mapping with one of set, add, remove"]),
        ("{}", [": found none of them, expected set, add or remove"]),
        ("{sett: {}}", [".sett: found the key 'sett', expected one of set, add, remove (did you"]),
        ("{set: [a]}", [".set: found a list, expected a mapping from the names of headers"]),
        ("{set: {X-A: 1}}", [".set.X-A: found the number 1, expected printable ASCII"]),
        ("{set: {X-A: ''}}", [".set.X-A: found '', expected printable ASCII"]),
        ("{set: {X-A: ' a'}}", [".set.X-A: found ' a', expected printable ASCII"]),
        ('{set: {X-A: "a\\r\\nB: c"}}', [".set.X-A: found 'a\\r\\nB: c', expected printable"]),
        ("{set: {X-A: é}}", [".set.X-A: found 'é', expected printable ASCII"]),
        (f"{{set: {{X-A: {'a' * 1025}}}}}", [".set.X-A: found 'aaaa"]),
        (
            "{set: {X-A: '{user}'}}",
            [".set.X-A: found '{user}', expected one of the variables {request_id}, {client_ip}"],
        ),
        ("{add: {X-A: gwk_live_1}}", [".add.X-A: found an API key, expected a value without an"]),
        ("{set: {X A: b}}", [".set.X A: found 'X A', expected the name of a header"]),
        ("{remove: [[]]}", [".remove[0]: found a list, expected the name of a header"]),
        ("{remove: X}", [".remove: found 'X', expected a list of header names"]),
        ("{set: {X-A: b, x-a: c}}", [".set.x-a: found x-a again, expected each header once"]),
        ("{set: {X-A: b}, remove: [x-a]}", [".remove: found x-a, which set or add has as well"]),
        (
            f"{{remove: [{', '.join(f'X-{number}' for number in range(33))}]}}",
            [".remove: found 33 headers, expected at most 32 headers"],
        ),
    ],
)
def test_faults(tmp_path: Path, edits: str, faults: list[str]) -> None:
    """Each says what was found, what was expected, and where."""
    found = complaints(write(tmp_path, routes=routes_with("request_headers", edits)))
    assert len(found) == len(faults), found
    for one, words in zip(found, faults, strict=True):
        assert one.startswith(f"routes.yaml:1: routes.r.request_headers{words}"), one


BOTH = (
    *("Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Transfer-Encoding"),
    *(
        "Content-Length",
        "content_length",
        "Proxy-Authorization",
        "X-Request-Id",
        "X-RateLimit-Limit",
    ),
    *("X-Gateway-Plan", "x.gateway.plan", "Via", "Sec-WebSocket-Key"),
)
REQUESTS = (
    *("Host", "Authorization", "authorization", "apiKey", "X-Forwarded-For", "X-Forwarded-Proto"),
    *("Forwarded", "X-HTTP-Method-Override", "X-Original-URL", "Proxy", "Expect"),
)
RESPONSES = ("Date", "RateLimit", "RateLimit-Policy", "Access-Control-Allow-Origin")
FREE = (
    "Cookie",
    "X-Real-IP",
    "X-Forwarded-Host",
    "Cache-Control",
    "Server",
    "Set-Cookie",
    "Origin",
)


@pytest.mark.parametrize("action", ["set: {NAME: a}", "add: {NAME: a}", "remove: [NAME]"])
def test_what_cannot_be_changed(tmp_path: Path, action: str) -> None:
    """For each, the fault says why."""
    for setting, names in (
        ("request_headers", (*BOTH, *REQUESTS)),
        ("response_headers", (*BOTH, *RESPONSES)),
    ):
        for name in names:
            edits = f"{{{action.replace('NAME', name)}}}"
            (found,) = complaints(write(tmp_path, routes=routes_with(setting, edits)))
            assert f"found {name} (" in found
            assert found.endswith("), expected a header that a policy can change")
        for name in FREE:
            edits = f"{{{action.replace('NAME', name)}}}"
            assert complaints(write(tmp_path, routes=routes_with(setting, edits))) == []
