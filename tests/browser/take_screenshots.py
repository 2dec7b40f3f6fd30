"""Writes screenshots of the main pages: `python -m tests.browser.take_screenshots FOLDER`.

They show a console after a month of use, at desktop width, in light and dark; those of the
README are in `tests/browser/screenshots`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway.admin.console.webhook_parts import address_of
from tests.kit.browser import open_chromium, open_page, sign_in
from tests.kit.console import TOKEN, Console, fill
from tests.kit.console_webhooks import fill_webhooks
from tests.kit.redis_server import RedisServer

HERE = Path(__file__).parent / "screenshots"
#: File name -> address, of a key, an event or a watch of webhooks in it, and the colour scheme.
PICTURES = {
    "overview": ("/console", "light"),
    "keys": ("/console/keys", "light"),
    "key-dark": ("/console/keys/{key}", "dark"),
    "policies": ("/console/policies", "light"),
    "integrations": ("/console/integrations", "light"),
    "integration": ("{its}", "light"),
    "watch": ("{failing}", "light"),
    "watch-disabled-dark": ("{disabled}", "dark"),
    "event": ("{its}/events/{event}", "light"),
    "delivery": ("{delivery}", "light"),
}
#: Of which all is shown, and not what fits a screen.
_WHOLE = {"integration", "watch", "watch-disabled-dark", "event", "delivery"}


async def write(folder: Path) -> None:
    """One PNG per page. The policies' folder is shown as named here."""
    store = RedisServer().start()
    try:
        async with (
            Console(policies=Path("policies"), webhooks_at=store.url) as console,
            open_chromium() as browser,
        ):
            key = (await fill(console))["Acme nightly import"]
            hooks = await fill_webhooks(console)
            places = {
                **{name: hooks.watch(name) for name in hooks.watches},
                "key": key.id,
                "its": address_of(hooks.its.id),
                "event": hooks.events[-2],
                "delivery": hooks.delivery("failing"),
            }
            for name, (address, scheme) in PICTURES.items():
                async with open_page(browser, console.url, scheme=scheme, width=1100) as (page, _):
                    await sign_in(page, TOKEN)
                    await page.goto(address.format(**places))
                    await page.screenshot(path=folder / f"{name}.png", full_page=name in _WHOLE)
    finally:
        store.stop()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(write(target))
