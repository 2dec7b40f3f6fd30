"""Every page: no violation of axe's rules, not wider than its screen, no error of the browser."""

from __future__ import annotations

import itertools

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page

from gateway.admin.console.webhook_parts import address_of
from tests.browser.conftest import Filled
from tests.kit.browser import needs_chromium, open_page, sign_in
from tests.kit.console import TOKEN

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_chromium]

#: By the name of the key that the page is about, if any.
PAGES = {
    "/console": "",
    "/console?window=30d": "",
    "/console/keys": "",
    "/console/keys?text=nothing": "",
    "/console/keys/new": "",
    "/console/keys/{}": "Acme nightly import",
    "/console/keys/{}?done=saved": "Old crawler",
    "/console/keys/{}/edit": "Acme nightly import",
    "/console/keys/{}/rotate": "Acme storefront",
    "/console/keys/{}/revoke": "Acme storefront",
    "/console/accounts": "",
    "/console/accounts/acme": "",
    "/console/accounts/acme/delete": "",
    "/console/accounts/nobody-yet": "",
    "/console/policies": "",
    "/console/policies/{policy}": "",
    "/console/mcp": "",
    "/console/mcp?window=1h": "",
    "/console/integrations": "",
    "/console/integrations?text=nothing": "",
    "/console/integrations/new": "",
    "{its}": "",
    "{its}?type=build.*&from=2026-01-01": "",
    "{its}?from=2100-01-01": "",
    "{its}/edit": "",
    "{its}/address": "",
    "{its}/secret": "",
    "{its}/remove": "",
    "{its}/watches/new": "",
    "{its}/events/{event}": "",
    "{good}": "",
    "{failing}": "",
    "{failing}?state=waiting": "",
    "{disabled}": "",
    "{good}/edit": "",
    "{good}/rotate": "",
    "{failing}/remove": "",
    "{delivery}": "",
    "/console/warnings": "",
    "/console/audit": "",
    "/console/audit?verify=now": "",
    "/console/nothing": "",
}


def address(filled: Filled, path: str, name: str) -> str:
    """The path of a page, about the key with this name, the loaded policy, or webhooks."""
    key_id, hooks = filled.keys[name].id if name else "", filled.hooks
    return path.format(
        key_id,
        policy=filled.console.loaded.policy.hash,
        its=address_of(hooks.its.id),
        event=hooks.events[-1],
        delivery=hooks.delivery("disabled", -1),
        **{each: hooks.watch(each) for each in hooks.watches},
    )


#: The rules that depend on how a page is drawn: on its colours and width.
DRAWN = ["color-contrast", "target-size", "scrollable-region-focusable", "link-in-text-block"]


async def check(page: Page) -> None:
    """Check every rule in light at desktop width, and in dark on a small screen those of DRAWN.

    No page scrolls sideways; only tables and charts do.
    """
    for scheme, width, rules in (("light", 1280, None), ("dark", 360, DRAWN)):
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.set_viewport_size({"width": width, "height": 900})
        options: dict[str, object] = {"resultTypes": ["violations"]}
        found = await Axe().run(page, options=options | ({"runOnly": rules} if rules else {}))
        where = f"{page.url}, {scheme}, {width} px"
        assert found.violations_count == 0, f"{where}: {found.generate_report()}"
        over = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert over <= 0, f"{where}: {over} px too wide"


async def test_the_busiest_keys_fit_a_phone(chromium: Browser, filled: Filled) -> None:
    """The last column, the number of requests, is visible without scrolling."""
    async with open_page(chromium, filled.console.url, width=390) as (page, _):
        await sign_in(page, TOKEN)
        table = page.get_by_role("region", name="Busiest keys, as a table")
        over = await table.evaluate("table => table.scrollWidth - table.clientWidth")
        assert over <= 0, f"{over} px too wide"


async def test_every_page_is_sound(chromium: Browser, filled: Filled) -> None:
    """The sign-in, and every page with content."""
    async with open_page(chromium, filled.console.url) as (page, messages):
        await page.goto("/console/sign-in")
        await check(page)
        await sign_in(page, TOKEN)
        for path, name in PAGES.items():
            await page.goto(address(filled, path, name))
            # Collapsed sections are checked as well, except for the tables of charts.
            await page.evaluate(
                "document.querySelectorAll('form details, td details, details:has(pre)')"
                ".forEach(d => d.open = true)"
            )
            await check(page)
        assert messages == []


