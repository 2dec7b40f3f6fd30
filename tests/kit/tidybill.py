"""The policies of docs/examples/tidybill, in front of real servers.

Of the files only addresses are replaced: those of the servers, and that of the balancers, whose
place the tests have. Certificates are made where the policies name them. Beside them there is a
file with a long timeout of the store, as a machine that runs tests may be busy.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import shutil
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from gateway.domain.keys import Account
from gateway.stores.keys.store import RedisKeyStore
from tests.kit.certificates import Certificate, make_certificate
from tests.kit.collector import Collector
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.keys import make_key
from tests.kit.policies import STORE_TIMEOUT
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import (
    Exchange,
    Received,
    Script,
    ScriptedUpstream,
    SecureUpstream,
    echo,
    reply,
)
from tests.kit.wire import TIMEOUT_S, Header, Response, Wire, bearer

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

EXAMPLE: Final = Path(__file__).parents[2] / "docs/examples/tidybill"
API: Final = "api.tidybill.example"
APP: Final = "app.tidybill.example"
#: The servers, by what the tests call them, and their addresses in the policies.
SERVERS: Final = {
    "large": "10.20.0.11:8000",
    "small": "10.20.0.12:8000",
    "next": "10.20.0.13:8000",
    "payments": "10.20.0.21:8443",
    "web": "10.20.0.31:3000",
}
BALANCERS: Final = "10.20.1.0/24"
#: For a key that may do everything.
SCOPES: Final = (
    *("customers:read", "customers:write", "invoices:read", "invoices:write"),
    *("reports:read", "exports:write"),
)
PERMISSIONS: Final = {"payments": ("read", "write", "pay-out")}


def copy_policies(folder: Path, addresses: dict[str, str]) -> Path:
    """Copy the policy files, with other addresses, each of which they have once."""
    shutil.copytree(EXAMPLE, folder)
    for file in folder.glob("*.yaml"):
        text = file.read_text("utf-8")
        for given in [each for each in addresses if each in text]:
            assert text.count(given) == 1, f"{given} is in {file.name} more than once"
            text = text.replace(given, addresses.pop(given))
        file.write_text(text, "utf-8")
    assert addresses == {}, "addresses that are not in the policies"
    return folder


def make_certificates(policies: Path) -> dict[str, Certificate]:
    """Make the certificates that the policies name, each of an authority of its own."""
    names = {"api": API, "app": APP, "internal": "payments.internal", "gateway": "gateway.internal"}
    return {stem: make_certificate(policies / "tls", [name], stem) for stem, name in names.items()}


class Service:
    """A server, which passes health checks.

    answer: the script for all other requests; requests: what it was sent, without health checks
    """

    def __init__(self, server: ScriptedUpstream) -> None:
        self.server = server
        self.answer: Script = echo
        server.script = self._serve

    async def _serve(self, exchange: Exchange) -> None:
        is_check = exchange.request.maybe("X-Request-Id") is None
        await (reply(200) if is_check else self.answer)(exchange)

    @property
    def requests(self) -> list[Received]:
        return [each for each in self.server.requests if each.maybe("X-Request-Id")]


@dataclass
class Tidybill:
    """All that runs.

    store: its URL; services: by the names in SERVERS; certificates: by their files' names
    """

    gateway: ServedGateway
    store: str
    services: dict[str, Service]
    certificates: dict[str, Certificate]
    keys: RedisKeyStore
    collector: Collector
    _clients: Iterable[int] = field(default_factory=itertools.count)

    async def key(
        self,
        plan: str = "business",
        account: str = "",
        services: tuple[str, ...] = ("payments",),
        **fields: Any,
    ) -> str:
        """A new key, by default with all scopes and permissions, of an account of its own."""
        fields = {"scopes": SCOPES, "permissions": PERMISSIONS, **fields}
        account = account or f"account-{secrets.token_hex(8)}"
        text, record = make_key(secrets.randbelow, plan=plan, account=account, **fields)
        await self.keys.put_account(Account(account, services))
        await self.keys.add(record)
        return text

    def context(self, host: str) -> ssl.SSLContext:
        """Of a client that accepts only the certificate of this host."""
        stem = host.partition(".")[0]
        return ssl.create_default_context(cafile=str(self.certificates[stem].ca))

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Wire]:
        """A connection over TLS for this host."""
        async with asyncio.timeout(TIMEOUT_S):
            opened = await asyncio.open_connection(
                "127.0.0.1", self.gateway.port, ssl=self.context(host), server_hostname=host
            )
        async with Wire(*opened) as wire:
            yield wire

    def headers(
        self,
        host: str,
        key: str | None = None,
        more: Iterable[Header] = (),
        client: str | None = None,
    ) -> list[Header]:
        """What the balancer sends. client: its address; by default one that no other has had"""
        number = next(iter(self._clients))
        client = client or f"10.99.{number // 250}.{number % 250 + 1}"
        sent = [("Host", host), ("X-Forwarded-For", client), ("X-Forwarded-Proto", "https")]
        return [*sent, *(bearer(key) if key else []), *more]

    async def fetch(
        self,
        url: str,
        *,
        key: str | None = None,
        method: str = "GET",
        headers: Iterable[Header] = (),
        body: bytes | None = None,
        client: str | None = None,
    ) -> Response:
        """Send one request on a new connection. url: HOST/PATH; client: as of `headers`"""
        host, slash, rest = url.partition("/")
        async with self.connect(host) as wire:
            fields = self.headers(host, key, headers, client)
            return await wire.request(method, slash + rest, fields, body)

    async def line(self, answer: Response) -> dict[str, Any]:
        """The line of the access log that has this answer's request."""
        wanted = f'"{answer["X-Request-Id"]}"'

        def found() -> list[str]:
            lines = self.gateway.access_log.read_text().splitlines()
            return [line for line in lines if wanted in line]

        await eventually(lambda: bool(found()), f"the access log has {wanted}")
        (line,) = found()
        decoded: dict[str, Any] = json.loads(line)
        return decoded

    def received(self, answer: Response) -> list[tuple[str, Received]]:
        """The services that got this answer's request, and what they got, in the order of names."""
        request_id = answer["X-Request-Id"]
        return [
            (name, request)
            for name, service in sorted(self.services.items())
            for request in service.requests
            if request.maybe("X-Request-Id") == request_id
        ]


