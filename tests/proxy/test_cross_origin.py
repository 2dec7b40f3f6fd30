"""Cross-origin requests through a gateway: preflights, answers, refusals, WebSockets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.cors import EXPOSED, Cors
from tests.kit.upstream import Exchange, reply
from tests.kit.websocket import HANDSHAKE, switch
from tests.kit.wire import Header, Response, build_request
from tests.proxy.conftest import Start

APP, OTHER = "https://app.example.com", "https://other.test"
ROUTES = """
routes:
  open:  {match: "GET,POST /open/**", upstream: api, auth: none,
          cors: {origins: ["https://app.example.com"]}}
  keyed: {match: "* /keyed/**", upstream: api,
          cors: {origins: ["https://*.example.com"], credentials: true, max_age: 10m}}
  put:   {match: "PUT /open/x", upstream: api, auth: none, cors: {origins: ["https://put.test"]}}
  any:   {match: GET /any, upstream: api, auth: none, cors: {origins: ["*"], headers: ["*"]}}
  tight: {match: GET /tight, upstream: api, plan_limits: false, rate: 1/day,
          cors: {origins: ["https://app.example.com"]}}
  off:   {match: "* /off/**", upstream: api, auth: none}
"""


def preflight(origin: str | None, method: str | None, headers: str | None = None) -> list[Header]:
    given = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": headers,
    }
    return [(name, value) for name, value in given.items() if value is not None]


def allowed(response: Response) -> dict[str, str]:
    """Its Access-Control fields, each of which it has once."""
    found = [(name, value) for name, value in response.headers if name.startswith("Access-Control")]
    assert len(dict(found)) == len(found)
    return {name.removeprefix("Access-Control-"): value for name, value in found}


@pytest.mark.parametrize(
    ("target", "asked", "status", "fields"),
    [
        ("/open/x", (APP, "GET"), 204, {"Allow-Origin": APP, "Allow-Methods": "GET, HEAD, POST"}),
        ("/open/x?q=1", (APP, "POST", "apikey"), 204, {"Allow-Origin": APP}),
        # The requested method's route, not that of OPTIONS, which this path does not have.
        ("/open/x", ("https://put.test", "PUT"), 204, {"Allow-Methods": "PUT"}),
        ("/open/x", (APP, "PUT"), 403, {}),
        ("/open/x", ("https://put.test", "GET"), 403, {}),
        ("/open/x", (OTHER, "GET"), 403, {}),
        ("/open/x", ("null", "GET"), 403, {}),
        ("/open/x", ("a" * 8000, "GET"), 403, {}),
        # A method without a route: what OPTIONS gets here.
        ("/open/x", (APP, "DELETE"), 405, {"Allow-Origin": APP}),
        ("/open/x", (APP, "get"), 405, {"Allow-Origin": APP}),
        ("/open/x", (APP, "GET /any"), 405, {"Allow-Origin": APP}),
        ("/open/x", (APP, "TRACE"), 405, {"Allow-Origin": APP}),
        ("/open/x", (APP, "CONNECT"), 405, {"Allow-Origin": APP}),
        ("/nowhere", (APP, "GET"), 404, {}),
        ("/open%2Fx", (APP, "GET"), 400, {}),
        ("/health", (APP, "GET"), 405, {}),
        # A path that requires keys: a preflight has none.
        (
            "/keyed/x",
            (APP, "DELETE", "authorization"),
            204,
            {
                "Allow-Origin": APP,
                "Allow-Credentials": "true",
                "Allow-Methods": "DELETE",
                "Max-Age": "600",
            },
        ),
        (
            "/any",
            ("null", "GET", "x-a, x-b"),
            204,
            {"Allow-Origin": "*", "Allow-Headers": "x-a, x-b"},
        ),
        # Without cors it is the upstream's, or needs a key.
        ("/off/x", (APP, "GET"), 200, {}),
        # Not preflights: Origin or the method is missing.
        ("/open/x", (APP, None), 405, {"Allow-Origin": APP}),
        ("/open/x", (None, "GET"), 405, {}),
        ("/keyed/x", (APP, None), 401, {"Allow-Origin": APP}),
    ],
)
async def test_preflights(
    start: Start,
    target: str,
    asked: tuple[str | None, ...],
    status: int,
    fields: dict[str, str],
) -> None:
    """Answered by the gateway for the route of the requested method; any other status, or none of
    the fields, is a failure to a browser (Fetch, 4.8).
    """
    bench = await start(files={"routes": ROUTES})
    async with await bench.connect() as wire:
        response = await wire.request("OPTIONS", target, preflight(*asked))
        assert response.status == status
        if status == 204:
            assert response.maybe("Content-Length") is None
            assert response.body == b""
            assert "Origin" in response["Vary"]
            assert "Expose-Headers" not in allowed(response)
            assert allowed(response).items() >= fields.items()
        else:
            found = allowed(response)
            assert {name: found[name] for name in found if name == "Allow-Origin"} == fields
        # The connection goes on after all but a path that cannot be read.
        assert response.closes or (await wire.request("GET", "/health")).status == 200
    counted = bench.gateway.metrics._auth_failures
    assert sum(counted.values()) == (status == 401)
    assert (len(bench.upstream.requests) == 1) is (status == 200)


async def test_preflights_cost_nothing(start: Start) -> None:
    """Neither a unit of the address's limit, nor one of the route's."""
    bench = await start(files={"routes": ROUTES})
    async with await bench.connect() as wire:
        remaining = {
            (await wire.request("OPTIONS", "/tight", preflight(origin, "GET")))[
                "X-RateLimit-Remaining"
            ]
            for origin in (APP, OTHER, APP)
        }
        assert len(remaining) == 1
        assert (await wire.request("GET", "/tight", bench.auth)).status == 200


async def test_a_preflight_with_a_body(start: Start) -> None:
    """No browser sends one; it is read to its end."""
    bench = await start(files={"routes": ROUTES})
    async with await bench.connect() as wire:
        for body in (b"x" * 100, b""):
            response = await wire.request("OPTIONS", "/open/x", preflight(APP, "GET"), body)
            assert response.status == 204


async def test_an_absolute_url_must_be_the_hosts(start: Start) -> None:
    """RFC 9112, 3.2.2: as for other requests."""
    bench = await start(files={"routes": ROUTES})
    async with await bench.connect() as wire:
        right = await wire.request("OPTIONS", "http://gateway.test/open/x", preflight(APP, "GET"))
        wrong = await wire.request("OPTIONS", "http://evil.test/open/x", preflight(APP, "GET"))
    assert (right.status, wrong.status) == (204, 400)


@pytest.mark.parametrize(
    ("target", "origin", "fields", "vary"),
    [
        ("/open/x", APP, {"Allow-Origin": APP}, "Accept, Origin"),
        ("/open/x", OTHER, None, "Accept, Origin"),
        ("/open/x", None, None, "Accept, Origin"),
        ("/keyed/x", APP, {"Allow-Origin": APP, "Allow-Credentials": "true"}, "Accept, Origin"),
        ("/any", None, {"Allow-Origin": "*"}, "Accept"),
    ],
)
async def test_answers_of_the_upstream(
    start: Start, target: str, origin: str | None, fields: dict[str, str] | None, vary: str
) -> None:
    """Its own Access-Control-* are replaced; Vary names Origin even if there is none."""
    bench = await start(files={"routes": ROUTES})
    own = [("Access-Control-Allow-Origin", "*"), ("access-control-allow-credentials", "true")]
    bench.upstream.script = reply(200, b"ok", [*own, ("Vary", "Accept"), ("X-A", "b")])
    async with await bench.connect() as wire:
        for _ in range(2):  # the second one's heads are cached
            headers = [*bench.auth, *([("Origin", origin)] if origin else [])]
            response = await wire.request("GET", target, headers)
            assert (response.status, response["X-A"], response["Vary"]) == (200, "b", vary)
            more = {} if fields is None else {"Expose-Headers": ", ".join(EXPOSED)}
            assert allowed(response) == {**(fields or {}), **more}
            assert response.maybe("access-control-allow-credentials") == (fields or {}).get(
                "Allow-Credentials"
            )


async def test_without_cors_the_upstreams_fields_pass(start: Start) -> None:
    """It does its own CORS; Origin reaches it in any case."""
    bench = await start(files={"routes": ROUTES})
    bench.upstream.script = reply(200, b"", [("Access-Control-Allow-Origin", "*")])
    async with await bench.connect() as wire:
        response = await wire.request("GET", "/off/x", [("Origin", OTHER)])
    assert allowed(response) == {"Allow-Origin": "*"}
    assert bench.upstream.requests[0].maybe("Origin") == OTHER


async def test_refusals_can_be_read(start: Start) -> None:
    """A script of an allowed origin sees why it was refused: 401, 403, 405, 413, 429 and 502."""
    bench = await start(files={"routes": ROUTES}, bounds={"body_bytes": 10})

    async def abort(exchange: Exchange) -> None:
        exchange.abort()

    cases: list[tuple[int, str, str, list[Header], bytes | None]] = [
        (401, "GET", "/keyed/x", [], None),
        (405, "DELETE", "/tight", bench.auth, None),
        (413, "POST", "/open/x", [], b"x" * 11),
        (429, "GET", "/tight", bench.auth, None),
        (429, "GET", "/tight", bench.auth, None),
        (502, "GET", "/open/x", [], None),
    ]
    async with await bench.connect() as wire:
        await wire.request("GET", "/tight", bench.auth)
    bench.upstream.script = abort
    for status, method, target, headers, body in cases:
        for origin in (APP, OTHER, None):
            async with await bench.connect() as wire:
                sent = [*headers, *([("Origin", origin)] if origin else [])]
                response = await wire.request(method, target, sent, body)
                assert response.status == status
                assert response["Vary"] == "Origin"
                assert allowed(response).get("Allow-Origin") == (APP if origin == APP else None)
                if origin == APP:
                    assert "Retry-After" in allowed(response)["Expose-Headers"]


async def test_with_cors_for_all_a_404_can_be_read(start: Start) -> None:
    """So can the answers of the gateway's own paths; `cors: false` not."""
    routes = ROUTES.replace("auth: none}\n", "auth: none, cors: false}\n")
    bench = await start(files={"routes": routes, "all": 'cors: {origins: ["https://all.test"]}\n'})
    expected = {
        **{"/nowhere": 404, "/open%2Fx": 400, "/health": 200, "/v1/auth/verify": 200},
        "/off/x": 200,
    }
    for target, status in expected.items():
        async with await bench.connect() as wire:
            headers = [*bench.auth, ("Origin", "https://all.test")]
            response = await wire.request("GET", target, headers)
            assert response.status == status
            found = allowed(response).get("Allow-Origin")
            assert found == (None if target == "/off/x" else "https://all.test")
    async with await bench.connect() as wire:
        asked = preflight("https://all.test", "GET", "apikey")
        response = await wire.request("OPTIONS", "/v1/auth/verify", asked)
        assert (response.status, allowed(response)["Allow-Methods"]) == (204, "GET, HEAD")
        assert (await wire.request("OPTIONS", "/off/x", asked)).status == 200


