"""Typical work in the console of a running gateway, in a real browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import Served
from tests.kit.browser import needs_chromium, open_page, sign_in
from tests.kit.eventually import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_chromium]


@pytest_asyncio.fixture(loop_scope="session")
async def page(chromium: Browser, served: Served) -> AsyncIterator[Page]:
    """A browser that is signed in; fails in the end if a page has logged an error."""
    async with open_page(chromium, served.url) as (page, complaints):
        await sign_in(page, served.token)
        yield page
        assert complaints == []


async def made_key(page: Page) -> str:
    """The new key, read from the page, which is then left by its "Done" link."""
    key = await page.get_by_label("The key of").input_value()
    await page.get_by_role("link", name="Done").click()
    await page.get_by_role("dialog").get_by_role("link", name="I have stored it").click()
    await expect(page.get_by_role("heading", name="Limits now")).to_be_visible()
    return key


async def answers(served: Served, key: str, status: int, code: str = "") -> None:
    """Wait until the gateway answers the key's requests with this status and code."""

    async def holds() -> bool:
        got = await served.gateway.fetch("/v1/x", key=key)
        return got.status == status and code in got.body.decode()

    await eventually(holds, f"{status} {code}")


async def test_a_keys_whole_life(page: Page, served: Served) -> None:
    """Create, use, see the usage, narrow, rotate, suspend, resume, revoke, explain, search."""
    await page.get_by_role("link", name="Keys", exact=True).click()
    await page.get_by_role("link", name="Create a key").click()
    await page.get_by_label("Name").fill("Storefront")
    await page.get_by_label("Plan", exact=True).select_option("pro")
    await page.get_by_role("button", name="Create the key").click()
    await expect(page.get_by_role("heading", name="Key created")).to_be_visible()
    key = await made_key(page)
    home = page.url

    for _ in range(3):
        assert (await served.gateway.fetch("/v1/x", key=key)).status == 200
    await shows(page, home, "Admitted 3")
    await expect(page.get_by_role("row", name=re.compile("^plan"))).to_contain_text("597")
    await page.get_by_role("button", name="Reset plan").click()
    await expect(page.locator(".done")).to_contain_text("limit is reset")
    await expect(page.get_by_role("row", name=re.compile("^plan.* 600 -"))).to_be_visible()

    await page.get_by_role("link", name="Edit").click()
    await page.get_by_label("IP ranges").fill("192.0.2.0/24")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".done")).to_contain_text("saved")
    await answers(served, key, 403, "IP_NOT_ALLOWED")
    await page.get_by_role("link", name="What would happen").click()
    await page.get_by_label("Path").fill("/v1/x")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_role("heading", name="Refused: 403 IP_NOT_ALLOWED")).to_be_visible()
    await page.goto(f"{home}/edit")
    await page.get_by_label("IP ranges").fill("")
    await page.get_by_role("button", name="Save").click()
    await answers(served, key, 200)

    await page.get_by_role("link", name="Rotate").click()
    await page.get_by_label("1 hour").check()
    await page.get_by_role("button", name="Rotate").click()
    await expect(page.get_by_text("stays valid until")).to_be_visible()
    successor = await made_key(page)
    assert successor != key
    await answers(served, key, 200)
    await answers(served, successor, 200)

    await page.get_by_role("button", name="Suspend").click()
    await answers(served, successor, 401, "suspended")
    await page.get_by_role("button", name="Resume").click()
    await answers(served, successor, 200)

    await page.get_by_role("link", name="Revoke").click()
    await page.get_by_label("Type the key's name").fill("Storefront")
    await page.get_by_role("button", name="Revoke permanently").click()
    await expect(page.locator("h1 .status")).to_contain_text("revoked")
    await answers(served, successor, 401, "revoked")

    await page.get_by_role("link", name="All entries of this key").click()
    for action in ("key.revoke", "key.resume", "key.suspend"):
        await expect(page.get_by_role("cell", name=action)).to_be_visible()
    await page.get_by_role("link", name="Verify the chain").click()
    await expect(page.get_by_role("status").filter(has_text="verified")).to_be_visible()
    await page.get_by_role("link", name="Overview").click()
    await expect(page.get_by_role("row", name=re.compile("^Storefront")).first).to_be_visible()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


async def shows(page: Page, address: str, words: str) -> None:
    """Wait until the page shows these words, as usage is written with a delay."""

    async def holds() -> bool:
        await page.goto(address)
        text = re.sub(r"\s+", " ", await page.locator("main").inner_text())
        return words in text

    await eventually(holds, f"{address} shows {words}")


