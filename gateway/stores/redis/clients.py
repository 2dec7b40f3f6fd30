"""redis-py's clients of Sentinels and of a cluster, with what they need to be relied on.

Sentinels: `discover_master` of redis-py believes the first that answers. Word of a failover takes
the others a second or two, and the last master goes on taking what it is sent for ten: a key that
was revoked there in that time would be valid again. So all are asked, and the latest counts.

Cluster: redis-py's asyncio client is not made for commands that run side by side. While one of them
reads the nodes anew, the connections of the others are taken from under them, and what comes of it
is an AttributeError. So it gets one command at a time, which is enough for what changes keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import chain
from typing import Any, Final, TypeVar

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.stores.reply_bounds import BoundedParser
from gateway.tasks import spawn

Client = TypeVar("Client", Redis, RedisCluster)

#: How long anybody waits for the answer to one command, whatever is tried meanwhile.
PATIENCE_S: Final = 4.0


async def _in_time(answer: Awaitable[Any]) -> Any:
    """The answer to a command, within `PATIENCE_S`."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await answer
    except TimeoutError as error:
        raise RedisTimeoutError(f"no answer within {PATIENCE_S:g} s") from error


class PlainClient(Redis):
    """A client of one server."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        asking: Any = super()
        return await _in_time(asking.execute_command(*args, **options))


class Sentinels(Sentinel):
    """The Sentinels of one service or more; to be closed by whoever opened them."""

    sentinels: list[Any]

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Host and port of the master since the latest failover. Raises MasterNotFoundError."""
        asked = (sentinel.sentinel_masters() for sentinel in self.sentinels)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        masters = (answer for answer in answers if isinstance(answer, dict))
        states = [named[service_name] for named in masters if service_name in named]
        latest = max((state["config-epoch"] for state in states), default=0)
        for state in states:
            if state["config-epoch"] == latest and self.check_master_state(state, service_name):
                return state["ip"], state["port"]
        raise MasterNotFoundError(_reason(states, answers))

    async def aclose(self) -> None:
        """Close the connections to the Sentinels."""
        for sentinel in self.sentinels:
            await sentinel.aclose()


class MasterClient(PlainClient):
    """A client of whoever is the master; closes the Sentinels' connections with its own."""

    def give_up(self, _reason: str) -> None:
        """Leave the last master: the connections that nobody uses now are closed."""
        spawn(self.connection_pool.disconnect(inuse_connections=False), "leaving a master")

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        pool: Any = self.connection_pool
        await super().aclose(close_connection_pool)
        await pool.sentinel_manager.aclose()


class ClusterClient(RedisCluster):
    """A client of a cluster that sends one command at a time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._turn = asyncio.Lock()

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        return await _in_time(self._in_turn(*args, **kwargs))

    async def _in_turn(self, *args: Any, **kwargs: Any) -> Any:
        async with self._turn:
            return await super().execute_command(*args, **kwargs)

    async def aclose(self) -> None:
        await super().aclose()
        # After an error redis-py takes itself for closed, and leaves its connections open.
        nodes = self.nodes_manager
        for node in chain(nodes.startup_nodes.values(), nodes.nodes_cache.values()):
            await node.disconnect()


def bounded(client: Client) -> Client:
    """The client, its replies bounded from now on; to be called before its first use.

    A client's own arguments have no place for the parser of its connections.
    """
    made_with: list[dict[str, Any]]
    if isinstance(client, RedisCluster):
        nodes = client.nodes_manager
        made_with = [node.connection_kwargs for node in nodes.startup_nodes.values()]
        made_with.append(nodes.connection_kwargs)
    else:
        made_with = [client.connection_pool.connection_kwargs]
    for options in made_with:
        options["parser_class"] = BoundedParser
    return client


def _reason(states: list[Any], answers: list[Any]) -> str:
    if states:
        return "the Sentinels say that the master is down"
    errors = [str(answer) for answer in answers if isinstance(answer, Exception)]
    return errors[0] if errors else "the Sentinels do not know the service"
