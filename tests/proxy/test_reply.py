"""What a client gets of an upstream's answer."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.limits import SECOND_US
from gateway.proxy.client_connection import ClientConnection
from tests.kit.upstream import reply
from tests.kit.websocket import HANDSHAKE, switch
from tests.kit.wire import Response, build_request
from tests.proxy.conftest import Start


async def test_an_answer_without_a_date_gets_one(start: Start) -> None:
    """RFC 9110, 6.6.1: the time it was received, even if the head is cached."""
    bench = await start()
    context = bench.gateway._context
    now_us = 1_800_000_000 * SECOND_US
    context.clock_us = lambda: now_us
    async with await bench.connect() as wire:
        for _ in range(2):
            response = await wire.request("GET", "/api/x", bench.auth)
            received = parsedate_to_datetime(response["Date"])
            assert received == datetime.fromtimestamp(now_us / SECOND_US, UTC)
            now_us += 90 * SECOND_US


async def test_an_upstreams_date_stays(start: Start) -> None:
    """The upstream's Date, the time of the answer's origin, is kept."""
    bench = await start()
    date = "Sat, 21 Nov 2026 12:25:03 GMT"
    bench.upstream.script = reply(200, b"", [("date", date)])
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", bench.auth))["Date"] == date


@pytest.mark.parametrize("status", [600, 799, 999])
async def test_a_status_that_means_nothing_is_passed_on(start: Start, status: int) -> None:
    """A client reads it as a 5xx (RFC 9110, 15); the metrics have its number."""
    bench = await start()
    bench.upstream.script = reply(status, b"odd")
    async with await bench.connect() as wire:
        for _ in range(6):  # more than would eject a server
            response = await wire.request("GET", "/api/x", bench.auth)
            assert (response.status, response.body) == (status, b"odd")
    assert bench.gateway.metrics._requests["api", "GET", status, "upstream"] == 6


async def test_no_upstream_sets_the_consoles_session(start: Start) -> None:
    """A browser would send it to the console on the same host."""
    bench = await start()
    cookies = [("Set-Cookie", "gateway_session=x; Path=/"), ("Set-Cookie", "a=b")]
    bench.upstream.script = reply(200, b"", [*cookies, ("Set-Cookie", "=gateway_session=x")])
    async with await bench.connect() as wire:
        response = await wire.request("GET", "/api/x", bench.auth)
    assert response.all("Set-Cookie") == ["a=b"]


def error_of(response: Response) -> dict[str, Any]:
    """The object of an error body that has the request's id."""
    body = response.json()
    if isinstance(body["error"], str):
        return body
    return body["error"].get("data", body["error"])


LIMITED = """
routes:
  api: {match: "* /api/**", upstream: api, plan_limits: false, limits: [{name: x, rate: 1/day}]}
  mcp: {match: "* /mcp", upstream: api, plan_limits: false, limits: [{name: mcp, rate: 1/day}]}
"""


@pytest.mark.parametrize("error_docs", [None, "https://docs.example.com/errors"])
async def test_errors_name_their_request(start: Start, error_docs: str | None) -> None:
    """The id of X-Request-Id is in the body of each refusal of a connection, cached ones included,
    whether it is the client's or a new one; with `error_docs` the page's address is there, too.
    """
    bench = await start(files={"routes": LIMITED}, error_docs=error_docs)
    ids = [None, "a", "abc-1.2_3", "abc-1.2_4", "x" * 128, None, "b"]
    targets = {"/api/x": 429, "/mcp": 429, "/nowhere": 404, "/v1/health": 401}
    async with await bench.connect() as wire:
        for target in ("/api/x", "/mcp"):
            await wire.request("GET", target, bench.auth)
        for target, status in targets.items():
            auth = bench.auth if status != 401 else []
            for request_id in ids:
                own = [("X-Request-Id", request_id)] if request_id else []
                response = await wire.request("GET", target, [*auth, *own])
                assert response.status == status
                error = error_of(response)
                assert error["request_id"] == response["X-Request-Id"]
                assert request_id in (None, response["X-Request-Id"])
                doc = error_docs and f"{error_docs}#{error['code'].lower()}"
                assert error.get("doc") == doc


async def test_refusals_of_head_have_the_length_of_get(start: Start) -> None:
    """RFC 9110, 9.3.2: the same header fields as if the method had been GET."""
    bench = await start(files={"routes": LIMITED})
    async with await bench.connect() as wire:
        await wire.request("GET", "/api/x", bench.auth)
        for target in ("/api/x", "/nowhere"):
            headers = [*bench.auth, ("X-Request-Id", "mine-1")]
            whole = await wire.request("GET", target, headers)
            bare = await wire.request("HEAD", target, headers)
            assert bare.status == whole.status
            assert bare["Content-Length"] == whole["Content-Length"] == str(len(whole.body))
            assert bare["X-Request-Id"] == "mine-1"
            assert bare.body == b""


async def test_an_unreadable_request_has_an_id(start: Start) -> None:
    """A refusal of an unreadable request has an id of the gateway, which is in its log, too."""
    bench = await start()
    async with await bench.connect() as wire:
        await wire.send(b"GET /x\r\nX-Request-Id: mine-1\r\n\r\n")
        response = await wire.read_response()
    assert response.status == 400
    assert response.json()["request_id"] == response["X-Request-Id"] != "mine-1"


async def test_a_websocket_has_a_date(start: Start) -> None:
    """A 101 is the final answer to its request, and has a Date like all others."""
    bench = await start()

    bench.upstream.script = switch
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", [*bench.auth, *HANDSHAKE]))
        head = await wire.read_head()
        assert head.status == 101
        assert head["Date"]


