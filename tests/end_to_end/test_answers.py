"""The headers of every answer, and the form of each refusal."""

from __future__ import annotations

import time
from ipaddress import ip_network
from types import MappingProxyType

import pytest

from tests.end_to_end.conftest import Site, build_key, enable
from tests.kit.upstream import reply
from tests.kit.wire import Response, Wire, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")

FIGURES = (
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-RateLimit-Reset-After",
)


def assert_rate_headers(response: Response) -> None:
    """The four headers, once each and whole numbers; and the request's id."""
    for name in FIGURES:
        assert response[name].isdigit(), f"{name}: {response[name]}"
    assert response["X-Request-Id"]


def assert_refused(response: Response, status: int, error: str, code: str) -> None:
    assert_rate_headers(response)
    body = response.json()
    assert (response.status, body["error"], body["code"]) == (status, error, code)
    assert body["message"]
    assert body["request_id"] == response["X-Request-Id"]


async def test_an_upstreams_answer_gets_the_rate_headers(site: Site) -> None:
    """Status, body and headers are the upstream's; the gateway adds the rate-limit headers."""
    key = await site.key()
    answer = await site.gateway.fetch("/api/things?q=1", key=key)
    assert_rate_headers(answer)
    assert answer.status == 200
    assert answer.json()["target"] == "/api/things?q=1"
    assert (answer["X-RateLimit-Limit"], answer["X-RateLimit-Remaining"]) == ("60", "59")


@pytest.mark.parametrize("status", [201, 204, 304, 404, 418, 500, 503])
async def test_an_upstreams_status_is_passed_on(site: Site, status: int) -> None:
    """Whatever the upstream's status, the rate-limit headers are added."""
    body = b"" if status in (204, 304) else b"words"
    headers = [] if body else [("X-Empty", "yes")]
    site.upstream.script = reply(status, body, headers)
    if not body:

        async def bodyless(exchange):  # type: ignore[no-untyped-def]
            await exchange.write(f"HTTP/1.1 {status} None\r\n\r\n".encode())

        site.upstream.script = bodyless
    answer = await site.gateway.fetch("/api/things", key=await site.key())
    assert_rate_headers(answer)
    assert (answer.status, answer.body) == (status, body)


async def test_an_upstreams_own_rate_headers_are_replaced(site: Site) -> None:
    """An upstream cannot report other limits than the gateway's."""
    site.upstream.script = reply(200, b"", [(name, "7") for name in FIGURES])
    answer = await site.gateway.fetch("/api/things", key=await site.key())
    assert answer["X-RateLimit-Limit"] == "60"


async def test_the_reset_is_a_time_and_the_wait_until_it(site: Site) -> None:
    """X-RateLimit-Reset is the Unix time after X-RateLimit-Reset-After seconds."""
    before = time.time()
    answer = await site.gateway.fetch("/api/things", key=await site.key())
    after = time.time()
    moment = int(answer["X-RateLimit-Reset"]) - int(answer["X-RateLimit-Reset-After"])
    assert before - 1 <= moment <= after + 1


async def test_no_key_is_401(site: Site) -> None:
    """A request without a key is not forwarded, and the answer says how to send one."""
    answer = await site.gateway.fetch("/api/things")
    assert_refused(answer, 401, "unauthorized", "INVALID_API_KEY")
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert site.upstream.requests == []


async def test_invalid_keys_are_401(site: Site) -> None:
    """Mistyped, unknown, suspended, revoked, expired, or of another environment: one code."""
    good = await site.key()
    unknown = good[:-1] + ("a" if good[-1] != "a" else "b")
    bad = [
        "nonsense",
        unknown,
        await site.key(status="suspended"),
        await site.key(status="revoked"),
        await site.key(expires_us=1),
        await site.key(environment="development"),
    ]
    for key in bad:
        answer = await site.gateway.fetch("/api/things", key=key)
        assert_refused(answer, 401, "unauthorized", "INVALID_API_KEY")
        assert key not in answer.body.decode()
    assert site.upstream.requests == []


