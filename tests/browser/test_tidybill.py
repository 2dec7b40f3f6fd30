"""The app of the example in a real browser: pages of one host, requests to the API of the other.

The browser resolves both names to the gateway, and trusts its two certificates, by their keys.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from playwright.async_api import Browser, Page

from gateway.http1.websocket import accept_of
from tests.browser.test_cors import FETCH
from tests.end_to_end.test_observed import counted
from tests.kit.browser import needs_chromium, open_chromium, open_page
from tests.kit.certificates import Certificate
from tests.kit.eventually import eventually
from tests.kit.tidybill import API, APP, Tidybill, serve_tidybill
from tests.kit.upstream import Exchange, echo, reply

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_chromium]

SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
#: The text "hello" as a frame.
HELLO = b"\x81\x05hello"
HTML = [("Content-Type", "text/html; charset=utf-8")]


@dataclass
class Opened:
    """All of Tidybill, and a browser."""

    tidybill: Tidybill
    browser: Browser


def key_hash(certificate: Certificate) -> str:
    """Of the certificate's public key, as Chromium wants it."""
    loaded = x509.load_pem_x509_certificate(certificate.certificate.read_bytes())
    key = loaded.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    async with AsyncExitStack() as stack:
        folder = tmp_path_factory.mktemp("tidybill")
        tidybill = await stack.enter_async_context(serve_tidybill(folder))
        hashes = ",".join(key_hash(tidybill.certificates[stem]) for stem in ("api", "app"))
        browser = await stack.enter_async_context(
            open_chromium(
                f"--host-resolver-rules=MAP *.tidybill.example 127.0.0.1:{tidybill.gateway.port}",
                f"--ignore-certificate-errors-spki-list={hashes}",
            )
        )
        tidybill.services["web"].answer = web
        yield Opened(tidybill, browser)


async def web(exchange: Exchange) -> None:
    """The app's server: pages, a session, and a WebSocket."""
    request = exchange.request
    if key := request.maybe("Sec-WebSocket-Key"):
        accept = f"Sec-WebSocket-Accept: {accept_of(key.encode()).decode()}"
        await exchange.write(SWITCHED + accept.encode() + b"\r\n\r\n" + HELLO)
        await exchange.ended()
    elif request.method == "POST":
        cookie = "sid=7; Path=/tidybill; Secure; HttpOnly; SameSite=Lax"
        fields = [("Location", "/tidybill/invoices"), ("Set-Cookie", cookie)]
        await reply(303, b"", fields)(exchange)
    else:
        page = f"<!doctype html><title>Tidybill</title><p id=cookie>{request.maybe('Cookie')}</p>"
        form = "<form method=post action=/session><button>Sign in</button></form>"
        await reply(200, (page + form).encode(), HTML)(exchange)


async def ask(page: Page, path: str, **options: Any) -> Any:
    """Have the page's script send a request to the API; what the script can read of the answer."""
    return await page.evaluate(FETCH, {"url": f"https://{API}{path}", "options": options})


async def preflights(tidybill: Tidybill) -> float:
    name = "gateway_requests_total"
    return await counted(tidybill.gateway, name, route="gateway:preflight")


async def test_a_page_of_the_app_uses_the_api(opened: Opened) -> None:
    """After a preflight, with a key: the script reads the answer, its limits and X-Total-Count."""
    tidybill = opened.tidybill
    key = await tidybill.key("browser")
    listed = reply(200, b"[]", [("X-Total-Count", "0"), ("X-Internal", "1")])
    tidybill.services["large"].answer = tidybill.services["small"].answer = listed
    async with open_page(opened.browser, f"https://{APP}") as (page, complaints):
        await page.goto("/invoices")
        before = await preflights(tidybill)
        answer = await ask(page, "/v1/search?q=x", headers={"Authorization": f"Bearer {key}"})
        assert (answer["status"], answer["body"]) == (200, "[]")
        headers = answer["headers"]
        assert (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]) == ("60", "59")
        assert headers["x-total-count"] == "0"
        assert headers["x-request-id"]
        assert '"search";r=59' in headers["ratelimit"]
        assert "x-internal" not in headers

        async def is_counted() -> bool:
            return await preflights(tidybill) == before + 1

        await eventually(is_counted, "there was one preflight")
        assert complaints == []


