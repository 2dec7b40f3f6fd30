"""A real browser: the machine's chromium, headless, controlled by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.kit.needs import needs
from tests.kit.wire import TIMEOUT_S

needs_chromium = needs("chromium")

#: It runs as root in containers, and needs no network.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@asynccontextmanager
async def open_chromium(*arguments: str) -> AsyncIterator[Browser]:
    """A new browser, closed at the end. arguments: further ones of its command line"""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=[*_ARGUMENTS, *arguments]
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_page(
    browser: Browser, base: str, *, scheme: str = "light", width: int = 1280
) -> AsyncIterator[tuple[Page, list[str]]]:
    """A page in a new context, and a list of its errors and warnings.

    scheme: "light" or "dark"; base: the base of its addresses
    """
    context: BrowserContext = await browser.new_context(
        base_url=base,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
    )
    context.set_default_timeout(TIMEOUT_S * 1000)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        # The browser, not the page, complains about an answer of 422.
        lambda message: (
            complaints.append(message.text)
            if message.type in {"error", "warning"} and "status of 4" not in message.text
            else None
        ),
    )
    try:
        yield page, complaints
    finally:
        await context.close()


async def sign_in(page: Page, token: str, name: str = "anna") -> None:
    """Sign in, and wait for the next page."""
    await page.goto("/console/sign-in")
    await page.get_by_label("Your name").fill(name)
    await page.get_by_label("Admin token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(lambda url: "/sign-in" not in url)
