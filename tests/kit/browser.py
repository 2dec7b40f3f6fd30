"""A real browser: the machine's own chromium, without a window, led by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.kit.needs import needs
from tests.kit.wire import PATIENCE_S

needs_chromium = needs("chromium")

#: It runs as root in containers, and has nothing to look for in the network.
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
async def open_chromium() -> AsyncIterator[Browser]:
    """A browser of its own, closed at the end."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=_ARGUMENTS
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_page(
    browser: Browser, base: str, *, scheme: str = "light", width: int = 1280
) -> AsyncIterator[tuple[Page, list[str]]]:
    """A page that knows no other, and a list in which its complaints appear.

    scheme: "light" or "dark"; base: what its addresses are relative to
    """
    context: BrowserContext = await browser.new_context(
        base_url=base,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_S * 1000)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        # A page that is answered with 422 is a complaint of the browser's, not of the page's.
        lambda said: (
            complaints.append(said.text)
            if said.type in {"error", "warning"} and "status of 4" not in said.text
            else None
        ),
    )
    try:
        yield page, complaints
    finally:
        await context.close()


async def sign_in(page: Page, token: str, name: str = "anna") -> None:
    """From the sign-in page to the overview, or wherever it leads."""
    await page.goto("/console/sign-in")
    await page.get_by_label("Your name").fill(name)
    await page.get_by_label("Admin token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(lambda url: "/sign-in" not in url)
