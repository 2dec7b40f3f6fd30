"""Webhooks in `gateway demo`: a courier, an integration, and a receiver that checks signatures.

The receiver is on loopback with a certificate that is made at each start, and the courier trusts
that one alone.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import secrets
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.courier import CourierProcess
from gateway.domain.json_text import read_json
from gateway.domain.policy import Policy
from gateway.domain.upstreams import Server
from gateway.domain.webhooks.destinations import Destinations
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.signatures import Unverified, verify
from gateway.files import write_private
from gateway.runtime.settings import CourierAddress, Settings
from gateway.runtime.sockets import bind_shared, close_all
from gateway.runtime.worker import WorkerInit
from gateway.stores.managed import open_managed
from gateway.stores.webhooks.resources import Resources
from gateway.webhooks.master import Master, read_master
from gateway.webhooks.sealing import Sealer

INTEGRATION: Final = "int_demo"
_HOST: Final = "127.0.0.1"
_BACKLOG: Final = 128
#: How long a look at what was received waits for something to be there.
_LOOK_S: Final = 10.0
#: What GitLab sends when somebody opens an issue, as far as an event needs it.
_ISSUE: Final = {
    "object_kind": "issue",
    "user": {"id": 7, "username": "ada"},
    "project": {"id": 1, "name": "api", "path_with_namespace": "acme/api"},
    "object_attributes": {
        "id": 301,
        "iid": 23,
        "action": "open",
        "state": "opened",
        "title": "Limits are too low",
        "author_id": 7,
    },
}


@dataclass(frozen=True, slots=True)
class WebhookDemo:
    """What the example needs.

    capture:  the path at which webhooks are captured; token: with which they are verified
    receiver: the URL of the receiver
    """

    capture: str
    token: str
    receiver: str

    def command(self, base: str, key: str) -> str:
        """Registers a watch, sends a webhook as GitLab does, and shows what was received."""
        watch = json.dumps({"url": self.receiver, "events": ["ticket.*"]})
        sends_json = "-H 'Content-Type: application/json'"
        return "; echo; ".join(
            (
                f"curl -s -H 'Authorization: Bearer {key}' {sends_json}"
                f" {base}/api/v1/integrations/{INTEGRATION}/watches -d '{watch}'",
                f"curl -s -H 'X-Gitlab-Token: {self.token}' -H 'X-Gitlab-Event: Issue Hook'"
                # Another webhook each time.
                ' -H "X-Gitlab-Event-UUID: $(date +%s)"'
                f" {sends_json} {base}{self.capture} -d '{json.dumps(_ISSUE)}'",
                f"curl -sk {self.receiver}",
            )
        )


@asynccontextmanager
async def reserve_couriers(settings: Settings) -> AsyncIterator[tuple[Settings, socket.socket]]:
    """The settings with the address of the courier, and its socket, which listens already."""
    master = await asyncio.to_thread(read_master, {}, settings.data)
    sockets = bind_shared(_HOST, 0)
    try:
        sockets[0].listen(_BACKLOG)
        server = Server("http", _HOST, sockets[0].getsockname()[1])
        at = CourierAddress(server, master.token)
        yield replace(settings, couriers=at, master=master), sockets[0]
    finally:
        close_all((sockets,))


def with_loopback(policy: Policy) -> Policy:
    """The policy, by which webhooks may be delivered to this machine."""
    allowed = Destinations(allowed=(ipaddress.IPv4Network("127.0.0.0/8"),))
    return replace(policy, webhooks=replace(policy.webhooks, destinations=allowed))


@asynccontextmanager
async def serve_webhooks(
    settings: Settings, policy: Policy, accepting: socket.socket, account: str
) -> AsyncIterator[WebhookDemo]:
    """Run a courier and a receiver, with an integration of this account."""
    assert settings.store is not None
    assert settings.master is not None
    pair = await asyncio.to_thread(_make_certificate, settings.data / "receiver.pem")
    trusted = ssl.create_default_context(cafile=pair)
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_managed(settings.store))
        assert stores.webhooks is not None, "it is a Redis"
        resources = stores.webhooks.resources
        url = await stack.enter_async_context(_receiver(pair, resources, settings.master))
        capture, token = secrets.token_hex(16), secrets.token_urlsafe(16)
        sealed = Sealer(settings.master.key).seal(INTEGRATION, (token,))
        now_us = time.time_ns() // 1_000
        await resources.add_integration(
            Integration(INTEGRATION, account, "gitlab", "Demo", now_us, capture, sealed)
        )
        init = WorkerInit(((accepting,),), policy, None, lambda *_: None)
        courier = CourierProcess(settings, init, trust=trusted, is_watching=False)
        await courier.start()
        try:
            yield WebhookDemo(f"/hooks/{capture}", token, url)
        finally:
            courier.stop_now()
            await courier.stop()


@asynccontextmanager
async def _receiver(pair: Path, resources: Resources, master: Master) -> AsyncIterator[str]:
    """A receiver of webhooks; yields its URL. It answers a GET with what it has received."""
    received: list[dict[str, Any]] = []
    arrived = asyncio.Event()

    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        now_us = time.time_ns() // 1_000
        watches = await resources.watches(INTEGRATION)
        known = [secret for watch in watches for secret in watch.secrets(master.key, now_us)]
        try:
            verify(body, headers, known, now_s=now_us / 1_000_000)
            signature = "verified"
        except Unverified as error:
            signature = f"not verified: {error}"
        received.append({"signature": signature, "event": read_json(body)})
        arrived.set()
        return web.Response(status=204)

    async def show(_request: web.Request) -> web.Response:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await arrived.wait()
        return web.json_response({"received": received}, dumps=partial(json.dumps, indent=2))

    application = web.Application()
    application.router.add_post("/", receive)
    application.router.add_get("/", show)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, _HOST, 0, ssl_context=tls)
        await site.start()
        yield f"https://{_HOST}:{site.port}/"
    finally:
        await runner.cleanup()


def _make_certificate(path: Path) -> Path:
    """A certificate for this machine with its key, which signs itself; both in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the demo's receiver")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(_HOST))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    own = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    text = (own + certificate.public_bytes(serialization.Encoding.PEM)).decode("ascii")
    write_private(path, text, is_new=True)
    return path
