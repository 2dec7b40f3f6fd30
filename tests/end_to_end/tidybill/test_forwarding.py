"""What servers of the example get, what becomes of their answers; canary, retries, traces."""

from __future__ import annotations

import asyncio

import pytest

from tests.end_to_end.test_observed import counted
from tests.kit.eventually import eventually
from tests.kit.tidybill import API, APP, Tidybill
from tests.kit.upstream import Exchange, Script, echo, reply
from tests.kit.wire import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRACE = "0af7651916cd43dd8448eb211c80319c"


def answer_with_names(tidybill: Tidybill) -> None:
    """Have each service answer with its name."""
    for name, service in tidybill.services.items():
        service.answer = reply(200, name.encode())


# -- which server ----------------------------------------------------------------------------------


async def test_the_larger_server_gets_three_of_four(tidybill: Tidybill) -> None:
    """In turn, by the weights."""
    answer_with_names(tidybill)
    headers = tidybill.headers(API, await tidybill.key())
    async with tidybill.connect(API) as wire:
        found = [(await wire.request("GET", "/v1/exports/1", headers)).body for _ in range(40)]
    assert (found.count(b"large"), found.count(b"small")) == (30, 10)


async def test_the_canary_by_header(tidybill: Tidybill) -> None:
    """With exactly this value, on the canary's routes; it is counted by itself."""
    answer_with_names(tidybill)
    name, labels = (
        "gateway_canary_requests_total",
        {"route": "customers", "upstream": "invoices-next"},
    )
    before = await counted(tidybill.gateway, name, **labels)
    key = await tidybill.key(account="first")
    for path, header, is_canary in (
        ("/v1/customers/7", "next", True),
        ("/v1/invoices/7", "next", True),
        ("/v1/customers/7", "NEXT", False),
        ("/v1/customers/7", "previous", False),
        ("/v1/exports/7", "next", False),
    ):
        headers = [("X-Tidybill-Version", header)]
        answer = await tidybill.fetch(f"{API}{path}", key=key, headers=headers)
        assert (answer.body == b"next") == is_canary, (path, header)

    async def is_counted() -> bool:
        return await counted(tidybill.gateway, name, **labels) == before + 1

    await eventually(is_counted, "one request of the route has gone to the canary")


async def test_the_canary_by_share(tidybill: Tidybill) -> None:
    """A tenth of the accounts, on all of its routes, with every key.

    The account's name alone decides, so these names have the same result in every run.
    """
    answer_with_names(tidybill)
    accounts = [f"company-{number}" for number in range(200)]
    chosen = set()
    async with tidybill.connect(API) as wire:
        for account in accounts:
            found = set()
            for method, path in (("GET", "/v1/customers/7"), ("PATCH", "/v1/customers/7")):
                headers = tidybill.headers(API, await tidybill.key(account=account))
                found.add((await wire.request(method, path, headers)).body == b"next")
            assert len(found) == 1, f"{account} has both versions"
            if found == {True}:
                chosen.add(account)
    assert 10 <= len(chosen) <= 30


async def test_a_failing_canary_fails_visibly(tidybill: Tidybill) -> None:
    """Its requests go to no other upstream."""
    tidybill.services["next"].answer = reply(503, b"not ready")
    headers = [("X-Tidybill-Version", "next")]
    answer = await tidybill.fetch(
        f"{API}/v1/customers/7", key=await tidybill.key(), headers=headers
    )
    assert (answer.status, answer.body) == (503, b"not ready")
    assert {name for name, _ in tidybill.received(answer)} == {"next"}


# -- failures --------------------------------------------------------------------------------------


def failing_first() -> Script:
    """Answer the first attempt of each request with 503."""
    seen = set()

    async def script(exchange: Exchange) -> None:
        request_id = exchange.request.maybe("X-Request-Id")
        await (echo if request_id in seen else reply(503))(exchange)
        seen.add(request_id)

    return script


async def test_reads_are_sent_again(tidybill: Tidybill) -> None:
    """To the other server; the client sees nothing of it. What writes is sent once."""
    script = failing_first()
    tidybill.services["large"].answer = tidybill.services["small"].answer = script
    key = await tidybill.key(account="first")
    read = await tidybill.fetch(f"{API}/v1/customers/7", key=key)
    assert read.status == 200
    assert [name for name, _ in tidybill.received(read)] == ["large", "small"]
    write = await tidybill.fetch(f"{API}/v1/customers/7", key=key, method="PUT", body=b"{}")
    assert write.status == 503
    assert len(tidybill.received(write)) == 1


async def test_a_late_answer(tidybill: Tidybill) -> None:
    """A search that takes longer than the route allows is a 504."""
    forever = asyncio.Event()

    async def silent(exchange: Exchange) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await forever.wait()

    tidybill.services["large"].answer = tidybill.services["small"].answer = silent
    answer = await tidybill.fetch(f"{API}/v1/search?q=x", key=await tidybill.key())
    assert answer.status == 504
    assert (await tidybill.line(answer))["reason"] == "upstream_timeout"
    forever.set()


