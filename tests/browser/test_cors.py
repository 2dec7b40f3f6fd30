"""Cross-origin requests of pages in a real browser: two origins, one of them allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from gateway.app import Gateway, Settings
from gateway.policies.load import load
from gateway.stores.redis.address import StoreAddress
from tests.kit.browser import needs_chromium, open_page
from tests.kit.keys import make_key
from tests.kit.policies import write_policies
from tests.kit.upstream import ScriptedUpstream, reply

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_chromium]

ROUTES = """
routes:
  api:     {{match: "* /api/**", upstream: api, cors: {{origins: ["{0}"], max_age: 10m}}}}
  small:   {{match: GET /small, upstream: api, plan_limits: false, rate: 1/day,
             cors: {{origins: ["{0}"]}}}}
  session: {{match: GET /session, upstream: api, auth: none,
             cors: {{origins: ["{0}"], credentials: true}}}}
  any:     {{match: GET /any, upstream: api, auth: none, cors: {{origins: ["*"]}}}}
  none:    {{match: GET /none, upstream: api, auth: none}}
"""
PAGE = reply(200, b"<!doctype html><title>page</title>", [("Content-Type", "text/html")])
#: Sends a request; what its script can read of the answer, or the error.
FETCH = """async ({url, options}) => {
    try {
        const answer = await fetch(url, options);
        const headers = Object.fromEntries(answer.headers.entries());
        return {status: answer.status, headers, body: await answer.text()};
    } catch (error) { return {error: error.name}; }
}"""


@dataclass
class Site:
    """A gateway, its upstream, and pages of an allowed origin and another one."""

    gateway: Gateway
    upstream: ScriptedUpstream
    allowed: ScriptedUpstream
    other: ScriptedUpstream
    key: str

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    async def fetch(self, page: Page, path: str, **options: Any) -> Any:
        """Have the page's script send a request to the gateway."""
        url = f"http://127.0.0.1:{self.gateway.port}{path}"
        return await page.evaluate(FETCH, {"url": url, "options": options})

    def preflights(self) -> int:
        counts = self.gateway.metrics._requests
        return sum(count for labels, count in counts.items() if labels[0] == "gateway:preflight")


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        upstream, allowed, other = [
            await stack.enter_async_context(ScriptedUpstream()) for _ in range(3)
        ]
        allowed.script = other.script = PAGE
        upstream.script = reply(200, b"ok", [("X-Total-Count", "7")])
        routes = ROUTES.format(allowed.url)
        folder = write_policies(tmp_path / "policies", upstream.url, routes=routes)
        settings = Settings(
            folder,
            listen=("127.0.0.1", 0),
            admin=("127.0.0.1", 0),
            store=StoreAddress("memory"),
            access_log="off",
        )
        gateway = Gateway(settings, policy=load(folder))
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        text, record = make_key(lambda below: 7919 % below, account="acme", plan="enterprise")
        await gateway.keys.add(record)
        yield Site(gateway, upstream, allowed, other, text)


async def test_a_script_reads_its_limits(chromium: Browser, site: Site) -> None:
    """Of an allowed origin: with a key, which needs a preflight; and what is exposed."""
    async with open_page(chromium, site.allowed.url) as (page, _):
        await page.goto("/")
        answer = await site.fetch(page, "/api/x", headers=site.auth)
        assert (answer["status"], answer["body"]) == (200, "ok")
        assert int(answer["headers"]["x-ratelimit-remaining"]) > 0
        assert answer["headers"]["x-request-id"]
        assert "x-total-count" not in answer["headers"]
        assert site.preflights() == 1


async def test_a_preflight_is_cached(chromium: Browser, site: Site) -> None:
    """For max_age, by address; so the next request of the page is sent at once."""
    async with open_page(chromium, site.allowed.url) as (page, _):
        await page.goto("/")
        for method in ("GET", "GET", "PUT", "PUT"):
            body = {"body": "x"} if method == "PUT" else {}
            answer = await site.fetch(page, "/api/x", method=method, headers=site.auth, **body)
            assert answer["status"] == 200
        assert site.preflights() == 2


async def test_a_script_reads_why_it_is_refused(chromium: Browser, site: Site) -> None:
    """A 429 with Retry-After and its body; a 401; a 405."""
    async with open_page(chromium, site.allowed.url) as (page, _):
        await page.goto("/")
        assert (await site.fetch(page, "/small", headers=site.auth))["status"] == 200
        limited = await site.fetch(page, "/small", headers=site.auth)
        assert limited["status"] == 429
        assert int(limited["headers"]["retry-after"]) > 0
        assert '"code": "rate_limit_exceeded"' in limited["body"]
        assert (await site.fetch(page, "/api/x"))["status"] == 401
        assert (await site.fetch(page, "/small", method="POST"))["status"] == 405


async def test_another_origin_reads_nothing(chromium: Browser, site: Site) -> None:
    """Neither with a preflight, which stops the request, nor without one."""
    async with open_page(chromium, site.other.url) as (page, _):
        await page.goto("/")
        assert await site.fetch(page, "/api/x", headers=site.auth) == {"error": "TypeError"}
        assert site.upstream.requests == []
        for path in ("/session", "/none", "/nowhere", "/health"):
            assert await site.fetch(page, path) == {"error": "TypeError"}
        assert (await site.fetch(page, "/any"))["body"] == "ok"


async def test_cookies_need_credentials(chromium: Browser, site: Site) -> None:
    """The page sees an answer to a request with cookies only where the route says so."""
    async with open_page(chromium, site.allowed.url) as (page, _):
        await page.goto("/")
        gateway = f"http://127.0.0.1:{site.gateway.port}"
        await page.context.add_cookies([{"name": "sid", "value": "1", "url": gateway}])
        answer = await site.fetch(page, "/session", credentials="include")
        assert answer["status"] == 200
        assert site.upstream.requests[-1].maybe("Cookie") == "sid=1"
        refused = await site.fetch(page, "/any", credentials="include")
        assert refused == {"error": "TypeError"}


async def test_websockets_of_another_origin(chromium: Browser, site: Site) -> None:
    """A browser opens one to any address, and shows it to the page: so the gateway refuses it."""
    opened = """url => new Promise(done => {
        const socket = new WebSocket(url);
        socket.onopen = () => done(true); socket.onerror = () => done(false);
    })"""
    async with open_page(chromium, site.other.url) as (page, _):
        await page.goto("/")
        url = f"ws://127.0.0.1:{site.gateway.port}/session"
        assert not await page.evaluate(opened, url)
    assert site.upstream.requests == []