#: Requests that are refused whoever sends them; {} is replaced by the key's line.
FAULTY = {
    "400, path": (b"GET /api/%2e%2e%2f HTTP/1.1\r\nHost: x\r\n{}\r\n", 400),
    "400, line": (b"GET /api/a b HTTP/1.1\r\nHost: x\r\n{}\r\n", 400),
    "400, field": (b"GET /api/a HTTP/1.1\r\nHost: x\r\n{}A : b\r\n\r\n", 400),
    "404": (b"GET /nowhere HTTP/1.1\r\nHost: x\r\n{}\r\n", 404),
    "405": (b"PUT /v1/connectors/../health HTTP/1.1\r\nHost: x\r\n{}\r\n", 405),
    "413": (b"POST /api/a HTTP/1.1\r\nHost: x\r\n{}Content-Length: 99999999\r\n\r\n", 413),
    "414": (b"GET /api/%b HTTP/1.1\r\nHost: x\r\n{}\r\n" % (b"a" * 9_000), 414),
    "414, long": (b"GET /api/%b HTTP/1.1\r\nHost: x\r\n{}\r\n" % (b"a" * 36_000), 414),
    "417": (b"GET /api/a HTTP/1.1\r\nHost: x\r\nExpect: more\r\n{}\r\n", 417),
    "431, bytes": (b"GET /api/a HTTP/1.1\r\nHost: x\r\n{}X: %b\r\n\r\n" % (b"a" * 33_000), 431),
    "431, lines": (b"GET /api/a HTTP/1.1\r\nHost: x\r\n%b{}\r\n" % (b"X: a\r\n" * 200), 431),
    "501": (b"GET /api/a HTTP/1.1\r\nHost: x\r\n{}Transfer-Encoding: a, chunked\r\n\r\n", 501),
    "505": (b"GET /api/a HTTP/1.9\r\nHost: x\r\n{}\r\n".replace(b"1.9", b"3.0"), 505),
}