@asynccontextmanager
async def serve_tidybill(folder: Path) -> AsyncIterator[Tidybill]:
    """A Redis, the services, and `gateway serve` with the policies of the example."""
    async with AsyncExitStack() as stack:
        store = RedisServer().start()
        stack.callback(store.stop)
        collector = await stack.enter_async_context(Collector())
        policies = folder / "policies"
        made = make_certificates(folder / "made")
        internal = made["internal"]
        servers = {
            name: SecureUpstream(echo, internal.certificate, internal.key, made["gateway"].ca)
            if name == "payments"
            else ScriptedUpstream()
            for name in SERVERS
        }
        services = {
            name: Service(await stack.enter_async_context(server))
            for name, server in servers.items()
        }
        addresses = {SERVERS[name]: f"127.0.0.1:{one.port}" for name, one in servers.items()}
        copy_policies(policies, {**addresses, BALANCERS: "127.0.0.1"})
        shutil.copytree(folder / "made/tls", policies / "tls")
        (policies / "store.yaml").write_text(STORE_TIMEOUT)
        client = Redis(port=store.port)
        stack.push_async_callback(client.aclose)
        served = ServedGateway(
            folder / "gateway", policies, store.url, environment=collector.environment()
        )
        gateway = await stack.enter_async_context(served)
        yield Tidybill(gateway, store.url, services, made, RedisKeyStore(client), collector)
