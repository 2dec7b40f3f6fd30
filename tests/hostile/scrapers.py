"""Scrapes a port of 127.0.0.1 over a number of connections, each time new ones, until killed.

python -m tests.hostile.scrapers PORT CONNECTIONS
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def scrape(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST)
            with contextlib.suppress(OSError):
                await reader.read(1)
            writer.close()


async def main(port: int, connections: int) -> None:
    scraping = [asyncio.ensure_future(scrape(port)) for _ in range(connections)]
    print("scraping", flush=True)
    await asyncio.wait(scraping)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
