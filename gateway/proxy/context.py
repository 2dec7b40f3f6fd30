"""What all connections of a worker share. `app` makes one and hands it to the listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.observe.metrics import Metrics

if TYPE_CHECKING:
    from gateway.proxy.account import Accounting
    from gateway.proxy.downstream import Downstream
    from gateway.proxy.gate import Gate
    from gateway.proxy.pool import Pools


@dataclass(slots=True, eq=False)
class Context:
    """The shared parts.

    version:     what /v1/health tells
    clock_us:    wall clock, Unix microseconds
    next_id:     a fresh request id
    connections: every client connection that is open
    draining:    no new request is taken up; answers close their connection
    drained:     set when, draining, the last connection is gone
    """

    gate: Gate
    pools: Pools
    metrics: Metrics
    accounting: Accounting
    version: str
    clock_us: Callable[[], int]
    next_id: Callable[[], bytes]
    connections: set[Downstream] = field(default_factory=set)
    draining: bool = False
    drained: asyncio.Event = field(default_factory=asyncio.Event)
