"""Webhooks for a busy gateway: a provider that sends them, and receivers, one of which fails."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from contextlib import suppress
from pathlib import Path

from redis.asyncio import Redis

from gateway.domain.webhooks.signatures import sign
from gateway.domain.webhooks.watches import Watch
from gateway.stores.webhooks.resources import Resources
from tests.kit.certificates import make_certificate
from tests.kit.gateway import ServedGateway
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import Exchange, SecureUpstream, build_response
from tests.kit.wire import WireError, fetch

#: The provider's.
SECRET = "a secret of sixteen or more".replace(" ", "-")


def settings(ca: Path) -> str:
    """Policies that allow the receivers of this machine."""
    return f"webhooks: {{allow: [127.0.0.0/8], ca: {ca}}}\n"


def receivers(folder: Path) -> tuple[SecureUpstream, Path]:
    """A server with the paths /good and /bad, and the authority of its certificate."""
    made = make_certificate(folder, ["127.0.0.1"])
    return SecureUpstream(_receive, made.certificate, made.key), made.ca


async def register(gateway: ServedGateway, redis: RedisServer, receiver: SecureUpstream) -> str:
    """An integration with a watch for each path; the address for its webhooks."""
    answer = await fetch(
        gateway.admin_port,
        "/admin/v1/integrations",
        method="POST",
        headers=[
            ("Host", "127.0.0.1"),
            ("Authorization", f"Bearer {gateway.admin_token}"),
            ("Content-Type", "application/json"),
        ],
        body=json.dumps(
            {"kind": "generic", "account": "acme", "name": "busy", "secrets": [SECRET]}
        ).encode(),
    )
    assert answer.status == 201, answer.body
    made = answer.json()
    url = receiver.url.replace("http://", "https://")
    async with Redis(port=redis.port) as client:
        store = Resources(client.execute_command)
        for path in ("good", "bad"):
            watch = Watch(f"wat_{path}", made["id"], f"{url}/{path}", ("order.*",), 1)
            assert await store.add_watch(watch)
    return str(made["capture"])


async def send(gateway: ServedGateway, capture: str, pause_s: float) -> None:
    """Send webhooks until cancelled; some to an address that nobody has."""
    for number in itertools.count():
        body = json.dumps({"id": f"{number}", "type": "order.made", "data": {"n": number}}).encode()
        now_s = int(time.time())
        fields = sign(body, (SECRET,), event_id=f"{number}", now_s=now_s)
        path = "/hooks/" + "0" * 32 if number % 10 == 9 else capture
        headers = [("Content-Type", "application/json"), *fields.items()]
        with suppress(OSError, WireError):
            await gateway.fetch(path, method="POST", headers=headers, body=body)
        await asyncio.sleep(pause_s)


async def _receive(exchange: Exchange) -> None:
    await exchange.read_body()
    await exchange.write(build_response(200 if exchange.request.target == "/good" else 500))
