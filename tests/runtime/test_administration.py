"""The admin listener with its token and its store, as a supervisor opens it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.admin.readiness import Readiness
from gateway.limiting.memory import MemoryLimiter
from gateway.manage.policies import Loaded
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.runtime.administration import Administration, administration, most_connections
from gateway.runtime.settings import CannotStart, Settings
from gateway.stores.keys.memory import MemoryKeyStore
from gateway.stores.managed import memory_managed
from gateway.stores.redis.address import StoreAddress, parse_url
from tests.kit.certificates import Certificate, make_certificate
from tests.kit.eventually import eventually
from tests.kit.policies import write_policies
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer

GIVEN = {"GATEWAY_ADMIN_TOKEN": "correct-horse-battery"}


def now_us() -> int:
    return 1_700_000_000_000_000


def opened(
    folder: Path, store: StoreAddress, *, port: int = 0, policy: str = "", **more: Any
) -> AbstractAsyncContextManager[Administration]:
    """An admin listener over this store. policy: text of a policy file"""
    policies = write_policies(folder / "policies", "http://127.0.0.1:9", gateway=policy)
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
    """The log names the token's file; with the token, the keys of the store can be read."""
    async with opened(tmp_path, parse_url(redis_server.url, None), environ={}) as admin:
        assert admin.url == f"http://127.0.0.1:{admin.port}"
        assert admin.token_source == str(tmp_path / "data" / "admin-token")
        token = (tmp_path / "data" / "admin-token").read_text().strip()
        async with asked(admin, token, host="gate.internal") as answer:
            assert (answer.status, await answer.json()) == (200, {"items": [], "next": None})
        async with asked(admin, token, host="evil.example") as answer:
            assert answer.status == 421


async def test_it_starts_without_its_store(tmp_path: Path) -> None:
    """Without a store: 503, but pages that need no store are shown."""
    store = parse_url(f"redis://127.0.0.1:{free_port()}/0", None)
    async with opened(tmp_path, store, environ=GIVEN) as admin:
        assert admin.token_source == "GATEWAY_ADMIN_TOKEN"
        token = GIVEN["GATEWAY_ADMIN_TOKEN"]
        async with asked(admin, token) as answer:
            assert (answer.status, (await answer.json())["code"]) == (503, "SERVICE_UNAVAILABLE")
        async with asked(admin, token, "policies") as answer:
            assert (await answer.json())["loaded"] == "2023-11-14T22:13:20Z"
    assert not (tmp_path / "data").exists()


async def test_keys_of_other_processes_are_out_of_reach(tmp_path: Path) -> None:
    """Keys in memory:// of a worker cannot be reached; those of this process can."""
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
    """One line says what to change, and nothing of the token."""
    environ = {"GATEWAY_ADMIN_TOKEN": "too-short"}
    with pytest.raises(CannotStart, match=r"^GATEWAY_ADMIN_TOKEN: found 9 char") as told:
        async with opened(tmp_path, StoreAddress("memory"), environ=environ):
            pass
    assert "too-short" not in str(told.value)