PAGES = LIMITED + '  own: {match: GET /own, upstream: api, auth: none, cors: {origins: ["*"]}}\n'
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


async def test_error_pages(start: Start, tmp_path: Path) -> None:
    """By Accept, also for HEAD and for a repeated 429, each with its own id; not for JSON-RPC."""
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "e.html").write_text("<h1>{status}</h1>{message} {request_id}, {request_id}")
    (folder / "e.json").write_text('{"is": "{code}", "wait": {retry_after}}')
    setting = "error_pages: {html: e.html, json: e.json}\n"
    bench = await start(files={"routes": PAGES, "e": setting})
    async with await bench.connect() as wire:
        for target in ("/api/x", "/mcp"):
            await wire.request("GET", target, bench.auth)
        for number in (1, 2, 33):
            headers = [*bench.auth, ("X-Request-Id", f"id-{number}")]
            for target, status in (("/api/x", 429), ("/nowhere", 404)):
                page = await wire.request("GET", target, [*headers, ("Accept", BROWSER)])
                assert (page.status, page["Vary"]) == (status, "Accept")
                assert page["Content-Type"] == "text/html; charset=utf-8"
                assert page.body.startswith(b"<h1>%d</h1>" % status)
                assert page.body.endswith(f" id-{number}, id-{number}".encode())
                bare = await wire.request("HEAD", target, [*headers, ("Accept", BROWSER)])
                assert bare["Content-Length"] == page["Content-Length"]
                script = await wire.request("GET", target, headers)
                assert script["Content-Type"] == "application/json"
                assert script["Vary"] == "Accept"
                assert script.json()["is"] in ("rate_limit_exceeded", "NOT_FOUND")
                assert (script.json()["wait"] is None) is (status == 404)
            rpc = await wire.request("GET", "/mcp", [*headers, ("Accept", BROWSER)])
            assert (rpc.json()["jsonrpc"], rpc.all("Vary")) == ("2.0", [])


async def test_long_pages_take_little_memory(start: Start, tmp_path: Path) -> None:
    """Whatever clients vary, a page is not kept for each variant; nor for an idle connection."""
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "e.html").write_text("<p>{code} {request_id}</p>" + " " * 60_000)
    bench = await start(files={"routes": LIMITED, "e": "error_pages: {html: e.html}\n"})
    accept = ("Accept", "text/html")
    async with await bench.connect() as wire:
        await wire.request("GET", "/api/x", [*bench.auth, accept])
        await wire.request("GET", "/nowhere", [accept])
        tracemalloc.start()
        try:
            for length in range(1, 129):
                headers = [accept, ("X-Request-Id", "i" * length)]
                page = await wire.request("GET", "/nowhere", headers)
                assert len(page.body) == 60_017 + length
            held_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held_bytes < 2_000_000
        for _ in range(2):
            assert (await wire.request("GET", "/api/x", [*bench.auth, accept])).status == 429
        assert not any(
            isinstance(connection, ClientConnection) and connection.cache.refusal
            for connection in bench.gateway._context.connections
        )


VARYING = """
routes:
  own:  {match: GET /own, upstream: api, cors: {origins: ["https://a.test"]}}
  any:  {match: GET /any, upstream: api, cors: {origins: ["*"]}}
  mine: {match: GET /mine, upstream: api, response_headers: {set: {Vary: Cookie}}}
  none: {match: GET /none, upstream: api, response_headers: {remove: [Vary]}}
error_pages: {html: e.html}
"""


async def test_error_pages_and_other_rules_share_one_vary(start: Start, tmp_path: Path) -> None:
    """A refusal whose body goes by Accept names it beside what other rules put there."""
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "e.html").write_text("page")
    bench = await start(files={"routes": VARYING})
    origin = ("Origin", "https://a.test")
    foreign = [("Origin", "https://b.test"), ("Access-Control-Request-Method", "GET")]
    preflight = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Accept"
    async with await bench.connect() as wire:
        for method, target, headers, status, vary in (
            ("GET", "/own", [origin], 401, "Origin, Accept"),
            ("GET", "/own", [], 401, "Origin, Accept"),
            ("GET", "/any", [origin], 401, "Accept"),
            ("GET", "/mine", [], 401, "Cookie, Accept"),
            ("GET", "/none", [], 401, "Accept"),
            ("GET", "/nowhere", [], 404, "Accept"),
            ("OPTIONS", "/own", foreign, 403, preflight),
        ):
            response = await wire.request(method, target, headers)
            assert (response.status, response.all("Vary")) == (status, [vary]), target
        served = await wire.request("GET", "/mine", bench.auth)
        assert (served.status, served.all("Vary")) == (200, ["Cookie"])


async def test_accept_in_several_lines(start: Start, tmp_path: Path) -> None:
    """They are one list (RFC 9110, 5.3); a long one, or an unreadable head, gets JSON."""
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "e.html").write_text("page")
    bench = await start(files={"e": "error_pages: {html: e.html}\n"})
    long = ",".join(f"text/x{number};q=0.5" for number in range(450)) + ",text/html"
    cases = [
        ([("Accept", "text/html"), ("accept", "*/*;q=0.1")], b"page"),
        ([("Accept", long)], b"{"),
        ([("Accept", "text/html" * 900)], b"{"),
        ([], b"{"),
    ]
    async with await bench.connect() as wire:
        for headers, body in cases:
            assert (await wire.request("GET", "/nowhere", headers)).body.startswith(body)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n y\r\n\r\n")
        assert (await wire.read_response()).body.startswith(b"{")
