"""The page of a watch, and its buttons."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from gateway.admin.console.webhook_parts import address_of
from tests.admin.console.test_pages import text_of
from tests.kit.console import Browser, Console
from tests.kit.console_webhooks import (
    claim,
    fill_webhooks,
    finish,
    integration,
    publish,
    watch,
    webhooks_of,
)


async def test_a_watch_says_how_it_does(hooked: Console, olga: Browser) -> None:
    """In words: what is wrong, since when, and when the next attempt is."""
    hooks = await fill_webhooks(hooked)
    pages = {name: text_of((await olga.get(hooks.watch(name))).text) for name in hooks.watches}
    assert "Its last attempt succeeded." in pages["good"]
    assert re.search(r"Last success [-\d]+ [:\d]+ UTC", pages["good"])
    failing = pages["failing"]
    then = r"[-\d]+ [:\d]+ UTC"
    assert re.search(rf"Failing since {then} \([^)]+\): 6 failed attempts in a row\.", failing)
    assert re.search(r"Next attempt [-\d]+ [:\d]+ UTC \(in [67] min\) ", failing)
    assert "Send now" in failing
    assert "Next attempt" not in pages["good"]
    assert re.search(r"Last failure .* UTC \(1 min ago\) no answer connection refused", failing)
    assert "Last success none is known" in failing
    why = "because it answered 410 Gone."
    disabled = rf"Disabled since {then} \([^)]+\), after 6 failed attempts since {then} ?, {why}"
    assert re.search(disabled, pages["disabled"])
    assert re.search(r"Last failure .* UTC \(1 min ago\) 410", pages["disabled"])
    assert "Its events wait until it is resumed." in pages["paused"]
    assert "Waiting 6" in pages["paused"]


async def test_a_new_watch_says_so(hooked: Console, olga: Browser) -> None:
    its = await integration(hooked)
    text = text_of((await olga.get(address_of(its.id, await watch(hooked, its)))).text)
    assert "Nothing was delivered to it yet." in text
    assert "No delivery is kept." in text


async def test_a_rate_is_told_in_words(hooked: Console, olga: Browser) -> None:
    """And what waits for it alone: no button sends that."""
    its = await integration(hooked)
    slow = address_of(its.id, await watch(hooked, its, rate="1/hour"))
    fast = address_of(its.id, await watch(hooked, its, rate="1200/minute"))
    for number in range(2):
        await publish(hooked, its, number=number)
    await claim(hooked, its)
    text = text_of((await olga.get(slow)).text)
    assert "Rate at most 1 attempt an hour, spread evenly" in text
    assert re.search(r"Next attempt [-\d]+ [:\d]+ UTC \(in [56]\d min\) ?, by its rate", text)
    assert "Send now" not in text
    text = text_of((await olga.get(fast)).text)
    assert "Rate at most 1,200 attempts a minute, spread evenly" in text
    other = text_of((await olga.get(address_of(its.id, await watch(hooked, its)))).text)
    assert "Rate none" in other


async def test_a_first_failure_opens_no_breaker(hooked: Console, olga: Browser) -> None:
    its = await integration(hooked)
    home = address_of(its.id, await watch(hooked, its))
    await publish(hooked, its)
    (claimed,) = await claim(hooked, its)
    await finish(hooked, its, claimed, 500, "busy")
    text = text_of((await olga.get(home)).text)
    assert "1 failed attempt in a row. Each delivery is tried again" in text


async def test_deliveries_are_shown_by_state(hooked: Console, olga: Browser) -> None:
    """A state that is none is all."""
    hooks = await fill_webhooks(hooked)
    home = hooks.watch("good")
    links = re.compile(rf'href="{home}/deliveries/').findall
    assert len(links((await olga.get(f"{home}?state=delivered")).text)) == 6
    assert len(links((await olga.get(f"{home}?state=nonsense")).text)) == 6
    none = (await olga.get(f"{home}?state=dead")).text
    assert links(none) == []
    assert "None of those that are kept is dead." in none


async def test_deliveries_are_filtered(hooked: Console, olga: Browser) -> None:
    """By type and time beside the state; the links of states and pages keep the filter."""
    its = await integration(hooked)
    home = address_of(its.id, await watch(hooked, its))
    for number in range(51):
        await publish(hooked, its, number=number)
    links = re.compile(rf'href="{home}/deliveries/').findall
    query = "type=build.*&from=2026-01-01&to=2100-01-01"
    answer = await olga.get(f"{home}?{query}")
    assert (answer.status, len(links(answer.text))) == (200, 50)
    kept = query.replace("*", "%2A").replace("&", "&amp;")
    assert f'href="{home}?state=queued&amp;{kept}#deliveries-head"' in answer.text
    assert 'name="type" value="build.*"' in answer.text
    found = re.search(r'href="([^"]+)#deliveries-head" rel="next"', answer.text)
    assert found is not None
    assert kept in found[1]
    assert len(links((await olga.get(found[1].replace("&amp;", "&"))).text)) == 1
    for none in ("type=other.*", "to=2026-01-01", "state=dead&type=build.finished"):
        text = (await olga.get(f"{home}?{none}")).text
        assert links(text) == []
        assert "None of those that are kept matches." in text
    assert '<input type="hidden" name="state" value="dead">' in text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("type=<script>", "Type: found &#39;&lt;script&gt;&#39;, expected a type such as"),
        (f"type={'a.' * 1_500}*", "Type: found &#39;a.a."),
        ("from=then", "From: found &#39;then&#39;, expected a time"),
        ("from=2026-01-02&to=2026-01-01", "To: found 2026-01-01T00:00:00Z, expected a time after"),
    ],
)
async def test_a_wrong_filter_lists_nothing(
    hooked: Console, olga: Browser, query: str, words: str
) -> None:
    """The page says what is wrong, at the filter."""
    hooks = await fill_webhooks(hooked)
    for home in (hooks.watch("good"), address_of(hooks.its.id)):
        answer = await olga.get(f"{home}?{query}")
        assert answer.status == 422
        assert words in answer.text
        assert "<script>" not in re.sub(r"<script[^>]* src=", "", answer.text)
        assert f"{home}/deliveries/" not in answer.text
        assert "is kept" not in text_of(answer.text)
        assert len(re.findall('id="filter-faults"', answer.text)) == 1


async def test_deliveries_have_pages(hooked: Console, olga: Browser) -> None:
    """Each is on one of them; the state is kept."""
    its = await integration(hooked)
    home = address_of(its.id, await watch(hooked, its))
    ids = {await publish(hooked, its, number=number) for number in range(51)}
    first = (await olga.get(f"{home}?state=queued")).text
    found = re.search(r'href="([^"]+)#deliveries-head" rel="next"', first)
    assert found is not None
    rest = (await olga.get(found[1].replace("&amp;", "&"))).text
    shown = [re.findall(rf"{home}/deliveries/(evt_\w+)", page) for page in (first, rest)]
    assert [len(each) for each in shown] == [50, 1]
    assert {*shown[0], *shown[1]} == ids
    assert 'aria-current="true">queued' in rest
    assert 'rel="next"' not in rest


async def test_a_watch_is_paused_and_resumed(hooked: Console, olga: Browser) -> None:
    hooks = await fill_webhooks(hooked)
    watches, its = webhooks_of(hooked).watches, hooks.its
    for name, turn, state in (
        ("good", "pause", "paused"),
        ("good", "resume", "active"),
        ("disabled", "resume", "active"),
    ):
        answer = await olga.post(f"{hooks.watch(name)}/{turn}", {})
        assert answer.path == f"{hooks.watch(name)}?done=watch-{turn}d"
        view = await watches.get(its.account, its.id, hooks.watches[name])
        assert view.health.state == state


async def test_removing_is_confirmed(hooked: Console, olga: Browser) -> None:
    """The page that asks says what is lost, and changes nothing."""
    hooks = await fill_webhooks(hooked)
    home = hooks.watch("paused")
    assert "6 deliveries now" in text_of((await olga.get(f"{home}/remove")).text)
    assert (await olga.get(home)).status == 200
    answer = await olga.post(f"{home}/remove", {})
    assert answer.path == f"{address_of(hooks.its.id)}?done=watch-removed"
    assert (await olga.get(home)).status == 404


async def test_a_time_is_replayed(hooked: Console, olga: Browser) -> None:
    """The page says how many are queued; what still waits is not queued once more."""
    hooks = await fill_webhooks(hooked)
    home = hooks.watch("good")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    span = {"from": "2026-01-01", "to": tomorrow}
    answer = await olga.post(f"{home}/replay", span)
    assert answer.path.startswith(f"{home}?replayed=6")
    assert "6 deliveries are queued." in text_of(answer.text)
    answer = await olga.post(f"{home}/replay", span)
    assert "Nothing was queued" in answer.text


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"from": "yesterday", "to": "2026-01-01"}, "from"),
        ({"from": "2026-01-02"}, "to"),
        ({"from": "2026-01-02", "to": "2026-01-01"}, "to"),
    ],
)
async def test_a_wrong_time_is_shown_at_its_field(
    hooked: Console, olga: Browser, fields: dict[str, str], place: str
) -> None:
    """On the page of the watch, whose links go on to work."""
    its = await integration(hooked)
    home = address_of(its.id, await watch(hooked, its))
    answer = await olga.post(f"{home}/replay", fields)
    assert answer.status == 422
    assert re.search(rf'id="e-{place}"[^>]*>\s*<p>', answer.text)
    assert f'value="{fields["from"]}"' in answer.text
    assert 'href="?' not in answer.text


async def test_a_disabled_watch_replays_nothing(hooked: Console, olga: Browser) -> None:
    hooks = await fill_webhooks(hooked)
    span = {"from": "2026-01-01", "to": "2100-01-01"}
    answer = await olga.post(f"{hooks.watch('disabled')}/replay", span)
    assert answer.status == 409
    assert "resume it" in answer.text


async def test_other_accounts_and_ids_are_not_found(hooked: Console, olga: Browser) -> None:
    its, other = await integration(hooked), await integration(hooked, account="other")
    made = await watch(hooked, its)
    for path in (address_of(other.id, made), address_of(its.id, "wat_1"), address_of("int_1")):
        assert (await olga.get(path)).status == 404