async def test_answers_to_forms_are_sound(chromium: Browser, filled: Filled) -> None:
    """Faults at their fields, a new key, the dialog on leaving it, an explanation."""
    async with open_page(chromium, filled.console.url) as (page, messages):
        await sign_in(page, TOKEN)
        await page.goto("/console/keys/new")
        await page.get_by_label("Name").fill("Shown " + "and long " * 9)
        await page.get_by_label("IP ranges").fill("10.0.0.1/8")
        await page.get_by_label("Expires").fill("yesterday")
        await page.get_by_role("button", name="Create the key").click()
        await page.get_by_role("alert").wait_for()
        await check(page)
        await page.get_by_label("IP ranges").fill("")
        await page.get_by_label("Expires").fill("")
        await page.get_by_label("Plan", exact=True).select_option("free")
        await page.get_by_role("button", name="Create the key").click()
        await page.get_by_role("heading", name="Key created").wait_for()
        await check(page)
        await page.get_by_role("link", name="Done").click()
        await page.get_by_role("dialog").wait_for()
        await check(page)
        await page.get_by_role("dialog").get_by_role("link").click()
        await page.get_by_role("heading", name="Limits now").wait_for()
        await page.goto(f"/console/policies?key={filled.keys['Acme nightly import'].id}")
        await page.get_by_label("Path").fill("/api/search/x")
        await page.get_by_role("button", name="Explain").click()
        await page.get_by_role("heading", name="Refused").wait_for()
        await check(page)
        assert messages == []


async def test_answers_to_forms_of_webhooks_are_sound(chromium: Browser, filled: Filled) -> None:
    """Faults at their fields; a new secret, the dialog on leaving it."""
    async with open_page(chromium, filled.console.url) as (page, messages):
        await sign_in(page, TOKEN)
        await page.goto("/console/integrations/new")
        await page.get_by_label("Kind").select_option("github")
        await page.get_by_label("Account", exact=True).fill("acme")
        await page.get_by_label("Name").fill("Shown once")
        await page.get_by_label("Use the one that I type").check()
        await page.get_by_role("button", name="Create the integration").click()
        await page.get_by_role("alert").wait_for()
        await check(page)
        await page.get_by_label("Make one").check()
        await page.get_by_role("button", name="Create the integration").click()
        await page.get_by_role("heading", name="Integration created").wait_for()
        await check(page)
        await page.get_by_role("link", name="Done").click()
        await page.get_by_role("dialog").get_by_role("link").click()
        await page.get_by_role("heading", name="Dead letters").wait_for()
        await page.goto(filled.hooks.watch("good"))
        deliveries = page.get_by_role("form", name="Deliveries")
        await deliveries.get_by_label("Type").fill("build*")
        await deliveries.get_by_label("From").fill("yesterday")
        await deliveries.get_by_role("button", name="Filter").click()
        await page.get_by_role("alert").wait_for()
        await check(page)
        await page.goto(filled.hooks.watch("good"))
        replay = page.get_by_role("region", name="Replay")
        await replay.get_by_label("From").fill("yesterday")
        await replay.get_by_label("To, not included").fill("2026-01-01")
        await replay.get_by_role("button", name="Replay").click()
        await page.get_by_role("alert").wait_for()
        await check(page)
        assert messages == []


async def test_every_page_has_one_heading_above_all(chromium: Browser, filled: Filled) -> None:
    """From a single h1, heading levels increase by one at most; each page has its own title."""
    async with open_page(chromium, filled.console.url) as (page, _):
        await sign_in(page, TOKEN)
        titles = set()
        for path, name in PAGES.items():
            await page.goto(address(filled, path, name))
            levels = await page.evaluate(
                "[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])"
            )
            assert levels[0] == 1
            assert levels.count(1) == 1
            assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
            titles.add(await page.title())
        assert len(titles) >= 10
