"""Writes screenshots of the main pages: `python -m tests.browser.take_screenshots FOLDER`.

They show a console after a month of use, at desktop width, in light and dark; those of the
README are in `tests/browser/screenshots`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.kit.browser import open_chromium, open_page, sign_in
from tests.kit.console import TOKEN, Console, fill

HERE = Path(__file__).parent / "screenshots"
#: File name -> address, the name of the key that it is about, if any, and the colour scheme.
PICTURES = {
    "overview": ("/console", "light"),
    "keys": ("/console/keys", "light"),
    "key-dark": ("/console/keys/{}", "dark"),
    "policies": ("/console/policies", "light"),
}


async def write(folder: Path) -> None:
    """One PNG per page. The policies' folder is shown as named here."""
    async with Console(policies=Path("policies")) as console, open_chromium() as browser:
        key = (await fill(console))["Acme nightly import"]
        for name, (address, scheme) in PICTURES.items():
            async with open_page(browser, console.url, scheme=scheme, width=1100) as (page, _):
                await sign_in(page, TOKEN)
                await page.goto(address.format(key.id))
                await page.screenshot(path=folder / f"{name}.png")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(write(target))
