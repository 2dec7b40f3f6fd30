"""A route's changes of headers, through a gateway: what upstreams and clients get."""

from __future__ import annotations

from tests.kit.upstream import reply
from tests.proxy.conftest import Start

ROUTES = """
routes:
  r:
    match: "* /r"
    upstream: api
    plan_limits: false
    rate: 2/day
    request_headers:
      set: {X-Who: "{key_id} {account} {plan} {client_ip} {request_id}", X-Real-IP: "{client_ip}"}
      add: {X-More: "1"}
      remove: [Cookie]
    response_headers:
      set: {Cache-Control: no-store, X-Id: "{request_id}", X-Account: "{account}"}
      add: {Set-Cookie: a=b}
      remove: [Server]
  open: {match: GET /open, upstream: api, auth: none, request_headers: {set: {X-Who: "{account}"}}}
"""


async def test_requests(start: Start) -> None:
    """The client's own fields of the names are gone, in all spellings; the others stay."""
    bench = await start(files={"routes": ROUTES})
    async with await bench.connect() as wire:
        headers = [
            *[*bench.auth, ("X-Who", "evil"), ("X_Who", "evil"), ("Cookie", "a=b")],
            *[("X-More", "0"), ("X-Request-Id", "id-1"), ("X-Other", "c")],
        ]
        assert (await wire.request("POST", "/r", headers, b"body")).status == 200
        assert (await wire.request("GET", "/open", [("X-Who", "evil")])).status == 200
    first, second = bench.upstream.requests
    key_id = first.maybe("X-Gateway-Key-Id")
    assert first.maybe("X-Who") == f"{key_id} acme enterprise 127.0.0.1 id-1"
    assert first.all("X_Who") == first.all("Cookie") == []
    assert first.all("X-More") == ["0", "1"]
    assert first.maybe("X-Real-IP") == "127.0.0.1"
    assert (first.maybe("X-Other"), first.maybe("Host")) == ("c", "gateway.test")
    assert (first.maybe("X-Gateway-Account"), first.body) == ("acme", b"body")
    assert second.all("X-Who") == []


async def test_a_proxys_fields_are_replaced_as_well(start: Start) -> None:
    """Those of trusted proxies are forwarded apart from the others."""
    bench = await start(files={"routes": ROUTES, "t": "trusted_proxies: [127.0.0.1]\n"})
    async with await bench.connect() as wire:
        headers = [*bench.auth, ("X-Real-IP", "9.9.9.9"), ("X-Forwarded-For", "192.0.2.7")]
        await wire.request("GET", "/r", headers)
    request = bench.upstream.requests[0]
    assert request.all("X-Real-IP") == ["192.0.2.7"]
    assert request.maybe("X-Forwarded-For") == "192.0.2.7, 127.0.0.1"


async def test_answers(start: Start) -> None:
    """Those of the upstream and refusals alike; each has its own id, also where a 429 repeats."""
    bench = await start(files={"routes": ROUTES})
    bench.upstream.script = reply(
        200, b"ok", [("Server", "x"), ("cache-control", "public"), ("Set-Cookie", "c=d")]
    )
    async with await bench.connect() as wire:
        for number, status in enumerate((200, 200, 429, 429, 429)):
            headers = [*bench.auth, ("X-Request-Id", f"id-{number}")]
            response = await wire.request("GET", "/r", headers)
            assert response.status == status
            assert response["X-Id"] == response["X-Request-Id"] == f"id-{number}"
            assert response["Cache-Control"] == "no-store"
            assert response["X-Account"] == "acme"
            assert response.all("Set-Cookie") == (["c=d", "a=b"] if status == 200 else ["a=b"])
            assert response.all("Server") == []
        refused = await wire.request("GET", "/r")
        assert (refused.status, refused.all("X-Account")) == (401, [])
        assert refused["Cache-Control"] == "no-store"
