"""Builds the limiter of a store: its connections, and the limiter over them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.domain.ports import ReviewedLimiter
from gateway.stores.limits.cluster import ClusterLimiter
from gateway.stores.limits.leases import Send
from gateway.stores.limits.limiter import MOST_REPLY_BYTES, RedisLimiter, probe
from gateway.stores.limits.script import LOAD
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.cluster import ClusterNodes
from gateway.stores.redis.connection import StoreConnection


def build_limiter(
    address: StoreAddress,
    timeout_s: Callable[[], float],
    *,
    store_us: Callable[[], int],
    on_batch: Callable[[int, float], None] | None = None,
) -> tuple[StoreConnection | ClusterNodes, ReviewedLimiter, Send]:
    """The connection to an address, its limiter, and a function that sends a counter's commands.

    store_us: the store's time in this process, for the bounds of calendar periods

    The caller starts and stops the connection. Needs a running loop.
    """
    open_link = partial(StoreConnection, most_reply_bytes=MOST_REPLY_BYTES)
    if address.kind == "cluster":
        nodes = ClusterNodes(
            address, timeout_s=timeout_s, load=(LOAD,), probe=probe, link=open_link
        )
        return nodes, ClusterLimiter(nodes, store_us=store_us, on_batch=on_batch), nodes.send
    link = open_link(address, timeout_s=timeout_s, setup=probe())
    limiter = RedisLimiter(link, store_us=store_us, on_batch=on_batch)
    return link, limiter, lambda _name, encoded, done: link.send(encoded, done)
