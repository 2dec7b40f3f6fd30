"""A worker without promises: python -m loadtests.deliver.naive REDIS_PORT CA.

It takes deliveries from a Redis list and sends each in a task of its own. What was taken is lost
with the worker; there is no second attempt, no fairness, no guard of addresses and no record.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import ssl
import sys
from typing import Any, Final

import aiohttp
import uvloop
from redis.asyncio import Redis

QUEUE: Final = "naive:deliveries"
_SLOTS: Final = 256
_SECRET: Final = b"a secret that all receivers share"


async def _work(port: int, ca: str) -> None:
    tls = ssl.create_default_context(cafile=ca)
    slots = asyncio.Semaphore(_SLOTS)
    connector = aiohttp.TCPConnector(limit=0, ssl=tls)
    async with Redis(port=port) as redis, aiohttp.ClientSession(connector=connector) as session:

        async def deliver(item: Any) -> None:
            try:
                url, body = json.loads(item)
                signature = hmac.digest(_SECRET, body.encode(), "sha256").hex()
                headers = {"Content-Type": "application/json", "x-service-signature": signature}
                async with session.post(url, data=body, headers=headers) as response:
                    await response.read()
            finally:
                slots.release()

        async with asyncio.TaskGroup() as tasks:
            while True:
                for item in await redis.lpop(QUEUE, 100) or ():
                    await slots.acquire()
                    tasks.create_task(deliver(item))
                if not await redis.llen(QUEUE):
                    await asyncio.sleep(0.01)


if __name__ == "__main__":
    uvloop.run(_work(int(sys.argv[1]), sys.argv[2]))
