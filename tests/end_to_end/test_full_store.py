"""A full Redis without eviction: permissions can still be withdrawn."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
import pytest_asyncio
import redis

from tests.end_to_end.conftest import Serve, build_key
from tests.end_to_end.test_admin import Admin, always
from tests.kit.command import run_aside
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.redis_server import RedisServer

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: How much memory Redis may use beyond what it uses before the test: it is full soon.
ROOM_BYTES = 300_000


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer("--maxmemory-policy", "noeviction").start()
    yield server
    server.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(serve: Serve, server: RedisServer) -> AsyncIterator[ServedGateway]:
    yield await serve("--workers", "2", store=server.url)


def fill(server: RedisServer) -> None:
    """Write until the server is full."""
    with server.client() as client, suppress(redis.exceptions.OutOfMemoryError):
        client.config_set("maxmemory", client.info("memory")["used_memory"] + ROOM_BYTES)
        for number in itertools.count():
            client.set(f"filling:{number}", "x" * 1_000)
    with server.client() as client:
        # The limit is below what is used, even if a connection has freed some memory since.
        client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)


async def test_permissions_are_withdrawn_in_a_full_store(
    gateway: ServedGateway, server: RedisServer
) -> None:
    """A key is narrowed, suspended and revoked, an account loses its services, by API and command;
    each change applies in every worker, and is in the audit log. Only new keys are refused.
    """
    admin = Admin(gateway)
    account = await admin("PUT", "/accounts/acme", {"services": ["edr"]}, If_None_Match="*")
    assert account.status == 201
    narrowed, suspended, revoked, by_command = [
        await admin.make_key(account="acme", plan="enterprise") for _ in range(4)
    ]
    for key in (narrowed, suspended, revoked, by_command):
        assert await always(gateway, key["key"], 200, 4)
    fill(server)

    created = await admin("POST", "/keys", {"name": "new", "plan": "free"})
    assert created.status == 503
    path = f"/keys/{narrowed['id']}"
    answer = await admin("PATCH", path, {"ip_ranges": ["192.0.2.0/24"]}, If_Match="*")
    assert answer.status == 200
    assert (await admin("POST", f"/keys/{suspended['id']}/suspend")).status == 200
    assert (await admin("POST", f"/keys/{revoked['id']}/revoke")).status == 200
    words = ["keys", "revoke", by_command["id"], "--store", server.url]
    done = await run_aside(*words)
    assert done.returncode == 0, done.stderr
    answer = await admin("PUT", "/accounts/acme", {"services": []}, If_Match="*")
    assert answer.status == 200

    await eventually(lambda: always(gateway, narrowed["key"], 403), "the narrowed key is refused")
    for key in (suspended, revoked, by_command):
        await eventually(lambda key=key: always(gateway, key["key"], 401), "it is refused")
    entries = (await admin("GET", "/audit?count=5")).json()["items"]
    assert [entry["action"] for entry in reversed(entries)] == [
        "key.edit",
        "key.suspend",
        "key.revoke",
        "key.revoke",
        "account.set",
    ]
    assert (await admin("GET", "/audit/verify")).json()["faults"] == []


#: What grows with changes by users, or is capped: nothing else may lack an expiry.
LASTING = (
    *("key:", "account:", "index", "data", "accounts", "used", "audit", "usage:plans"),
    *("warnings", "policies", "policy:"),
)
#: Of these, what requests write.
BY_REQUESTS = ("usage:plans", "warnings", "used")


async def test_data_of_requests_is_bounded(gateway: ServedGateway, server: RedisServer) -> None:
    """Everything in the store that requests have caused is capped or expires."""
    admin = Admin(gateway)
    key = await admin.make_key()
    for target in ("/api/x", "/v1/connectors", "/nowhere", "/v1/auth/verify"):
        for presented in (key["key"], None, "nonsense", build_key("free")[0]):
            await gateway.fetch(target, key=presented)
    for _ in range(40):
        await gateway.fetch("/api/search/x", key=key["key"])

    def is_written() -> bool:
        with server.client() as client:
            return client.exists(*(f"gw:{{keys}}:{name}" for name in BY_REQUESTS)) == 3

    await eventually(is_written, "usage and warnings are in the store")
    with server.client() as client:
        for name in client.scan_iter():
            part = name.decode().removeprefix("gw:{keys}:")
            assert client.ttl(name) >= 0 or part.startswith(LASTING), name
        assert client.scard("gw:{keys}:usage:plans") == 2
        assert client.hlen("gw:{keys}:used") == 1
        assert client.xlen("gw:{keys}:audit") == 1
