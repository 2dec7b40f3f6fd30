"""Tries the connections that a gateway has to its store, and says of each why it fails.

They are made as by a worker (`opening`) and by the management (`managed`), for a moment: the check
is no worker among others, and counts nothing but a probe.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from typing import Final

from gateway.domain.ports import StoreDown
from gateway.observe.metrics import Metrics
from gateway.stores.keys.directory import Directory
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.limits.build import build_limiter
from gateway.stores.names import KEY_INDEX
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clients import redis_client
from gateway.stores.redis.clock import StoreClock
from gateway.stores.redis.connection import StoreConnection
from gateway.stores.redis.errors import translating
from gateway.stores.redis.eviction import ASK, read_policy, words_of
from gateway.stores.redis.link import SlotLink
from gateway.stores.redis.reasons import with_cure
from gateway.stores.redis.status import StoreStatus
from gateway.stores.redis.topology import read_master

#: How long a reply may take, and how long to try.
_TIMEOUT_S: Final = 2.0
_WAIT_S: Final = 4.0


async def check_store(address: StoreAddress) -> dict[str, str]:
    """What is wrong with each connection, by what it is for; "": nothing.

    limits, keys: of a worker; commands: of the commands and the admin listener; sentinels: only
    behind them; data: of what is stored, "" also if its settings may not be read
    """
    found = await _check_links(address)
    found["commands"] = await _check_commands(address)
    if address.kind == "sentinel":
        found["sentinels"] = await _check_sentinels(address)
    return found


async def _check_links(address: StoreAddress) -> dict[str, str]:
    clock = StoreClock()
    link, _, send = build_limiter(address, lambda: _TIMEOUT_S, store_us=clock.now_us)
    kind = SlotLink if address.kind == "cluster" else StoreConnection
    directory = Directory(address, clock=clock, dead_s=_TIMEOUT_S, link=kind)
    parts = {"limits": link, "keys": directory}
    status = StoreStatus(address.label, parts, Metrics(""), time.monotonic)
    async with AsyncExitStack() as stack:
        for part in (link, directory):
            part.start()
            stack.push_async_callback(part.stop)
        stack.callback(status.close)
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_S):
                await asyncio.gather(link.wait_up(), directory.wait_up())
        found = {name: status.reasons.get(name, "") for name in parts}
        data = ""
        if link.is_up:
            info: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            send(KEY_INDEX, ASK, info.set_result)
            reply = await info
            data = words_of(read_policy(reply.decode())) if isinstance(reply, bytes) else ""
        return found | {"data": data}


async def _check_commands(address: StoreAddress) -> str:
    client = redis_client(address)
    try:
        await translating(RedisKeyStore(client)).time()
    except StoreDown as error:
        return with_cure(error)
    finally:
        await client.aclose()
    return ""


async def _check_sentinels(address: StoreAddress) -> str:
    try:
        await read_master(address)
    except StoreDown as error:
        return with_cure(error)
    return ""
