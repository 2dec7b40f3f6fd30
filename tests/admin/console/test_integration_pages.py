"""The list of integrations, the page of one, and its buttons."""

from __future__ import annotations

import re

import pytest

from tests.admin.console.test_pages import text_of
from tests.kit.console import ANNA, Browser, Console
from tests.kit.console_webhooks import (
    claim,
    fill_webhooks,
    finish,
    integration,
    publish,
    watch,
    webhooks_of,
)

LIST = "/console/integrations"


def section(page: str, part: str) -> str:
    """Of the page of an integration: that of events, or that of dead letters."""
    events, _, dead = page.partition('id="dead-head"')
    return events if part == "events" else dead


async def test_integrations_are_listed(hooked: Console, olga: Browser) -> None:
    """With account, kind, status in words, and capture address, if there is one."""
    its = await integration(hooked)
    own = await integration(hooked, kind="operator", name="Notices", account="operations")
    await webhooks_of(hooked).integrations.pause(ANNA, own.id)
    text = text_of((await olga.get(LIST)).text)
    assert f"Our code {its.id} ● active github acme /hooks/{its.capture[:8]}..." in text
    assert f"Notices {own.id} ○ paused operator operations none" in text


async def test_couriers_are_shown(hooked: Console, olga: Browser) -> None:
    """As a readiness probe is told; nothing where they run elsewhere."""
    assert "Couriers" not in text_of((await olga.get(LIST)).text)
    hooked.checks["couriers"] = "1 of 2; another webhook key"
    text = text_of((await olga.get(LIST)).text)
    assert "Couriers of this gateway: 1 of 2; another webhook key" in text


@pytest.mark.parametrize("text", ["CODE", "acme", "github", "int_"])
async def test_the_list_is_searched(hooked: Console, olga: Browser, text: str) -> None:
    await integration(hooked)
    assert "Our code" in (await olga.get(f"{LIST}?text={text}")).text
    assert "No integration matches" in (await olga.get(f"{LIST}?text={text}-else")).text


async def test_the_list_has_pages(hooked: Console, olga: Browser) -> None:
    """Each integration is on one of them; the search is kept."""
    ids = {(await integration(hooked, name=f"Number {number}")).id for number in range(51)}
    await integration(hooked, name="Another")
    path, seen = f"{LIST}?text=number", []
    for _ in range(2):
        answer = await olga.get(path)
        seen += re.findall(r'<code class="id">(\w+)</code>', answer.text)
        following = re.search(r'href="([^"]+)" rel="next"', answer.text)
        path = following[1].replace("&amp;", "&") if following else ""
    assert path == ""
    assert sorted(seen) == sorted(ids)


async def test_an_integration_with_its_watches_events_and_dead_letters(
    hooked: Console, olga: Browser
) -> None:
    """Each event has its deliveries by state; each dead letter its last answer."""
    hooks = await fill_webhooks(hooked)
    answer = await olga.get(f"{LIST}/{hooks.its.id}")
    text = text_of(answer.text)
    assert f"/hooks/{hooks.its.capture}" in text
    assert "https://hooks.example.com/builds ● active build.* 0" in text
    assert "✕ disabled build.* 0" in text
    assert "○ paused build.* 6" in text
    assert text.count("1 ○ queued 1 ◐ waiting 1 ● delivered 1 ✕ dead") == 6
    assert text.count("✕ dead it answered 410 Gone gone.example.com") == 6
    assert f'href="{hooks.watch("disabled")}">gone.example.com<' in answer.text
    assert "<img src=x" not in answer.text
    assert hooks.its.sealed not in answer.text


