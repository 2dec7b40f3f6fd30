"""Who may do what in the example: certificates, keys, addresses, maintenance, pages of errors."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from cryptography import x509

from tests.kit.eventually import eventually
from tests.kit.gateway import create_key
from tests.kit.tidybill import API, APP, Tidybill
from tests.kit.upstream import SecureUpstream
from tests.kit.wire import Response, Wire

pytestmark = pytest.mark.asyncio(loop_scope="session")

BROWSER = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")]


def code_of(answer: Response) -> str:
    code: str = answer.json()["code"]
    return code


async def names_for(tidybill: Tidybill, name: str | None) -> list[str]:
    """The names of the certificate that a client gets which asks for this one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # Without a name of its own the connection has that of its host.
    opened = await asyncio.open_connection(
        "127.0.0.1", tidybill.gateway.port, ssl=context, server_hostname=name or ""
    )
    async with Wire(*opened):
        found = opened[1].get_extra_info("ssl_object").getpeercert(binary_form=True)
    names = x509.load_der_x509_certificate(found).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return names.value.get_values_for_type(x509.DNSName)


async def test_each_host_has_its_certificate(tidybill: Tidybill) -> None:
    """By the name that a client asks for; the first one for all others."""
    assert await names_for(tidybill, API) == [API]
    assert await names_for(tidybill, APP) == [APP]
    assert await names_for(tidybill, "tidybill.example") == [API]
    assert await names_for(tidybill, None) == [API]


async def is_served(tidybill: Tidybill, context: ssl.SSLContext) -> bool:
    """Does the server of payments answer a client with this context?"""
    port = tidybill.services["payments"].server.port
    try:
        opened = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="payments.internal"
        )
        async with Wire(*opened) as wire:
            await wire.send(b"GET /healthz HTTP/1.1\r\nHost: payments.internal\r\n\r\n")
            # With TLS 1.3 a client learns here that it was refused.
            return await wire.read_some() != b""
    except (ssl.SSLError, ConnectionError):
        return False


async def test_payments_know_the_gateway(tidybill: Tidybill) -> None:
    """Its certificate is required; the name that it asks for is that in the policies."""
    answer = await tidybill.fetch(f"{API}/v1/payments/1", key=await tidybill.key())
    assert answer.status == 200
    server = tidybill.services["payments"].server
    assert isinstance(server, SecureUpstream)
    assert set(server.names) == {"payments.internal"}
    ca, ours = tidybill.certificates["internal"].ca, tidybill.certificates["gateway"]
    context = ssl.create_default_context(cafile=str(ca))
    assert not await is_served(tidybill, context)
    context.load_cert_chain(ours.certificate, ours.key)
    assert await is_served(tidybill, context)


async def test_a_key_of_an_operator(tidybill: Tidybill) -> None:
    """Created by the command; the app's keys read and write what they may, and nothing else."""
    gateway = tidybill.gateway
    _, key = await create_key(
        tidybill.store, gateway.policies, plan="browser", account="acme", scope="customers:read"
    )
    answer = await tidybill.fetch(f"{API}/v1/customers/7", key=key)
    assert (answer.status, answer["X-RateLimit-Limit"]) == (200, "300")
    assert (await tidybill.line(answer))["account"] == "acme"
    refused = await tidybill.fetch(f"{API}/v1/customers/7", key=key, method="DELETE")
    assert (refused.status, code_of(refused)) == (403, "INSUFFICIENT_SCOPE")
    assert "customers:write" in refused.json()["message"]
    assert refused.json()["doc"] == "https://docs.tidybill.example/errors#insufficient_scope"
    assert tidybill.received(refused) == []


async def test_payments_need_service_and_permission(tidybill: Tidybill) -> None:
    """The permission is of the key, the service of its account."""
    reader = await tidybill.key(permissions={"payments": ("read",)})
    assert (await tidybill.fetch(f"{API}/v1/payments/1", key=reader)).status == 200
    refused = await tidybill.fetch(f"{API}/v1/payments", key=reader, method="POST")
    assert (refused.status, code_of(refused)) == (403, "INSUFFICIENT_PERMISSION")
    other = await tidybill.key(services=())
    refused = await tidybill.fetch(f"{API}/v1/payments/1", key=other)
    assert (refused.status, code_of(refused)) == (403, "SERVICE_NOT_ENABLED")


