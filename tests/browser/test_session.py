"""The console's cookie in a real browser: under TLS, and with cookies of other servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from gateway.domain.policy import Tls
from gateway.runtime.certificates import build_context
from tests.kit.browser import needs_chromium, sign_in
from tests.kit.certificates import make_certificate
from tests.kit.console import TOKEN, Console
from tests.kit.listening import Listening
from tests.kit.wire import TIMEOUT_S

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_chromium]


async def test_under_tls_the_browser_takes_the_cookie(chromium: Browser, tmp_path: Path) -> None:
    """With the prefix, a browser refuses a cookie with any wrong attribute; it also deletes it."""
    made = make_certificate(tmp_path, ["127.0.0.1"])
    tls = build_context(Tls(str(made.certificate), str(made.key)))
    async with Console(tls=tls) as console:
        context = await chromium.new_context(base_url=console.url, ignore_https_errors=True)
        context.set_default_timeout(TIMEOUT_S * 1000)
        page = await context.new_page()
        await sign_in(page, TOKEN)
        await page.goto("/console/keys")
        await expect(page.get_by_role("heading", name="Keys")).to_be_visible()
        (cookie,) = await context.cookies()
        assert cookie["name"] == "__Host-gateway_session"
        assert (cookie["secure"], cookie["httpOnly"], cookie["path"]) == (True, True, "/")
        assert cookie["sameSite"] == "Strict"
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Admin token")).to_be_visible()
        assert await context.cookies() == []
        await context.close()


class Tossing(Listening):
    """Another server on the host, which sets cookies of the console's name for longer paths."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        cookies = [f"gateway_session=evil; Path={path}" for path in ("/console/keys", "/console/")]
        fields = "".join(f"Set-Cookie: {cookie}\r\n" for cookie in cookies)
        writer.write(f"HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n".encode())


async def test_a_cookie_of_another_port_locks_no_user_out(chromium: Browser) -> None:
    """The browser sends it before the console's, as its path is longer; the session still works."""
    async with Console() as console, Tossing() as other:
        context = await chromium.new_context(base_url=console.url)
        context.set_default_timeout(TIMEOUT_S * 1000)
        page = await context.new_page()
        await sign_in(page, TOKEN)
        await page.goto(f"http://127.0.0.1:{other.port}/")
        names = [cookie["name"] for cookie in await context.cookies()]
        assert names == ["gateway_session"] * 3
        await page.goto("/console/keys")
        await expect(page.get_by_role("heading", name="Keys")).to_be_visible()
        await context.close()
