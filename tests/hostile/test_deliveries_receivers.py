"""Receivers that are slow, hostile or gone, beside one that is well; and those that judge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import stripe
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from gateway.domain.webhooks.schedule import FAILURES
from gateway.webhooks.sender import REFUSED
from tests.kit.certificates import Certificate
from tests.kit.dns_server import ScriptedDns
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.hook_site import Site, open_site
from tests.kit.hooks import (
    LEASE_ENDS_S,
    Account,
    Provider,
    add_account,
    deliveries_of,
    watch_of,
)
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import Exchange, reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: A module that Python imports at each start. By it, a courier asks the DNS of the test.
_NAMES = """
from pathlib import Path
from gateway.proxy import resolver

resolver.CONFIGURATION, resolver.PORT = Path({file!r}), {port}
"""
NAME = "receiver.test"
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


@pytest_asyncio.fixture(loop_scope="session")
async def named(site: Site, tmp_path: Path) -> AsyncIterator[Named]:
    """A watch whose receiver has a name, and the DNS that has its address."""
    async with ScriptedDns({(NAME, "A"): ["127.0.0.1"]}) as dns_server:
        configuration, names = tmp_path / "resolv.conf", tmp_path / "names"
        configuration.write_text("nameserver 127.0.0.1\n")
        names.mkdir()
        text = _NAMES.format(file=str(configuration), port=dns_server.port)
        (names / "sitecustomize.py").write_text(text)
        # Each event has a connection of its own.
        site.receiver.answers["/named"] = reply(200, headers=[("Connection", "close")])
        url = site.receiver.at("/named").replace("127.0.0.1", NAME)
        account = await add_account(site.store, {"/named": url}, number=2)
        gateway = await site.gateway(python_path=str(names))
        yield Named(gateway, dns_server, account, Provider(account.integration))


@dataclass(frozen=True, slots=True)
class Named:
    gateway: ServedGateway
    dns_server: ScriptedDns
    account: Account
    provider: Provider

    async def deliver(self, site: Site, count: int = 1) -> None:
        """Send events, which arrive."""
        events = await self.provider.send_accepted(self.gateway, count)

        def have_arrived() -> bool:
            return set(events) <= site.times_at("/named").keys()

        await eventually(have_arrived, f"{count} arrive", LEASE_ENDS_S)


async def test_a_name_that_changes_its_address(site: Site, named: Named) -> None:
    """It is judged at each attempt: nothing is sent inside, until it is outside again."""
    dns_server, address = named.dns_server, (NAME, "A")
    await named.deliver(site)
    dns_server.records[address] = ["169.254.169.254"]

    refused: set[str] = set()

    async def is_refused() -> bool:
        # The address before is used for a second more.
        await named.provider.send_accepted(named.gateway, 1)
        for made in await deliveries_of(site.store, named.account, "/named"):
            if REFUSED in {each.found for each in made.attempts}:
                refused.add(made.id.partition(":")[0])
        return refused != set()

    await eventually(is_refused, "the other address is refused", LEASE_ENDS_S)
    assert not refused & site.times_at("/named").keys()
    dns_server.records[address] = ["127.0.0.1"]
    await named.deliver(site)


async def test_names_that_hang(site: Site, named: Named) -> None:
    """The deliveries to each of them wait for DNS, and those to others do not."""
    await named.deliver(site)
    named.dns_server.silent = ".hangs.test"
    urls = {f"/{number}": f"https://{number}.hangs.test/" for number in range(40)}
    hanging = await add_account(site.store, urls, number=3)
    await Provider(hanging.integration).send_accepted(named.gateway, 10)
    await named.deliver(site, 20)
    await attempted(site, "/0", 0, "DNS did not answer in time", hanging)


async def test_judges(site: Site) -> None:
    """Libraries of others verify what is sent, as it arrives, and nothing that was changed."""
    gateway = await site.gateway()
    await site.provider.send_accepted(gateway, 3)
    await site.all_arrive()
    assert site.receiver.requests
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


async def attempted(
    site: Site, path: str, status: int, words: str | None, account: Account | None = None
) -> None:
    """Wait for an attempt; all attempts at this endpoint have ended so. words: None: any"""
    found: list[tuple[int, str]] = []

    async def has() -> bool:
        made = await deliveries_of(site.store, account or site.account, path)
        found[:] = [(each.status, each.found[:80]) for one in made for each in one.attempts]
        return found != []

    await eventually(has, f"an attempt at {path}", LEASE_ENDS_S)
    for its_status, its_words in found:
        assert (its_status, its_words if words is not None else None) == (status, words), path
