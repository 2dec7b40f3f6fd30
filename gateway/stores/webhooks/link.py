"""The commands of a courier, over one pipelined connection; in a cluster over one to each master.

It costs a courier 2 us a command, where a client of redis-py costs 50.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import hiredis
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import NoScriptError

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clients import redis_client
from gateway.stores.redis.cluster import ClusterNodes
from gateway.stores.redis.connection import StoreConnection, checked, command, set_result
from gateway.stores.redis.errors import translated
from gateway.stores.redis.sentinel import MasterWatch
from gateway.stores.redis.topology import locate
from gateway.stores.webhooks.queue import SHARDS, Execute, tag_of

#: A script of a courier takes a millisecond; a server that is slower than this is unavailable.
_TIMEOUT_S: Final = 2.0
#: How long a start waits for the store, before it continues without it.
_START_WAIT_S: Final = 2.0
_CHANNELS: Final = {f"{tag_of(shard)}due".encode(): shard for shard in range(SHARDS)}


#: How long nothing may be heard before the server is asked whether it is there, and how long it may
#: take to answer.
_HEARD_S: Final = 5.0
#: Commands that name how many names they use, before those.
_SCRIPTS: Final = ("EVAL", "EVALSHA")


@asynccontextmanager
async def open_link(address: StoreAddress) -> AsyncIterator[Execute]:
    """A function that sends one command, as `Redis.execute_command` does.

    It is connected, unless the store does not answer in time.
    """
    async with AsyncExitStack() as stack:
        if address.kind == "cluster":
            nodes = ClusterNodes(address, timeout_s=_TIMEOUT_S)
            await _start(stack, nodes)
            ask: Execute = partial(_ask_owner, nodes)
        else:
            link = StoreConnection(address, timeout_s=_TIMEOUT_S)
            if address.kind == "sentinel":
                watch = MasterWatch(address, (link.reconnect,))
                await watch.start()
                stack.push_async_callback(watch.stop)
            await _start(stack, link)
            ask = link.ask

        async def execute(*arguments: Any) -> Any:
            try:
                return await ask(*arguments)
            except StoreDown as error:
                cause = error.__cause__
                if isinstance(cause, hiredis.ReplyError) and str(cause).startswith("NOSCRIPT"):
                    raise NoScriptError(str(cause)) from error
                raise

        yield execute


def executing(client: Redis | RedisCluster) -> Execute:
    """A function that sends one command by this client."""

    async def execute(*arguments: Any) -> Any:
        async with translated():
            try:
                return await client.execute_command(*arguments)
            except NoScriptError as error:
                missing = error
        raise missing

    return execute


async def _start(stack: AsyncExitStack, link: StoreConnection | ClusterNodes) -> None:
    link.start()
    stack.push_async_callback(link.stop)
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_WAIT_S):
            await link.wait_up()


async def _ask_owner(nodes: ClusterNodes, *arguments: Any) -> Any:
    """One command, sent to the node that has the first name in it. Raises StoreDown."""
    name = str(arguments[3 if arguments[0] in _SCRIPTS else 1])
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    nodes.send(name, command(*arguments), partial(set_result, future))
    return checked(await future, arguments[0])


async def listen(address: StoreAddress) -> AsyncIterator[int]:
    """The shards of which something has become due, as they say so. Raises StoreDown.

    In a cluster every node tells what is published at any of them.
    """
    client = redis_client(await locate(address) if address.kind == "cluster" else address)
    assert isinstance(client, Redis)
    try:
        async with client.pubsub() as messages:
            async with translated():
                await messages.subscribe(*_CHANNELS)
            was_asked = False
            while True:
                async with translated():
                    message = await messages.get_message(timeout=_HEARD_S)
                if message is not None:
                    was_asked = False
                    if message["type"] == "message" and message["channel"] in _CHANNELS:
                        yield _CHANNELS[message["channel"]]
                elif was_asked:
                    raise StoreDown(f"the store did not answer within {_HEARD_S:g} s")
                else:
                    async with translated():
                        await messages.ping()
                    was_asked = True
    finally:
        with suppress(StoreDown):
            async with translated():
                await client.aclose()