@pytest.mark.parametrize(
    "lines",
    [
        f"Origin: {APP}\r\nOrigin: {OTHER}\r\n",
        f"Origin: {APP}\r\norigin: {APP}\r\n",
        "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Method: PUT\r\n",
        f"Origin: {APP}\r\n {OTHER}\r\n",
        f"Origin: {APP}\nX: y\r\n",
        f"Origin: {APP}\rX: y\r\n",
    ],
)
async def test_hostile_origins(start: Start, lines: str) -> None:
    """Two, folded ones, or line ends within: 400, and no Access-Control field."""
    bench = await start(files={"routes": ROUTES})
    async with await bench.connect() as wire:
        await wire.send(f"OPTIONS /open/x HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
        response = await wire.read_response("OPTIONS")
    assert response.status == 400
    assert allowed(response) == {}


@pytest.mark.parametrize("count", [90, 1000])
async def test_many_requested_fields(start: Start, count: int) -> None:
    """A thousand names, in one line or several, are no reason to fail, or for a long answer."""
    bench = await start(files={"routes": ROUTES})
    names = ",".join(f"x-name-{number}" for number in range(count))
    async with await bench.connect() as wire:
        response = await wire.request("OPTIONS", "/any", preflight(APP, "GET", names))
        assert response.status == 204
        assert (allowed(response).get("Allow-Headers") == names) is (count < 1000)
        lines = [*preflight(APP, "GET", "x-a"), ("access-control-request-headers", "x-b")]
        response = await wire.request("OPTIONS", "/any", lines)
        assert allowed(response)["Allow-Headers"] == "x-a, x-b"


@pytest.mark.parametrize(
    ("target", "origin", "status"),
    [
        ("/open/x", APP, 101),
        ("/open/x", None, 101),
        ("/open/x", OTHER, 403),
        ("/open/x", "null", 403),
        ("/any", OTHER, 101),
        ("/off/x", OTHER, 101),
    ],
)
async def test_websockets(start: Start, target: str, origin: str | None, status: int) -> None:
    """RFC 6455, 10.2: pages of other origins cannot open one on a route with cors."""
    bench = await start(files={"routes": ROUTES})

    bench.upstream.script = switch
    async with await bench.connect() as wire:
        headers = [*HANDSHAKE, *([("Origin", origin)] if origin else [])]
        await wire.send(build_request("GET", target, headers))
        response = await wire.read_head()
        assert response.status == status
        if status == 403:
            assert (await wire.read_body(response)).count(b"ORIGIN_NOT_ALLOWED") == 1
    assert len(bench.upstream.requests) == (status == 101)


async def test_usage_and_metrics(start: Start) -> None:
    """Preflights are requests of a route of their own, so that they do not change others' times."""
    bench = await start(files={"routes": ROUTES})
    async with await bench.connect() as wire:
        await wire.request("OPTIONS", "/keyed/x", preflight(APP, "GET"))
        await wire.request("OPTIONS", "/keyed/x", preflight(OTHER, "GET"))
    requests = bench.gateway.metrics._requests
    assert requests["gateway:preflight", "OPTIONS", 204, "gateway"] == 1
    assert requests["gateway:preflight", "OPTIONS", 403, "gateway"] == 1


async def test_a_reload_changes_who_is_allowed(start: Start) -> None:
    """The next request of a connection is decided by the new policy."""
    bench = await start(files={"routes": ROUTES})
    gate = bench.gateway._context.gate
    async with await bench.connect() as wire:
        for origin in (APP, OTHER):
            await wire.request("GET", "/nowhere", [("Origin", origin)])
        gate.use(replace(gate.policy, cors=Cors((OTHER,))))
        response = await wire.request("GET", "/nowhere", [("Origin", OTHER)])
        assert allowed(response)["Allow-Origin"] == OTHER
