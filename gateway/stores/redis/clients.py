"""redis-py's clients of a store, its Sentinels or its cluster, with fixes that make them reliable.

Sentinels: `discover_master` of redis-py uses the first answer. A failover takes one or two seconds
to become known to all Sentinels, and the old master accepts writes for ten: a key that was revoked
there in that time would be valid again. So all are asked, and the latest configuration is used.

Files: redis-py keeps the password and the certificates that it began with. Here each connection
reads them again, so that renewed ones take effect.

Cluster: redis-py's asyncio client fails with concurrent commands. While one of them rereads the
nodes, the connections of the others are closed, which raises AttributeError. So it gets one command
at a time, which is fast enough for the management of keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from itertools import chain
from typing import Any, Final, TypeVar

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.stores.redis.address import StoreAddress, read_password, read_sentinel_password
from gateway.stores.redis.reply_bounds import BoundedParser
from gateway.tasks import spawn

Client = TypeVar("Client", Redis, RedisCluster)

#: The timeout of one command, retries included.
COMMAND_TIMEOUT_S: Final = 4.0
#: The timeout of one try.
_TIMEOUT_S: Final = 2.0
#: The same as for the workers' connections. Within COMMAND_TIMEOUT_S several hosts that do not
#: answer can be tried.
_CONNECT_S: Final = 0.5
#: Without these options redis-py sends each server its name and version, with a command that the
#: gateway's user may not be permitted: errors would fill the server's ACL log. Later releases have
#: the first option.
_NAMELESS: Final[dict[str, Any]] = (
    {"driver_info": None}
    if find_spec("redis.driver_info")
    else {"lib_name": None, "lib_version": None}
)
#: After this, the next Sentinel is asked.
_SENTINEL_TIMEOUT_S: Final = 0.5


def redis_client(address: StoreAddress) -> Redis | RedisCluster:
    """A client of redis-py, for everything off the hot path; it connects at its first use.

    A command whose connection broke is sent again: a restart of the store is only a delay. So each
    command sent through it must be idempotent.
    """
    if address.kind == "memory":
        raise ValueError("memory:// is inside one gateway process, there is no server")
    options = client_options(address, _TIMEOUT_S) | {
        "socket_connect_timeout": _CONNECT_S,
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
        "retry_on_error": [RedisConnectionError, RedisTimeoutError],
    }
    if address.kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return bounded(ClusterClient(startup_nodes=nodes, **options))
    options["db"] = address.db
    if address.kind == "sentinel":
        # The pool closes the connections to a server that is no longer the master.
        master: Redis = sentinel_client(address).master_for(
            address.service, redis_class=MasterClient, **options
        )
        return bounded(master)
    host = address.host or "localhost"
    path = address.path or None
    return bounded(PlainClient(host=host, port=address.port, unix_socket_path=path, **options))


def sentinel_client(address: StoreAddress) -> Sentinels:
    """The Sentinels of an address; the caller closes them."""
    options = client_options(address, _SENTINEL_TIMEOUT_S) | {
        "credential_provider": _Credentials(None, partial(read_sentinel_password, address)),
        # Instead of a retry, the next Sentinel is asked.
        "retry": Retry(NoBackoff(), 0),
    }
    sentinels = Sentinels(address.hosts, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
    for sentinel in sentinels.sentinels:
        bounded(sentinel)
    return sentinels


def client_options(address: StoreAddress, timeout_s: float) -> dict[str, Any]:
    """The options of redis-py for every server of an address."""
    options: dict[str, Any] = {
        "credential_provider": _Credentials(address.username, partial(read_password, address)),
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "protocol": 2,
        **_NAMELESS,
    }
    if address.tls:
        # Older releases of redis-py verify a certificate's name only with this option.
        options |= {"ssl": True, "ssl_check_hostname": True}
    if address.certificate:
        options |= {"ssl_certfile": address.certificate, "ssl_keyfile": address.certificate_key}
    return options


class _Credentials(CredentialProvider):
    """The arguments of AUTH, with the password as it is now; none where there is no password."""

    def __init__(self, username: str | None, read: Callable[[], str | None]) -> None:
        self._username = username
        self._read = read

    def get_credentials(self) -> Any:
        try:
            password = self._read()
        except OSError as error:
            raise AuthenticationError(str(error)) from error
        if password is None:
            return ()
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> Any:
        return await asyncio.to_thread(self.get_credentials)


async def _in_time(answer: Awaitable[Any]) -> Any:
    """The reply to a command, within `COMMAND_TIMEOUT_S`."""
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            return await answer
    except TimeoutError as error:
        raise RedisTimeoutError(f"no answer within {COMMAND_TIMEOUT_S:g} s") from error


class PlainClient(Redis):
    """A client of one server."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        asking: Any = super()
        return await _in_time(asking.execute_command(*args, **options))

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        with _given_up():
            await super().aclose(close_connection_pool)


