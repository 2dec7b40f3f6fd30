"""Finds the server that a store's address currently refers to.

A plain address is that of the server. Sentinels are asked for the master, nodes of a cluster for
the owners of the slots, both through redis-py. Every answer may be out of date when it arrives; the
server then answers with an error, and the caller asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError

from gateway.domain.ports import StoreDown
from gateway.stores.names import KEYS_SLOT
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clients import bounded, client_options, sentinel_client
from gateway.tasks import cancellable, spawn

#: After this, the next server is asked.
_TIMEOUT_S: Final = 0.5

#: The number of slots of a cluster.
SLOTS: Final = 16_384
#: The most masters that a cluster should have. There is a connection to each.
MOST_MASTERS: Final = 1_000
#: Host and port of a server.
Node = tuple[str, int]


async def locate(address: StoreAddress, slot: int = KEYS_SLOT) -> StoreAddress:
    """The server to connect to; of a cluster, the master that owns a slot. Raises StoreDown.

    Call this for each attempt, as masters change. It takes at most half a second for each server
    that has to be asked.
    """
    if address.kind == "sentinel":
        return await _master(address)
    if address.kind == "cluster":
        owner = (await read_owners(address))[slot]
        if owner is None:
            raise StoreDown(f"{address.label}: no node owns slot {slot}")
        return address.at(*owner)
    return address


@cancellable()
async def read_owners(address: StoreAddress, known: Iterable[Node] = ()) -> list[Node | None]:
    """The master of each slot, according to one of the known nodes or of the address's hosts.

    None: the slot has no owner. Raises StoreDown.
    """
    hosts = dict.fromkeys((*known, *address.hosts))
    client = bounded(
        RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in hosts],
            require_full_coverage=False,
            retry=Retry(NoBackoff(), 0),
            **client_options(address, _TIMEOUT_S),
        )
    )
    # Not the client's `initialize`, which also reads the table of all commands.
    manager = client.nodes_manager
    # The manager removes nodes that have another name in the cluster from its list.
    asked = list(manager.startup_nodes.values())
    try:
        await manager.initialize()
        owners: list[Node | None] = [None] * SLOTS
        for slot, nodes in manager.slots_cache.items():
            owners[slot] = nodes[0].host, int(nodes[0].port)
        if len(set(owners)) > MOST_MASTERS:
            raise StoreDown(f"found {len(set(owners))} masters, expected {MOST_MASTERS} at most")
        return owners
    except Exception as error:  # redis-py does not validate a server's answer about the slots
        raise StoreDown(f"cannot read the nodes of {address.label}: {error}") from error
    finally:
        await _closed(*(node.disconnect() for node in asked))


@cancellable()
async def read_master(address: StoreAddress) -> Node:
    """The master, according to Sentinels that know of the latest failover. Raises StoreDown."""
    sentinels = sentinel_client(address)
    try:
        return await sentinels.discover_master(address.service)
    except Exception as error:  # redis-py does not validate a Sentinel's answer
        raise StoreDown(f"no master at {address.label}: {error}") from error
    finally:
        await _closed(sentinels.aclose())


def read_node(text: str, by: Node) -> Node | None:
    """The node of a redirection; by default at the host of the redirecting node. None: invalid."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65_535):
        return None
    return host.strip("[]") or by[0], int(port)


@cancellable()
async def _master(address: StoreAddress) -> StoreAddress:
    """The server that the Sentinels name as master, if its own role agrees."""
    found = address.at(*await read_master(address))
    try:
        async with _client(found) as client:
            role, *_ = await client.execute_command("ROLE")
    except NoPermissionError:
        return found  # without permission for ROLE, rely on the Sentinels
    except Exception as error:  # any answer other than a role
        raise StoreDown(f"{address.label}: {found.label} cannot be reached: {error}") from error
    if role not in (b"master", "master"):
        # Sentinels that were partitioned, or are not updated yet, still name the old master.
        raise StoreDown(f"{address.label}: {found.label} is no longer the master")
    return found


@asynccontextmanager
async def _client(address: StoreAddress) -> AsyncIterator[Any]:
    client = bounded(
        Redis(
            host=address.host,
            port=address.port,
            retry=Retry(NoBackoff(), 0),
            **client_options(address, _TIMEOUT_S),
        )
    )
    try:
        yield client
    finally:
        await _closed(client.aclose())


async def _closed(*closings: Coroutine[Any, Any, None]) -> None:
    """Close completely, even if the caller is cancelled."""

    async def close() -> None:
        await asyncio.gather(*closings, return_exceptions=True)

    task = spawn(close(), "closing connections")
    while not task.done():
        # `cancellable` raises the caller's cancellation again.
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