async def test_without_a_key(tidybill: Tidybill) -> None:
    """401, and after thirty from one address 429; another address goes on."""
    url, client = f"{API}/v1/invoices", "203.0.113.77"
    statuses = [(await tidybill.fetch(url, client=client)).status for _ in range(31)]
    assert statuses == [401] * 30 + [429]
    answer = await tidybill.fetch(url, headers=[("apiKey", "nonsense")])
    assert (answer.status, code_of(answer)) == (401, "INVALID_API_KEY")


@pytest.mark.parametrize(
    ("request_line", "inside", "outside"),
    [
        (f"POST {API}/v1/payouts", "2001:db8:40::7", "2001:db8:41::7"),
        (f"POST {API}/hooks/cards", "198.51.100.159", "198.51.100.160"),
    ],
)
async def test_addresses_in_files(
    tidybill: Tidybill, request_line: str, inside: str, outside: str
) -> None:
    """Only these may use the route, whatever key they have."""
    method, url = request_line.split(" ")
    key = await tidybill.key()
    for client, status in ((inside, 200), (outside, 403)):
        answer = await tidybill.fetch(url, key=key, method=method, client=client)
        assert answer.status == status
        assert bool(tidybill.received(answer)) == (status == 200)


async def test_blocked_addresses(tidybill: Tidybill) -> None:
    """They get nothing on any route, also those that are added while the gateway runs."""
    blocked = await tidybill.fetch(f"{APP}/", client="192.0.2.66")
    assert (blocked.status, code_of(blocked)) == (403, "ADDRESS_DENIED")
    client = "192.0.2.99"
    assert (await tidybill.fetch(f"{APP}/", client=client)).status == 200
    file = tidybill.gateway.policies / "networks/blocked.txt"
    file.write_text(f"{file.read_text()}{client}\n")

    async def is_blocked() -> bool:
        return (await tidybill.fetch(f"{APP}/", client=client)).status == 403

    await eventually(is_blocked, "the changed file is loaded")


async def test_maintenance(tidybill: Tidybill) -> None:
    """One route is closed, except for the office; the others are open."""
    refused = await tidybill.fetch(f"{APP}/statements/7")
    assert (refused.status, refused["Retry-After"]) == (503, "1800")
    assert "14:00 UTC" in refused.json()["message"]
    office = await tidybill.fetch(f"{APP}/statements/7", client="198.51.100.15")
    assert office.status == 200
    assert (await tidybill.fetch(f"{APP}/invoices")).status == 200


async def test_pages_of_errors(tidybill: Tidybill) -> None:
    """Browsers get the page of the policies, escaped; programs JSON."""
    page = await tidybill.fetch(f"{APP}/statements/7", headers=BROWSER)
    assert page["Content-Type"].startswith("text/html")
    text = page.body.decode()
    assert "<title>Tidybill: 503</title>" in text
    assert "<p>Statements are being moved" in text
    assert f"<code>{page['X-Request-Id']}</code>" in text
    program = await tidybill.fetch(f"{APP}/statements/7")
    assert program["Content-Type"] == "application/json"


async def test_answers_of_the_gateway(tidybill: Tidybill) -> None:
    """A version that has ended, a redirect, and a file of the policy folder."""
    gone = await tidybill.fetch(f"{API}/v0/bills/7", method="PUT")
    assert (gone.status, gone["Content-Type"]) == (410, "application/json")
    assert "Use /v1" in gone.json()["error"]
    moved = await tidybill.fetch(f"{API}/")
    assert (moved.status, moved["Location"]) == (308, "https://docs.tidybill.example/")
    robots = await tidybill.fetch(f"{APP}/robots.txt")
    assert robots["Content-Type"].startswith("text/plain")
    assert robots.body == (tidybill.gateway.policies / "pages/robots.txt").read_bytes()