async def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    """The error names the option that sets another address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=f"--admin 127.0.0.1:{port}"):
            async with opened(tmp_path, StoreAddress("memory"), port=port, environ=GIVEN):
                pass


# -- several on one store --------------------------------------------------------------------------


async def signed_in(admin: Administration, token: str, client: aiohttp.ClientSession) -> None:
    data = {"name": "anna", "token": token}
    async with client.post(f"{admin.url}/console/sign-in", data=data) as answer:
        assert answer.url.path == "/console"


async def is_in(admin: Administration, client: aiohttp.ClientSession) -> bool:
    async with client.get(f"{admin.url}/console/policies", allow_redirects=False) as answer:
        assert answer.status in {200, 303}
        return answer.status == 200


def browser() -> aiohttp.ClientSession:
    # Cookies go to every port of a host, as browsers do it.
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def test_gateways_on_one_store_are_one_console(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """Without a given token they share the generated one. Signing in and out applies to both."""
    store = parse_url(redis_server.url, None)
    async with (
        opened(tmp_path / "one", store, environ={}) as one,
        opened(tmp_path / "two", store, environ={}) as two,
        browser() as client,
    ):
        token = (tmp_path / "one" / "data" / "admin-token").read_text().strip()
        assert (tmp_path / "two" / "data" / "admin-token").read_text().strip() == token
        async with asked(two, token) as answer:
            assert answer.status == 200
        await signed_in(one, token, client)
        assert await is_in(two, client)
        async with client.get(f"{two.url}/console") as answer:
            page = await answer.text()
        held = {cookie.key: cookie.value for cookie in client.cookie_jar}
        csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
        async with client.post(f"{two.url}/console/sign-out", data={"csrf": csrf}) as answer:
            assert "signed-out" in str(answer.url)
        client.cookie_jar.update_cookies(held)
        assert not await is_in(one, client)
        assert not await is_in(two, client)


async def test_sessions_survive_a_restart(tmp_path: Path, redis_server: RedisServer) -> None:
    """A session outlives the process that opened it; another token ends it."""
    store = parse_url(redis_server.url, None)
    async with browser() as client:
        async with opened(tmp_path, store, environ=GIVEN) as admin:
            await signed_in(admin, GIVEN["GATEWAY_ADMIN_TOKEN"], client)
        async with opened(tmp_path, store, environ=GIVEN) as admin:
            assert await is_in(admin, client)
        changed = {"GATEWAY_ADMIN_TOKEN": "another-horse-battery"}
        async with opened(tmp_path, store, environ=changed) as admin:
            assert not await is_in(admin, client)


async def test_nothing_in_the_store_is_a_secret(tmp_path: Path, redis_server: RedisServer) -> None:
    """The store has no token, no cookie, and nothing to check guesses against."""
    store = parse_url(redis_server.url, None)
    async with opened(tmp_path, store, environ={}) as admin, browser() as client:
        token = (tmp_path / "data" / "admin-token").read_text().strip()
        await signed_in(admin, token, client)
        (cookie,) = client.cookie_jar
        async with client.get(f"{admin.url}/console") as answer:
            csrf = (await answer.text()).partition('name="csrf" value="')[2].partition('"')[0]
        async with client.post(f"{admin.url}/console/sign-out", data={"csrf": csrf}):
            pass
    with redis_server.client() as client:
        names = client.keys("*admin*")
        kept = b"".join(names + [client.get(name) for name in names])
    assert len(names) == 2
    for secret in (token, cookie.value, csrf):
        assert secret.encode() not in kept


async def test_a_weak_token_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line at the start, which does not repeat the token."""
    environ = {"GATEWAY_ADMIN_TOKEN": "three-short-words"}
    async with opened(tmp_path, StoreAddress("memory"), environ=environ):
        (line,) = [line for line in caplog.messages if "is weak" in line]
    assert line.startswith("GATEWAY_ADMIN_TOKEN: ")
    assert "three" not in line


# -- TLS -------------------------------------------------------------------------------------------


def trusting(made: Certificate) -> aiohttp.ClientSession:
    tls = ssl.create_default_context(cafile=made.ca)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, force_close=True))


async def test_it_speaks_tls(tmp_path: Path) -> None:
    """With the policies' certificate; its cookie is bound to TLS; a renewed one is loaded."""
    made = make_certificate(tmp_path / "tls", ["127.0.0.1"])
    policy = f"admin_tls: {{certificate: {made.certificate}, key: {made.key}}}"
    memory = StoreAddress("memory")
    async with opened(tmp_path, memory, policy=policy, environ=GIVEN) as admin:
        assert admin.url == f"https://127.0.0.1:{admin.port}"
        async with trusting(made) as client:
            async with client.get(f"{admin.url}/healthz") as answer:
                assert answer.status == 200
            data = {"name": "anna", "token": GIVEN["GATEWAY_ADMIN_TOKEN"]}
            url = f"{admin.url}/console/sign-in"
            async with client.post(url, data=data, allow_redirects=False) as answer:
                (cookie,) = answer.cookies.values()
        assert (cookie.key, cookie["secure"]) == ("__Host-gateway_session", True)
        renewed = make_certificate(tmp_path / "tls", ["127.0.0.1"])

        async def is_taken_up() -> bool:
            async with trusting(renewed) as client:
                try:
                    async with client.get(f"{admin.url}/healthz") as answer:
                        return answer.status == 200
                except aiohttp.ClientSSLError:
                    return False

        await eventually(is_taken_up, "the renewed certificate is shown")


async def test_an_invalid_certificate_is_an_error(tmp_path: Path) -> None:
    """It does not start; one line names the setting."""
    (tmp_path / "x.pem").write_text("no certificate")
    policy = f"admin_tls: {{certificate: {tmp_path}/x.pem, key: {tmp_path}/x.pem}}"
    with pytest.raises(PolicyFaults, match=r"admin_tls: found files that cannot be used \("):
        async with opened(tmp_path, StoreAddress("memory"), policy=policy, environ=GIVEN):
            pass


@pytest.mark.parametrize(
    ("descriptors", "workers", "most"),
    [
        (1_048_576, 8, 128),
        (1_024, 1, 128),
        (1_024, 32, 128),
        (256, 1, 88),
        (256, 4, 64),
        (256, 12, 8),
        (64, 1, 8),
    ],
)
def test_connections_leave_descriptors(descriptors: int, workers: int, most: int) -> None:
    """Some are reserved for workers and their store connections; a minimum must remain."""
    assert most_connections(descriptors, workers) == most
