"""The commands of a courier, over one pipelined connection.

It costs a courier 2 us a command, where a client of redis-py costs 50. In a cluster redis-py sends
them, to the node of each shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import hiredis
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clients import redis_client
from gateway.stores.redis.connection import StoreConnection
from gateway.stores.redis.sentinel import MasterWatch
from gateway.stores.webhooks.queue import SHARDS, Execute, tag_of

#: A script of a courier takes a millisecond; a server that is slower than this is unavailable.
_TIMEOUT_S: Final = 2.0
#: How long a start waits for the store, before it continues without it.
_START_WAIT_S: Final = 2.0
_CHANNELS: Final = {f"{tag_of(shard)}due".encode(): shard for shard in range(SHARDS)}


@asynccontextmanager
async def open_link(address: StoreAddress) -> AsyncIterator[Execute]:
    """A function that sends one command, as `Redis.execute_command` does.

    It is connected, unless the store does not answer in time.
    """
    async with AsyncExitStack() as stack:
        if address.kind == "cluster":
            client = redis_client(address)
            stack.push_async_callback(client.aclose)
            yield client.execute_command
            return
        link = StoreConnection(address, timeout_s=_TIMEOUT_S)
        if address.kind == "sentinel":
            watch = MasterWatch(address, (link.reconnect,))
            await watch.start()
            stack.push_async_callback(watch.stop)
        link.start()
        stack.push_async_callback(link.stop)
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_WAIT_S):
                await link.wait_up()

        async def execute(*arguments: Any) -> Any:
            try:
                return await link.ask(*arguments)
            except StoreDown as error:
                cause = error.__cause__
                if isinstance(cause, hiredis.ReplyError) and str(cause).startswith("NOSCRIPT"):
                    raise NoScriptError(str(cause)) from error
                raise

        yield execute


async def listen(address: StoreAddress) -> AsyncIterator[int]:
    """The shards of which something has become due, as they say so. Raises StoreDown.

    In a cluster none says so: couriers look by themselves.
    """
    client = redis_client(address)
    try:
        if not isinstance(client, Redis):
            return
        async with client.pubsub(ignore_subscribe_messages=True) as messages:
            await messages.subscribe(*_CHANNELS)
            async for message in messages.listen():
                shard = _CHANNELS.get(message["channel"])
                if shard is not None:
                    yield shard
    except (RedisError, OSError) as error:
        raise StoreDown(f"the store is unavailable: {error}") from error
    finally:
        with suppress(RedisError, OSError):
            await client.aclose()
