"""Answers without an upstream: static ones, with the access rules and limits of their routes."""

from __future__ import annotations

import pytest

from tests.proxy.conftest import Start

ROUTES = """
routes:
  gone:  {match: "* /gone/**", auth: none, limits: [{name: g, rate: 3/day, per: ip}],
          respond: {status: 410, body: "Use /v2.\\n"}}
  keyed: {match: GET /keyed,
          respond: {status: 200, body: '{"a": 1}', content_type: application/json}}
  away:  {match: GET /away, auth: none, respond: {status: 301},
          response_headers: {set: {Location: "https://example.com/", Content-Type: x/y}}}
  empty: {match: GET /empty, auth: none, respond: {status: 204}}
  same:  {match: GET /same, auth: none, respond: {status: 304}}
  odd:   {match: GET /odd, auth: none, respond: {status: 299, body: odd}}
"""


async def test_static_answers(start: Start) -> None:
    """Nothing is asked of an upstream; access and limits are as for other routes."""
    bench = await start(files={"routes": ROUTES})
    async with await bench.connect() as wire:
        for method, body in (("GET", None), ("POST", b"ignored"), ("HEAD", None)):
            response = await wire.request(method, "/gone/x?y", [], body)
            assert (response.status, response["Content-Length"]) == (410, "9")
            assert response.body == (b"" if method == "HEAD" else b"Use /v2.\n")
            assert response["Content-Type"] == "text/plain; charset=utf-8"
            assert response["X-RateLimit-Limit"] == "3"
        assert (await wire.request("GET", "/gone")).status == 429
        assert (await wire.request("GET", "/keyed")).status == 401
        keyed = await wire.request("GET", "/keyed", bench.auth)
        assert (keyed.json(), keyed["Content-Type"]) == ({"a": 1}, "application/json")
        assert keyed["X-RateLimit-Limit"] == "6000"
    assert bench.upstream.requests == []
    assert bench.gateway.metrics._requests["gone", "POST", 410, "gateway"] == 1


@pytest.mark.parametrize(
    ("target", "status", "length"), [("/empty", 204, []), ("/same", 304, []), ("/away", 301, ["0"])]
)
async def test_answers_without_a_body(
    start: Start, target: str, status: int, length: list[str]
) -> None:
    """RFC 9110, 8.6: a 204 has no Content-Length. A redirect needs a header."""
    bench = await start(files={"routes": ROUTES})
    async with await bench.connect() as wire:
        for _ in range(2):
            response = await wire.request("GET", target)
            assert (response.status, response.all("Content-Length")) == (status, length)
            assert response.all("Content-Type") == []
            assert response.all("Location") == (["https://example.com/"] if status == 301 else [])
        odd = await wire.request("GET", "/odd")
        assert (odd.status, odd.reason, odd.body) == (299, "", b"odd")
