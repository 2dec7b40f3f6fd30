"""The page of an event, the page of a delivery, and delivering it again."""

from __future__ import annotations

import re

from gateway.admin.console.webhook_parts import address_of
from gateway.domain.webhooks.deliveries import shard_of
from gateway.stores.webhooks.scripts import tag_of
from tests.admin.console.test_pages import text_of
from tests.kit.console import Browser, Console
from tests.kit.console_webhooks import fill_webhooks, webhooks_of
from tests.kit.redis_server import RedisServer


async def test_a_delivery_has_its_attempts_and_its_event(hooked: Console, olga: Browser) -> None:
    """Time, status, milliseconds, the beginning of the answer; and why it was given up."""
    hooks = await fill_webhooks(hooked)
    answer = await olga.get(hooks.delivery("disabled", -1))
    text = text_of(answer.text)
    assert "Reason it answered 410 Gone" in text
    assert re.search(r"[-\d]+ [:\d]+ UTC 410 183 &lt;script&gt;alert", text)
    assert "&#34;number&#34;: 5" in text
    assert "Deliver again" not in text
    assert "Its watch is disabled" in text
    none = text_of((await olga.get(hooks.delivery("failing"))).text)
    assert re.search(r"UTC no answer 183 connection refused", none)


async def test_what_others_wrote_is_shown_harmlessly(hooked: Console, olga: Browser) -> None:
    """Markup as text; characters that turn or end the text as escapes."""
    hooks = await fill_webhooks(hooked)
    event = f"{address_of(hooks.its.id)}/events/{hooks.events[-1]}"
    for path in (hooks.delivery("disabled", -1), event):
        page = (await olga.get(path)).text
        assert "<img src=x" not in page
        assert "<script>alert" not in page
        assert "\\u202e\\u0007" in page
        assert not any(char in page for char in "\u202e\x07")


async def test_an_event_has_its_deliveries(hooked: Console, olga: Browser) -> None:
    hooks = await fill_webhooks(hooked)
    page = await olga.get(f"{address_of(hooks.its.id)}/events/{hooks.events[0]}")
    text = text_of(page.text)
    for state in ("○ queued", "◐ waiting", "● delivered", "✕ dead"):
        assert state in text
    assert "Event build.finished" in text
    assert (await olga.get(f"{address_of(hooks.its.id)}/events/evt_1")).status == 404


async def test_a_delivery_is_sent_again(hooked: Console, olga: Browser) -> None:
    """Another delivery of the same event, whose page is shown next."""
    hooks = await fill_webhooks(hooked)
    old = hooks.delivery("good")
    answer = await olga.post(f"{old}/resend", {})
    assert answer.path.endswith("?done=resent")
    made = answer.path.partition("?")[0]
    assert made.startswith(old.rpartition(":")[0])
    assert made != old
    assert "Delivery ○ queued" in text_of(answer.text)
    its, watch = hooks.its.id, hooks.watches["good"]
    queued = await webhooks_of(hooked).deliveries.of_watch(None, its, watch, ("queued",))
    assert [address_of(its, watch, each.id) for each in queued] == [made]


async def test_a_disabled_watch_gets_nothing_again(hooked: Console, olga: Browser) -> None:
    hooks = await fill_webhooks(hooked)
    answer = await olga.post(f"{hooks.delivery('disabled')}/resend", {})
    assert answer.status == 409
    assert "resume it" in answer.text


async def test_a_delivery_whose_event_is_gone(
    redis_server: RedisServer, hooked: Console, olga: Browser
) -> None:
    """Its attempts are shown, and it cannot be sent again."""
    hooks = await fill_webhooks(hooked)
    path = hooks.delivery("good")
    event = path.rpartition("/")[2].partition(":")[0]
    with redis_server.client() as client:
        client.delete(f"{tag_of(shard_of(hooks.its.id))}event:{event}")
    page = await olga.get(path)
    assert "The event is not kept any more" in page.text
    assert "Deliver again" not in page.text
    assert (await olga.post(f"{path}/resend", {})).status == 404


async def test_no_form_works_without_its_secret(hooked: Console, olga: Browser) -> None:
    hooks = await fill_webhooks(hooked)
    paths = [
        *(f"{address_of(hooks.its.id)}/{name}" for name in ("pause", "resume", "address")),
        *(f"{address_of(hooks.its.id)}/{name}" for name in ("secret", "remove", "watches/new")),
        *(f"{hooks.watch('good')}/{name}" for name in ("edit", "rotate", "pause", "resume")),
        *(f"{hooks.watch('good')}/{name}" for name in ("remove", "replay")),
        *("/console/integrations/new", f"{hooks.delivery('good')}/resend"),
    ]
    for path in paths:
        assert (await olga.post(path, {"csrf": "another"})).status == 403, path