async def test_by_keyboard_alone(page: Page) -> None:
    """A key is created, copied and left by keyboard; every element reached shows its focus."""
    await page.goto("/console/keys/new")
    await page.keyboard.press("Tab")
    assert await focused(page) == "Skip to the content"
    await page.keyboard.press("Enter")
    await reach(page, "name")
    await page.keyboard.type("By hand")
    await reach(page, "plan")
    await page.keyboard.press("f")
    await reach(page, "ip_ranges")
    await page.keyboard.type("10.0.0.1/8")
    await expect(page.locator("#e-ip_ranges")).to_contain_text("expected an address")
    await page.keyboard.press("Control+a")
    await page.keyboard.type("10.0.0.0/8")
    await expect(page.locator("#e-ip_ranges")).to_have_text("")
    await reach(page, "Create the key")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Key created")).to_be_visible()
    await reach(page, "Copy")
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-copied]")).to_have_text(re.compile("Copied|selected"))
    await reach(page, "Done")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await focused(page) == "Show it again"
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await reach(page, "Done")
    await page.keyboard.press("Enter")
    await reach(page, "I have stored it")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="By hand")).to_be_visible()


async def focused(page: Page) -> str:
    """The focused element's name in a form, or its text. Fails if the focus is not visible."""
    name, style = await page.evaluate(
        """() => {
            const on = document.activeElement;
            // Behind the last thing of the page, and before its first, is the browser's own.
            if (on === document.body) return ["", "not ours"];
            return [on.name || on.innerText || "", getComputedStyle(on).outlineStyle];
        }"""
    )
    assert style != "none", f"{name} does not show its focus"
    return str(name).strip()


async def reach(page: Page, name: str) -> None:
    """Press Tab until this has the focus."""
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await focused(page) == name:
            return
    raise AssertionError(f"{name} is not reached by Tab")


async def test_a_key_is_not_left_by_mistake(page: Page) -> None:
    """A reload or a link asks first; afterwards the key is nowhere, not even by "back"."""
    await page.goto("/console/keys/new")
    await page.get_by_label("Name").fill("Once")
    await page.get_by_label("Plan", exact=True).select_option("free")
    await page.get_by_role("button", name="Create the key").click()
    field = page.get_by_label("The key of")
    key = await field.input_value()
    assert "gwk_" not in page.url
    await page.get_by_role("link", name="Audit").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Show it again").click()
    assert await field.input_value() == key

    asked: list[str] = []

    async def leave(question: object) -> None:
        asked.append(question.type)  # type: ignore[attr-defined]
        await question.accept()  # type: ignore[attr-defined]

    page.on("dialog", leave)
    await page.reload()
    assert asked == ["beforeunload"]
    await expect(page.get_by_role("heading", name="Limits now")).to_be_visible()
    assert key not in await page.content()
    await page.goto("/console/audit")
    await page.go_back()
    assert key not in await page.content()
    kept = await page.evaluate("JSON.stringify([localStorage, sessionStorage, history.state])")
    assert "gwk_" not in kept


async def test_a_whole_key_stays_out_of_addresses(page: Page, served: Served) -> None:
    """A search for a whole key sends only its id."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.goto("/console/keys")
    secret = "gwk_production_7h3k9m2p4q6r_" + "a" * 38
    await page.get_by_label("Search").fill(secret)
    await page.get_by_role("button", name="Filter").click()
    await page.wait_for_url(re.compile("text=7h3k9m2p4q6r"))
    assert not any("gwk_" in url for url in asked)


async def test_without_scripts_everything_still_works(chromium: Browser, served: Served) -> None:
    """Without scripts, a key is created, shown and left in the same way."""
    context = await chromium.new_context(base_url=served.url, java_script_enabled=False)
    page = await context.new_page()
    await sign_in(page, served.token)
    await page.goto("/console/keys/new")
    await page.get_by_label("Name").fill("Plain")
    await page.get_by_label("Plan", exact=True).select_option("free")
    await page.get_by_role("button", name="Create the key").click()
    assert (await page.get_by_label("The key of").input_value()).startswith("gwk_production_")
    await expect(page.get_by_role("button", name="Copy")).to_be_hidden()
    await page.get_by_role("link", name="Done").click()
    await expect(page.get_by_role("heading", name="Plain")).to_be_visible()
    await context.close()