async def test_a_script_reads_why_it_is_refused(opened: Opened) -> None:
    """401, 403 and 429, with what is missing and when to come back."""
    tidybill = opened.tidybill
    tidybill.services["large"].answer = tidybill.services["small"].answer = echo
    key = await tidybill.key("browser", scopes=("reports:read",))
    auth = {"headers": {"Authorization": f"Bearer {key}"}}
    async with open_page(opened.browser, f"https://{APP}") as (page, _):
        await page.goto("/invoices")
        missing = await ask(page, "/v1/search")
        assert (missing["status"], '"INVALID_API_KEY"' in missing["body"]) == (401, True)
        forbidden = await ask(page, "/v1/customers/7", method="DELETE", **auth)
        assert (forbidden["status"], "customers:write" in forbidden["body"]) == (403, True)
        for _ in range(10):
            assert (await ask(page, "/v1/reports/taxes", **auth))["status"] == 200
        limited = await ask(page, "/v1/reports/taxes", **auth)
        assert (limited["status"], '"rate_limit_exceeded"' in limited["body"]) == (429, True)
        assert int(limited["headers"]["retry-after"]) > 0
        assert limited["headers"]["x-ratelimit-remaining"] == "0"


async def test_other_pages_and_routes_without_cors(opened: Opened) -> None:
    """A page of the API's own host is another origin; payouts are for no page."""
    tidybill = opened.tidybill
    auth = {"headers": {"Authorization": f"Bearer {await tidybill.key()}"}}
    async with open_page(opened.browser, f"https://{APP}") as (page, _):
        await page.goto("/invoices")
        sent = len(tidybill.services["payments"].requests)
        assert await ask(page, "/v1/payouts", method="POST", **auth) == {"error": "TypeError"}
        assert (await ask(page, "/v1/payments/3", **auth))["status"] == 200
        assert len(tidybill.services["payments"].requests) == sent + 1
        # The gateway answers this page itself.
        await page.goto(f"https://{API}/v0/")
        url = f"https://{APP}/invoices"
        assert await page.evaluate(FETCH, {"url": url, "options": {}}) == {"error": "TypeError"}


async def test_signing_in(opened: Opened) -> None:
    """The form, its redirect and its cookie, of a server with other paths."""
    tidybill = opened.tidybill
    async with open_page(opened.browser, f"https://{APP}") as (page, complaints):
        await page.goto("/")
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url(f"https://{APP}/invoices")
        assert await page.text_content("#cookie") == "sid=7"
        assert complaints == []
    sent = [each.target for each in tidybill.services["web"].requests]
    assert [each for each in sent if "favicon" not in each][-3:] == [
        "/tidybill/",
        "/tidybill/session",
        "/tidybill/invoices",
    ]


async def test_the_live_page(opened: Opened) -> None:
    """A WebSocket of the app's pages, and of no other origin."""
    received = """url => new Promise(done => {
        const socket = new WebSocket(url);
        socket.onmessage = event => { done(event.data); socket.close(); };
        socket.onerror = () => done(null);
    })"""
    async with open_page(opened.browser, f"https://{APP}") as (page, _):
        await page.goto("/invoices")
        assert await page.evaluate(received, f"wss://{APP}/live") == "hello"
        await page.goto(f"https://{API}/v0/")
        assert await page.evaluate(received, f"wss://{APP}/live") is None


async def test_a_page_of_errors(opened: Opened) -> None:
    """What a person sees of a route in maintenance."""
    async with open_page(opened.browser, f"https://{APP}") as (page, _):
        answer = await page.goto("/statements/7")
        assert answer is not None
        assert (answer.status, await page.title()) == (503, "Tidybill: 503")
        assert await page.get_by_text("will be back at 14:00 UTC").is_visible()