async def test_events_and_dead_letters_have_pages(hooked: Console, olga: Browser) -> None:
    """Each event is on one page, and the last page has no link to another."""
    its = await integration(hooked)
    await watch(hooked, its)
    ids = [await publish(hooked, its, number=number) for number in range(21)]
    while claimed := await claim(hooked, its):
        for each in claimed:
            await finish(hooked, its, each, 410)
    home = f"{LIST}/{its.id}"
    for name, part in (("before", "events"), ("dead", "deliveries")):
        first = (await olga.get(home)).text
        found = re.search(rf'href="({home}\?{name}=\d+)#\w+-head" rel="next"', first)
        assert found is not None
        rest = (await olga.get(found[1])).text
        shown = [
            set(re.findall(rf"/{part}/(evt_\w+)", section(page, part))) for page in (first, rest)
        ]
        assert [len(each) for each in shown] == [20, 1]
        assert shown[0] | shown[1] == set(ids)
        assert f"?{name}=" not in rest


async def test_events_and_dead_letters_are_filtered(hooked: Console, olga: Browser) -> None:
    """Both by one form, whose values the links of both keep."""
    its = await integration(hooked)
    await watch(hooked, its)
    for number in range(21):
        await publish(hooked, its, number=number)
    while claimed := await claim(hooked, its):
        for each in claimed:
            await finish(hooked, its, each, 410)
    home = f"{LIST}/{its.id}"
    query = "type=build.%2A&from=2026-01-01"
    page = (await olga.get(f"{home}?{query}")).text
    assert "its time is when they were given up" in text_of(page)
    for name, part in (("before", "events"), ("dead", "deliveries")):
        address = f"{home}?{query}&{name}=".replace("&", "&amp;")
        found = re.search(rf'href="({re.escape(address)}\d+)#\w+-head" rel="next"', page)
        assert found is not None
        rest = (await olga.get(found[1].replace("&amp;", "&"))).text
        assert len(set(re.findall(rf"/{part}/(evt_\w+)", section(rest, part)))) == 1
    for none in ("type=other.*", "to=2026-01-01"):
        text = text_of((await olga.get(f"{home}?{none}")).text)
        assert "No event matches." in text
        assert "None of those that were given up matches." in text


async def test_an_integration_is_paused_and_resumed(hooked: Console, olga: Browser) -> None:
    its = await integration(hooked)
    for turn, is_paused in (("pause", True), ("resume", False)):
        answer = await olga.post(f"{LIST}/{its.id}/{turn}", {})
        assert answer.path == f"{LIST}/{its.id}?done=integration-{turn}d"
        assert (await webhooks_of(hooked).integrations.get(its.id)).is_paused is is_paused
        assert ("its address answers 404" in answer.text) is is_paused


async def test_a_new_address_is_confirmed(hooked: Console, olga: Browser) -> None:
    """The page that asks changes nothing."""
    its = await integration(hooked)
    asked = await olga.get(f"{LIST}/{its.id}/address")
    assert its.capture in asked.text
    assert (await webhooks_of(hooked).integrations.get(its.id)).capture == its.capture
    answer = await olga.post(f"{LIST}/{its.id}/address", {})
    assert answer.path.endswith("?done=address-rotated")
    now = await webhooks_of(hooked).integrations.get(its.id)
    assert now.capture != its.capture
    assert f"/hooks/{now.capture}" in answer.text


async def test_removing_needs_the_name(hooked: Console, olga: Browser) -> None:
    """And, where there are watches, that they go as well."""
    its = await integration(hooked)
    await watch(hooked, its)
    path = f"{LIST}/{its.id}/remove"
    for fields, place in (({"name": "our code", "watches": "yes"}, "name"), ({}, "name")):
        answer = await olga.post(path, fields)
        assert answer.status == 422
        assert re.search(rf'id="e-{place}"[^>]*>\s*<p>', answer.text)
    answer = await olga.post(path, {"name": its.name})
    assert re.search(r'id="e-watches"[^>]*>\s*<p>', answer.text)
    assert await webhooks_of(hooked).integrations.list() == [its]
    answer = await olga.post(path, {"name": its.name, "watches": "yes"})
    assert answer.path == f"{LIST}?done=integration-removed"
    assert await webhooks_of(hooked).integrations.list() == []
    assert (await olga.get(f"{LIST}/{its.id}")).status == 404
    log = text_of((await olga.get("/console/audit?action=integration")).text)
    assert "integration.remove" in log
    assert its.capture not in log