@pytest.mark.parametrize("name", FAULTY)
async def test_a_faulty_request_reports_the_limits_of_its_key(site: Site, name: str) -> None:
    """Those of a good key at no cost; without one, those of the address. Also in pieces."""
    head, status = FAULTY[name]
    good = await site.key("pro")
    unknown, _ = build_key("pro")
    suspended = await site.key("pro", status="suspended")
    told = {good: "600", unknown: "6000", suspended: "6000", "swordfish": "6000", "": "6000"}
    for key, limit in told.items():
        sent = head.replace(b"{}", b"Authorization: Bearer %b\r\n" % key.encode() if key else b"")
        # A line that is no request is refused before more arrives.
        for half in (0,) if name in {"400, line", "505"} else (0, len(sent) // 2):
            async with await Wire.connect(site.gateway.port) as wire:
                await wire.send(sent[:half])
                await wire.send(sent[half:])
                answer = await wire.read_response()
            assert_rate_headers(answer)
            assert (answer.status, answer["X-RateLimit-Limit"]) == (status, limit)
            if key == good:
                assert answer["X-RateLimit-Remaining"] == "600"
            assert not key or key not in answer.body.decode()
    assert site.upstream.requests == []


async def test_a_key_may_come_as_apikey(site: Site) -> None:
    """The header `apiKey`, in any case, is equal to Authorization; both may have the same key."""
    key = await site.key()
    for headers in (
        [("apiKey", key)],
        [("APIKEY", key)],
        [*bearer(key), ("apiKey", key)],
        [("authorization", f"bearer {key}")],
    ):
        assert (await site.gateway.fetch("/api/things", headers=headers)).status == 200


async def test_keys_that_disagree_are_401(site: Site) -> None:
    """Two keys, each valid, are refused: it is unknown which one is meant."""
    one, two = await site.key(), await site.key()
    for headers in (
        [*bearer(one), ("apiKey", two)],
        [*bearer(one), *bearer(two)],
        [("apiKey", one), ("apiKey", two)],
    ):
        answer = await site.gateway.fetch("/api/things", headers=headers)
        assert_refused(answer, 401, "unauthorized", "INVALID_API_KEY")
    assert site.upstream.requests == []


async def test_a_scope_is_needed(site: Site) -> None:
    """The connectors require a scope; a refusal costs nothing."""
    without, with_it = await site.key(), await site.key(scopes=("connectors:read",))
    for _ in range(3):
        answer = await site.gateway.fetch("/v1/connectors", key=without)
        assert_refused(answer, 403, "forbidden", "INSUFFICIENT_SCOPE")
        assert answer["X-RateLimit-Remaining"] == "60"
    assert (await site.gateway.fetch("/v1/connectors", key=with_it)).status == 200


async def test_a_permission_is_needed(site: Site) -> None:
    """A route can require one action in one service area."""
    reader = await site.key(permissions=MappingProxyType({"ticketing": ("read",)}))
    writer = await site.key(permissions=MappingProxyType({"ticketing": ("read", "write")}))
    answer = await site.gateway.fetch("/v1/tickets/1", key=reader)
    assert_refused(answer, 403, "forbidden", "INSUFFICIENT_PERMISSION")
    assert (await site.gateway.fetch("/v1/tickets/1", key=writer)).status == 200


async def test_a_service_must_be_enabled(site: Site) -> None:
    """A route of a service requires that the account has it."""
    key = await site.key(account="acme")
    answer = await site.gateway.fetch("/v1/scm/repositories", key=key)
    assert_refused(answer, 403, "forbidden", "SERVICE_NOT_ENABLED")
    await enable(site, "globex", "scm", "ticketing")
    key = await site.key(account="globex")
    assert (await site.gateway.fetch("/v1/scm/repositories", key=key)).status == 200


async def test_a_key_keeps_to_its_networks(site: Site) -> None:
    """Outside its ranges a key is refused; X-Forwarded-For of an untrusted client is ignored."""
    elsewhere = await site.key(networks=(ip_network("192.0.2.0/24"),))
    here = await site.key(networks=(ip_network("192.0.2.0/24"), ip_network("127.0.0.0/8")))
    for headers in ([], [("X-Forwarded-For", "192.0.2.7")]):
        answer = await site.gateway.fetch("/api/things", key=elsewhere, headers=headers)
        assert_refused(answer, 403, "forbidden", "IP_NOT_ALLOWED")
    assert (await site.gateway.fetch("/api/things", key=here)).status == 200


async def test_an_unknown_path_is_404(site: Site) -> None:
    """Without a route, the gateway answers itself, in JSON."""
    for key in (None, await site.key()):
        answer = await site.gateway.fetch("/nowhere", key=key)
        assert_rate_headers(answer)
        assert answer.status in (401, 404)
        assert answer["Content-Type"].startswith("application/json")
    assert answer.status == 404
    assert site.upstream.requests == []


async def test_a_public_route_needs_no_key(site: Site) -> None:
    """`auth: none` admits all clients; the answers still have rate-limit headers."""
    answer = await site.gateway.fetch("/public/page")
    assert_rate_headers(answer)
    assert answer.status == 200


async def test_health_needs_no_key(site: Site) -> None:
    """GET and HEAD /health return a status, without a request to the upstream."""
    for method in ("GET", "HEAD"):
        answer = await site.gateway.fetch("/health", method=method)
        assert_rate_headers(answer)
        assert answer.status == 200
    assert site.upstream.requests == []


async def test_v1_health_takes_a_key(site: Site) -> None:
    """`/v1/health` returns status, timestamp and version, to clients with a key."""
    answer = await site.gateway.fetch("/v1/health", key=await site.key())
    assert_rate_headers(answer)
    assert set(answer.json()) == {"status", "timestamp", "version"}
    assert answer.json()["status"] == "ok"
    assert (await site.gateway.fetch("/v1/health")).status == 401
    assert site.upstream.requests == []


async def test_verify_costs_nothing(site: Site) -> None:
    """`/v1/auth/verify` returns the key's permissions and what remains, any number of times."""
    key = await site.key("pro", scopes=("connectors:read",))
    for _ in range(3):
        answer = await site.gateway.fetch("/v1/auth/verify", key=key)
        assert_rate_headers(answer)
        assert (answer.status, answer["X-RateLimit-Remaining"]) == (200, "600")
        assert key not in answer.body.decode()
        assert "connectors:read" in answer.body.decode()
    assert (await site.gateway.fetch("/v1/auth/verify", key="nonsense")).status == 401
