"""Webhooks of a console: integrations, watches in each state, and deliveries, without a courier."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.admin.console.webhook_parts import address_of
from gateway.domain.webhooks.deliveries import Attempt, Claimed
from gateway.domain.webhooks.events import Integration
from gateway.manage.webhooks import Webhooks
from tests.kit.console import ANNA, Console, now_us

#: What an answer or an event may have: markup, a long word, and characters that turn text around.
HOSTILE = """<script>alert(1)</script>'"><img src=x onerror=alert(1)>"""
_LONG = "a-path-that-no-table-cell-can-break-" * 20


@dataclass
class Hooks:
    """What there is. watches: ids by name; events: the ids, the oldest first"""

    its: Integration
    watches: dict[str, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    claimed: list[Claimed] = field(default_factory=list)

    def watch(self, name: str) -> str:
        """The address of the page of a watch."""
        return address_of(self.its.id, self.watches[name])

    def delivery(self, name: str, number: int = 0) -> str:
        """The address of the page of an attempted delivery to this watch."""
        watch = self.watches[name]
        found = [each.id for each in self.claimed if each.id.split(":")[1] == watch]
        return address_of(self.its.id, watch, found[number])


def webhooks_of(console: Console) -> Webhooks:
    assert console.management.webhooks is not None
    return console.management.webhooks


async def integration(console: Console, **given: object) -> Integration:
    """An integration, as users make it."""
    fields = {"kind": "github", "account": "acme", "name": "Our code", **given}
    its, _ = await webhooks_of(console).integrations.create(ANNA, fields)
    return its


async def watch(console: Console, its: Integration, **given: object) -> str:
    """The id of a watch, as users make it."""
    fields = {"url": "https://hooks.example.com/", "events": ["build.*"], **given}
    view, _ = await webhooks_of(console).watches.create(ANNA, its.account, its.id, fields)
    return view.watch.id


async def publish(console: Console, its: Integration, **data: object) -> str:
    """The id of an event."""
    given = {"type": "build.finished", "data": data}
    return (await webhooks_of(console).integrations.publish(its.id, given)).event


async def claim(console: Console, its: Integration) -> list[Claimed]:
    """The deliveries that are due, as a courier gets them."""
    found = await console.webhook_stores.queue_of(its.id).claim("token", 64, 64)
    return list(found.deliveries)


async def finish(
    console: Console, its: Integration, claimed: Claimed, status: int, found: str = ""
) -> None:
    """Record an attempt: 2xx delivers, 410 gives it up, all else is tried again."""
    queue = console.webhook_stores.queue_of(its.id)
    attempt = Attempt(now_us() - 90_000_000, 183, status, found)
    if 200 <= status < 300:
        await queue.finish(claimed, "delivered", attempt)
    elif status == 410:
        await queue.finish(claimed, "dead", attempt, reason="gone")
    else:
        await queue.finish(claimed, "waiting", attempt, wait_s=300.0, probe_s=420.0)


async def fill_webhooks(console: Console) -> Hooks:
    """Watches that succeed, fail, are disabled and paused; deliveries in most states."""
    hooks = Hooks(await integration(console))
    its = hooks.its
    await integration(console, kind="operator", name="Notices", account="operations")
    quiet = await integration(console, kind="azure-devops", name="Old pipelines", account="globex")
    await webhooks_of(console).integrations.pause(ANNA, quiet.id)
    urls = {
        "good": "https://hooks.example.com/builds",
        "failing": f"https://broken.example.com/{_LONG}",
        "disabled": "https://gone.example.com/hook?token=abc",
        "paused": "https://later.example.com/",
    }
    for name, url in urls.items():
        hooks.watches[name] = await watch(console, its, url=url)
    await webhooks_of(console).watches.pause(ANNA, its.account, its.id, hooks.watches["paused"])
    for number in range(6):
        note = {"text": f"{HOSTILE}\u202e\x07", "more": [_LONG]} if number == 5 else {}
        hooks.events.append(await publish(console, its, number=number, **note))
    answers = {"good": (204, ""), "failing": (0, "connection refused"), "disabled": (410, HOSTILE)}
    by_id = {hooks.watches[name]: answer for name, answer in answers.items()}
    while claimed := await claim(console, its):
        for each in claimed:
            hooks.claimed.append(each)
            await finish(console, its, each, *by_id[each.id.split(":")[1]])
    queue = console.webhook_stores.queue_of(its.id)
    await queue.disable(hooks.watches["disabled"], its.id, "it answered 410 Gone")
    return hooks