class Sentinels(Sentinel):
    """The Sentinels of one service or more; the caller closes them."""

    sentinels: list[Any]

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Host and port of the master after the latest failover. Raises MasterNotFoundError."""
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
            with _given_up():
                await sentinel.aclose()


class MasterClient(PlainClient):
    """A client of the current master; closes the Sentinels' connections with its own."""

    def reconnect(self, _reason: str) -> None:
        """The master has changed: close the connections that are not in use."""
        spawn(self.connection_pool.disconnect(inuse_connections=False), "leaving a master")

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        pool: Any = self.connection_pool
        await super().aclose(close_connection_pool)
        await pool.sentinel_manager.aclose()


class ClusterClient(RedisCluster):
    """A client of a cluster that sends one command at a time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._commands_lock = asyncio.Lock()

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        return await _in_time(self._locked(*args, **kwargs))

    async def _locked(self, *args: Any, **kwargs: Any) -> Any:
        async with self._commands_lock:
            return await super().execute_command(*args, **kwargs)

    async def aclose(self) -> None:
        with _given_up():
            await super().aclose()
        # After an error redis-py assumes that it is closed, and leaves its connections open.
        nodes = self.nodes_manager
        for node in chain(nodes.startup_nodes.values(), nodes.nodes_cache.values()):
            with _given_up():
                await node.disconnect()


def _given_up() -> suppress:
    """redis-py waits for the end of a connection that it closes, and gives up on a busy machine."""
    return suppress(RedisTimeoutError)


def bounded(client: Client) -> Client:
    """Bound the replies of a client, and have it read renewed certificates.

    Call this before its first use. A client's constructor has no argument for the parser and the
    class of its connections.
    """
    made_with: list[dict[str, Any]]
    if isinstance(client, RedisCluster):
        nodes = client.nodes_manager
        makers: list[Any] = list(nodes.startup_nodes.values())
        made_with = [node.connection_kwargs for node in makers]
        made_with.append(nodes.connection_kwargs)
        made = nodes.connection_kwargs.get("connection_class")
        if made is not None:
            nodes.connection_kwargs["connection_class"] = _reading_files(made)
    else:
        makers = [client.connection_pool]
        made_with = [client.connection_pool.connection_kwargs]
    for maker in makers:
        maker.connection_class = _reading_files(maker.connection_class)
    for options in made_with:
        options["parser_class"] = BoundedParser
    return client


@cache
def _reading_files(connection: type) -> type:
    """The class of connections that reads the files of TLS each time it connects."""
    if not issubclass(connection, SSLConnection):
        return connection

    class ReadingFiles(connection):  # type: ignore[misc] # chosen by redis-py
        def _connection_arguments(self) -> Any:
            self.ssl_context.context = None
            return super()._connection_arguments()

    return ReadingFiles


def _reason(states: list[Any], answers: list[Any]) -> str:
    if states:
        return "the Sentinels say that the master is down"
    errors = [str(answer) for answer in answers if isinstance(answer, Exception)]
    return errors[0] if errors else "the Sentinels do not know the service"