@pytest.mark.parametrize(
    ("path", "fits", "too_large"),
    [
        ("/v1/customers", 64 * 1024, 64 * 1024 + 1),
        ("/v1/invoices", 256 * 1024, 256 * 1024 + 1),
        ("/v1/imports", 1_000_000, 25_000_001),
    ],
)
async def test_bounds_of_bodies(tidybill: Tidybill, path: str, fits: int, too_large: int) -> None:
    """64 KiB unless a route has more; what is longer reaches no server."""
    key = await tidybill.key(account="first")
    fitting = await tidybill.fetch(f"{API}{path}", key=key, method="POST", body=b"x" * fits)
    assert (fitting.status, fitting.json()["body_bytes"]) == (200, fits)
    # The length alone is enough.
    headers = [("Content-Length", str(too_large))]
    refused = await tidybill.fetch(f"{API}{path}", key=key, method="POST", headers=headers)
    assert (refused.status, refused.json()["code"]) == (413, "BODY_TOO_LARGE")
    assert tidybill.received(refused) == []


# -- headers and places ----------------------------------------------------------------------------


async def test_payments_learn_who_asks(tidybill: Tidybill) -> None:
    """By headers of the gateway, which no client can set."""
    key = await tidybill.key(account="acme")
    headers = [("X-Tenant", "other"), ("X_Audit", "nobody")]
    answer = await tidybill.fetch(
        f"{API}/v1/payments/3", key=key, headers=headers, client="203.0.113.9"
    )
    ((_, request),) = tidybill.received(answer)
    key_id = key.split("_")[2]
    assert request.all("X-Tenant") == ["acme"]
    assert request.maybe("X-Audit") == f"{key_id} from 203.0.113.9, {answer['X-Request-Id']}"
    assert request.all("X_Audit") == []
    assert request.maybe("X-Forwarded-Host") == API
    assert request.maybe("X-Gateway-Plan") == "business"


async def test_headers_of_answers(tidybill: Tidybill) -> None:
    """Those of the route in place of the server's, of the policy on all."""
    tells = [("Server", "nginx/1.2"), ("X-Powered-By", "PHP"), ("Cache-Control", "public")]
    for service in tidybill.services.values():
        service.answer = reply(200, b"x", tells)
    key = await tidybill.key()
    pdf = await tidybill.fetch(f"{API}/v1/invoices/7/pdf", key=key)
    assert pdf["Cache-Control"] == "private, no-store"
    assert pdf.all("Server") == pdf.all("X-Powered-By") == []
    page = await tidybill.fetch(f"{APP}/invoices")
    assert "connect-src 'self' https://api.tidybill.example" in page["Content-Security-Policy"]
    assert (page["X-Frame-Options"], page["Cache-Control"]) == ("DENY", "public")
    asset = await tidybill.fetch(f"{APP}/assets/app.js")
    assert asset["Cache-Control"].endswith("immutable")
    assert asset["Server"] == "nginx/1.2"
    for answer in (pdf, page, asset):
        assert answer["Strict-Transport-Security"].startswith("max-age=31536000")


async def test_places_of_the_servers(tidybill: Tidybill) -> None:
    """Redirects and cookies name the client's paths and hosts."""
    cookie = "sid=1; Path=/tidybill; Secure; HttpOnly"
    found = [("Location", "/tidybill/invoices?new=1"), ("Set-Cookie", cookie)]
    tidybill.services["web"].answer = reply(303, b"", found)
    signed_in = await tidybill.fetch(f"{APP}/session", method="POST", body=b"user=1")
    assert signed_in["Location"] == "/invoices?new=1"
    assert signed_in["Set-Cookie"] == "sid=1; Path=/; Secure; HttpOnly"
    place = "https://payments.internal/checkout/8c/done"
    tidybill.services["payments"].answer = reply(303, b"", [("Location", place)])
    paid = await tidybill.fetch(f"{APP}/pay/8c/confirm", method="POST", body=b"card=1")
    assert paid["Location"] == "/pay/8c/done"
    created = reply(201, b"", [("Location", "https://payments.internal/payments/77")])
    tidybill.services["payments"].answer = created
    key = await tidybill.key()
    answer = await tidybill.fetch(f"{API}/v1/payments", key=key, method="POST", body=b"{}")
    assert answer["Location"] == "/v1/payments/77"


# -- observing -------------------------------------------------------------------------------------


async def test_the_access_log(tidybill: Tidybill) -> None:
    """The fields of the policies: names of parameters without their values, TLS, user agent."""
    trace = "c" * 32
    headers = [("User-Agent", "books/3"), ("traceparent", f"00-{trace}-{'b' * 16}-00")]
    url = f"{API}/v1/search?q=Miller&page=2"
    line = await tidybill.line(
        await tidybill.fetch(url, key=await tidybill.key(), headers=headers, client="203.0.113.9")
    )
    assert line["query"] == "q&page"
    assert (line["host"], line["client_ip"], line["user_agent"]) == (API, "203.0.113.9", "books/3")
    assert (line["tls"], line["trace_id"]) == ("TLSv1.3", trace)
    assert line["server"] in {
        f"127.0.0.1:{tidybill.services[name].server.port}" for name in ("large", "small")
    }
    assert "Miller" not in tidybill.gateway.access_log.read_text()


async def test_a_trace(tidybill: Tidybill) -> None:
    """What a client samples is exported, with the account; the server gets a child of it."""
    headers = [("traceparent", f"00-{TRACE}-b7ad6b7169203331-01")]
    key = await tidybill.key(account="acme")
    answer = await tidybill.fetch(f"{API}/v1/payments/3", key=key, headers=headers)
    spans = await tidybill.collector.trace(TRACE, 3)
    assert spans["SERVER"].attributes["gateway.route"] == "payments"
    assert "acme" in spans["SERVER"].attributes.values()
    ((_, request),) = tidybill.received(answer)
    assert request.maybe("traceparent") == f"00-{TRACE}-{spans['CLIENT'].span_id}-01"
