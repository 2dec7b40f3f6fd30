"""Receivers that are slow, hostile or gone, beside one that is well; and those that judge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import stripe
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from gateway.domain.webhooks.schedule import FAILURES
from gateway.webhooks.sender import REFUSED
from tests.kit.certificates import Certificate
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.hook_site import Site, open_site
from tests.kit.hooks import LEASE_ENDS_S, Provider, add_account, deliveries_of, watch_of
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import Exchange, reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: A module that Python imports at each start. By it, a courier finds this name's address in a file.
_NAMES = """
from aiohttp import resolver

_resolve = resolver.ThreadedResolver.resolve

async def resolve(self, host, port=0, family=0):
    found = await _resolve(self, "127.0.0.1" if host == "receiver.test" else host, port, family)
    if host == "receiver.test":
        address = open({file!r}).read()
        found = [{{**each, "hostname": host, "host": address}} for each in found]
    return found

resolver.ThreadedResolver.resolve = resolve
"""
WELL = "/well"
_HUGE = 10 * 1024**3
_METADATA = "http://169.254.169.254/latest/meta-data/"
PATHS = (WELL, "/drips", "/huge", "/redirects", "/here", "/resets", "/gone", "/flaky")


@pytest_asyncio.fixture(loop_scope="session")
async def site(
    tmp_path: Path, redis_server: RedisServer, certificate: Certificate
) -> AsyncIterator[Site]:
    async with open_site(tmp_path, redis_server.url, certificate, PATHS) as made:
        yield made


class Huge:
    """Answers with 10 GB. written: the most that the other end took of one answer"""

    def __init__(self) -> None:
        self.written = 0

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % _HUGE)
        written = 0
        while written < _HUGE:
            await exchange.write(bytes(65536))
            # Writing to a connection that was reset never waits; only then it is known to be lost.
            await asyncio.sleep(0)
            written += 65536
            self.written = max(self.written, written)


class Drip:
    """Answers with a head at once, then with a byte again and again. over: it stops"""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not self.over.is_set():
            await exchange.write(b".")
            await asyncio.sleep(0.1)
        exchange.abort()


class Flaky:
    """Refuses the first ones, which open the breaker, and takes the others when it is well."""

    def __init__(self) -> None:
        self.is_well = asyncio.Event()
        self._left = FAILURES

    async def __call__(self, exchange: Exchange) -> None:
        self._left -= 1
        if self._left >= 0:
            await reply(503)(exchange)
        else:
            await self.is_well.wait()
            await reply(200)(exchange)


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def test_receivers_of_all_kinds(site: Site) -> None:
    """The one that is well gets everything, once; of each other one is known what is wrong."""
    huge, drip, flaky, answers = Huge(), Drip(), Flaky(), site.receiver.answers
    answers["/drips"], answers["/huge"], answers["/resets"] = drip, huge, reset
    answers["/redirects"] = reply(302, headers=[("Location", _METADATA)])
    answers["/here"] = reply(307, headers=[("Location", site.receiver.at("/trap"))])
    answers["/gone"], answers["/flaky"] = reply(410), flaky
    gateway = await site.gateway()
    await site.provider.send_accepted(gateway, 20)

    await becomes(gateway, site, "/flaky", "failing")
    flaky.is_well.set()
    await becomes(gateway, site, "/gone", "disabled")
    assert (await watch_of(gateway, site.account, "/gone"))["reason"] == "it answered 410 Gone"
    await site.provider.send_accepted(gateway, 20)
    await site.arrive(WELL)
    await becomes(gateway, site, "/flaky", "active")
    await site.arrive("/flaky")

    for path, status, words in (
        ("/drips", 0, "no complete answer within 15 s"),
        ("/huge", 200, None),
        ("/redirects", 302, ""),
        ("/here", 307, ""),
        ("/resets", 0, "the connection was closed before an answer"),
        ("/gone", 410, ""),
    ):
        await attempted(site, path, status, words)
    drip.over.set()
    for path in (WELL, "/huge"):
        assert set(site.times_at(path).values()) == {1}, path
    # In flight when it was disabled; what came later is not sent to it.
    assert len(site.times_at("/gone")) <= 8
    assert site.times_at("/trap") == {}
    assert huge.written < _HUGE / 100
    print(f"of 10 GB were taken at most {huge.written / 1e6:.1f} MB of an answer")


async def test_a_name_that_changes_its_address(site: Site, tmp_path: Path) -> None:
    """It is judged at each attempt: nothing is sent inside, until it is outside again."""
    address = tmp_path / "address"
    address.write_text("127.0.0.1")
    names = tmp_path / "names"
    names.mkdir()
    (names / "sitecustomize.py").write_text(_NAMES.format(file=str(address)))
    # Each event has a connection of its own.
    site.receiver.answers[WELL] = reply(200, headers=[("Connection", "close")])
    url = site.receiver.at("/moves").replace("127.0.0.1", "receiver.test")
    moves = await add_account(site.store, {"/moves": url}, number=2)
    site.receiver.answers["/moves"] = site.receiver.answers[WELL]
    provider = Provider(moves.integration)
    gateway = await site.gateway(python_path=str(names))
    (first,) = await provider.send_accepted(gateway, 1)
    await eventually(lambda: first in site.times_at("/moves"), "one arrives", LEASE_ENDS_S)
    address.write_text("169.254.169.254")
    (second,) = await provider.send_accepted(gateway, 1)

    async def is_refused() -> bool:
        made = await deliveries_of(site.store, moves, "/moves")
        return REFUSED in {each.found for one in made for each in one.attempts}

    await eventually(is_refused, "the other address is refused", LEASE_ENDS_S)
    assert second not in site.times_at("/moves")
    address.write_text("127.0.0.1")
    (third,) = await provider.send_accepted(gateway, 1)
    await eventually(lambda: third in site.times_at("/moves"), "one arrives", LEASE_ENDS_S)


async def test_judges(site: Site) -> None:
    """Libraries of others verify what is sent, as it arrives, and nothing that was changed."""
    gateway = await site.gateway()
    await site.provider.send_accepted(gateway, 3)
    await site.all_arrive()
    for sent in site.receiver.requests:
        headers = {name.lower(): value for name, value in sent.headers}
        secret = site.account.secret(sent.target)
        header = f"t={headers['x-service-timestamp']},{headers['x-service-signature']}"
        signature = stripe.WebhookSignature
        assert Webhook(secret).verify(sent.body, headers)["type"] == "build.finished"
        assert signature.verify_header(sent.body.decode(), header, secret, tolerance=300)
        changed = sent.body.replace(b"build.finished", b"build.finishe_")
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(changed, headers)
        with pytest.raises(stripe.SignatureVerificationError):
            signature.verify_header(changed.decode(), header, secret, tolerance=300)


async def becomes(gateway: ServedGateway, site: Site, path: str, status: str) -> None:
    async def has() -> bool:
        return bool((await watch_of(gateway, site.account, path))["status"] == status)

    await eventually(has, f"the watch of {path} is {status}", LEASE_ENDS_S)


async def attempted(site: Site, path: str, status: int, words: str | None) -> None:
    """Wait for an attempt; all attempts at this endpoint have ended so. words: None: any"""
    found: list[tuple[int, str]] = []

    async def has() -> bool:
        made = await deliveries_of(site.store, site.account, path)
        found[:] = [(each.status, each.found[:80]) for one in made for each in one.attempts]
        return found != []

    await eventually(has, f"an attempt at {path}", LEASE_ENDS_S)
    for its_status, its_words in found:
        assert (its_status, its_words if words is not None else None) == (status, words), path
