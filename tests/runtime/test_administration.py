"""The admin listener with its token and its store, as a supervisor opens it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.admin.readiness import Readiness
from gateway.manage.policies import Loaded
from gateway.policies.load import load
from gateway.runtime.administration import Administration, administration
from gateway.runtime.settings import CannotStart, Settings
from gateway.stores.connect import StoreAddress, parse_url
from gateway.stores.managed import memory_managed
from gateway.stores.memory import MemoryLimiter
from gateway.stores.memory_keys import MemoryKeyStore
from tests.kit.policies import write_policies
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer

GIVEN = {"GATEWAY_ADMIN_TOKEN": "correct-horse-battery"}


def now_us() -> int:
    return 1_700_000_000_000_000


def opened(
    folder: Path, store: StoreAddress, *, port: int = 0, **more: Any
) -> AbstractAsyncContextManager[Administration]:
    policies = write_policies(folder / "policies", "http://127.0.0.1:9")
    settings = Settings(
        policies,
        admin=("127.0.0.1", port),
        store=store,
        data=folder / "data",
        admin_hosts=("gate.internal",),
    )
    loaded = Loaded(load(policies), now_us(), policies)

    async def scrape(_accept: str) -> tuple[bytes, str]:
        return b"", "text/plain"

    async def readiness() -> Readiness:
        return Readiness(True, {})

    return administration(settings, scrape, readiness, lambda: loaded, now_us, **more)


@asynccontextmanager
async def asked(
    admin: Administration, token: str, path: str = "keys", host: str = "localhost"
) -> AsyncIterator[aiohttp.ClientResponse]:
    headers = {"Authorization": f"Bearer {token}", "Host": host}
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"{admin.url}/admin/v1/{path}", headers=headers) as answer,
    ):
        yield answer


async def test_it_makes_its_token(tmp_path: Path, redis_server: RedisServer) -> None:
    """And says where it is; with it, the keys of the store are there."""
    async with opened(tmp_path, parse_url(redis_server.url, None), environ={}) as admin:
        assert admin.url == f"http://127.0.0.1:{admin.port}"
        assert admin.token_place == str(tmp_path / "data" / "admin-token")
        token = (tmp_path / "data" / "admin-token").read_text().strip()
        async with asked(admin, token, host="gate.internal") as answer:
            assert (answer.status, await answer.json()) == (200, {"items": [], "next": None})
        async with asked(admin, token, host="evil.example") as answer:
            assert answer.status == 421


async def test_it_starts_without_its_store(tmp_path: Path) -> None:
    """Nobody answers there: 503, while what needs no store is shown."""
    store = parse_url(f"redis://127.0.0.1:{free_port()}/0", None)
    async with opened(tmp_path, store, environ=GIVEN) as admin:
        assert admin.token_place == "GATEWAY_ADMIN_TOKEN"
        token = GIVEN["GATEWAY_ADMIN_TOKEN"]
        async with asked(admin, token) as answer:
            assert (answer.status, (await answer.json())["code"]) == (503, "SERVICE_UNAVAILABLE")
        async with asked(admin, token, "policies") as answer:
            assert (await answer.json())["loaded"] == "2023-11-14T22:13:20Z"
    assert not (tmp_path / "data").exists()


async def test_keys_of_other_processes_are_out_of_reach(tmp_path: Path) -> None:
    """memory:// lives in a worker; where it lives in this process, it is at hand."""
    token, memory = GIVEN["GATEWAY_ADMIN_TOKEN"], StoreAddress("memory")
    async with opened(tmp_path, memory, environ=GIVEN) as admin, asked(admin, token) as answer:
        assert (await answer.json())["code"] == "STORE_NOT_SHARED"
    stores = memory_managed(MemoryKeyStore(), MemoryLimiter(now_us))
    async with (
        opened(tmp_path, memory, environ=GIVEN, stores=stores) as admin,
        asked(admin, token) as answer,
    ):
        assert answer.status == 200


async def test_without_a_token_it_does_not_start(tmp_path: Path) -> None:
    """In one line that says what to change, and nothing of the token."""
    environ = {"GATEWAY_ADMIN_TOKEN": "too-short"}
    with pytest.raises(CannotStart, match=r"^GATEWAY_ADMIN_TOKEN: found 9 char") as told:
        async with opened(tmp_path, StoreAddress("memory"), environ=environ):
            pass
    assert "too-short" not in str(told.value)


async def test_a_taken_address_is_told(tmp_path: Path) -> None:
    """With the option that names another one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=f"--admin 127.0.0.1:{port}"):
            async with opened(tmp_path, StoreAddress("memory"), port=port, environ=GIVEN):
                pass
