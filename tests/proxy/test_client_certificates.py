"""Clients that are known by a certificate, over TLS: beside keys, or in place of them."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.domain.policy import ClientCertificates, Tls
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.wire import Wire, bearer
from tests.proxy.conftest import Bench, Start


class Site(NamedTuple):
    """A gateway that asks for certificates of `clients`; one names the key `key_id`."""

    bench: Bench
    clients: trustme.CA
    server_ca: Path
    key_id: str

    def context(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.server_ca))
        if certificate is not None:
            certificate.configure_cert(context)
        return context

    async def connect(self, certificate: trustme.LeafCert | None = None) -> Wire:
        return Wire(
            *await asyncio.open_connection(
                "127.0.0.1",
                self.bench.gateway.port,
                ssl=self.context(certificate),
                server_hostname="gateway.test",
            )
        )

    async def status(
        self, certificate: trustme.LeafCert | None, headers: list[tuple[str, str]] | None = None
    ) -> int:
        async with await self.connect(certificate) as wire:
            return (await wire.request("GET", "/api/x", headers or [])).status


NAME = "email:ci@example.test"


async def site_with(start: Start, folder: Path, *, required: bool = True, name: str = NAME) -> Site:
    made = make_certificate(folder, ["gateway.test"])
    clients = trustme.CA()
    clients.cert_pem.write_to_path(str(folder / "clients.pem"))
    tls = Tls(str(made.certificate), str(made.key))
    bench = await start(tls=tls)
    key_id = bench.key.split("_")[2]
    asked = ClientCertificates(str(folder / "clients.pem"), required, ((name, key_id),))
    gateway = bench.gateway
    gateway._use(replace(gateway._policy, tls=replace(tls, client_certificates=asked)))
    before = gateway._certificates.context
    gateway._certificates.reload_now()
    await eventually(lambda: gateway._certificates.context is not before, "it is loaded")
    return Site(bench, clients, made.ca, key_id)


async def test_a_certificate_is_the_identity(start: Start, tmp_path: Path) -> None:
    """Its request is limited like one with the key, and has its id; on the same connection, too."""
    site = await site_with(start, tmp_path)
    with_key = ""
    async with await site.connect(site.clients.issue_cert("ci@example.test")) as wire:
        for _ in range(3):
            answer = await wire.request("GET", "/api/x")
            assert answer.status == 200
            remaining = answer["X-RateLimit-Remaining"]
            assert with_key in ("", str(int(remaining) + 1))
            answer = await wire.request("GET", "/api/x", bearer(site.bench.key))
            with_key = answer["X-RateLimit-Remaining"]
            assert int(with_key) == int(remaining) - 1


async def test_a_subject_is_a_name(start: Start, tmp_path: Path) -> None:
    """As OpenSSL writes it, the common name first."""
    name = "CN=ci,OU=Build\\, Test,O=Example"
    site = await site_with(start, tmp_path, name=name)
    made = site.clients.issue_cert(
        "other.test",
        common_name="ci",
        organization_name="Example",
        organization_unit_name="Build, Test",
    )
    assert await site.status(made) == 200
    other = site.clients.issue_cert(
        "other.test", common_name="ci,OU=Build, Test", organization_name="Example"
    )
    assert await site.status(other) == 401


async def test_a_certificate_without_a_key(start: Start, tmp_path: Path) -> None:
    """It is a connection, and no identity: a key has to be sent. A sent key comes first."""
    site = await site_with(start, tmp_path)
    stranger = site.clients.issue_cert("stranger@example.test")
    assert await site.status(stranger) == 401
    assert await site.status(stranger, bearer(site.bench.key)) == 200
    known = site.clients.issue_cert("ci@example.test")
    other = await site.bench.mint(status="revoked")
    assert await site.status(known, bearer(other)) == 401
    assert await site.status(known, [("Authorization", "Bearer nonsense")]) == 401


def issue_with_names(authority: trustme.CA, names: bytes) -> trustme.LeafCert:
    """A certificate with this subjectAltName, in DER, which need not be valid."""
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    signing = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ci")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, names), critical=False
        )
        .sign(signing, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return trustme.LeafCert(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        made.public_bytes(pem),
        [],
    )


async def test_names_that_cannot_be_read(start: Start, tmp_path: Path) -> None:
    """A URI or DNS name that is not text: the certificate is no identity, and no fault of ours."""
    site = await site_with(start, tmp_path, name="CN=ci")
    assert await site.status(issue_with_names(site.clients, b"\x30\x04\x86\x02a:")) == 200
    for tag in (b"\x82", b"\x86"):
        made = issue_with_names(site.clients, b"\x30\x04%b\x02a\xff" % tag)
        assert await site.status(made) == 401
        assert await site.status(made, bearer(site.bench.key)) == 200


async def test_names_in_headers_are_nothing(start: Start, tmp_path: Path) -> None:
    """What proxies tell of certificates is neither an identity nor forwarded."""
    site = await site_with(start, tmp_path, required=False)
    lines = [("Client-Cert", ":YQ==:"), ("X-Forwarded-Client-Cert", "URI=a"), ("X-SSL-CN", "ci")]
    assert await site.status(None, lines) == 401
    async with await site.connect(site.clients.issue_cert("ci@example.test")) as wire:
        assert (await wire.request("GET", "/api/x", lines)).status == 200
    (request,) = site.bench.upstream.requests
    sent = {name.lower() for name, _ in request.headers}
    assert not sent & {name.lower() for name, _ in lines}


async def test_one_is_required(start: Start, tmp_path: Path) -> None:
    """None, one of another authority, an expired one: no connection."""
    site = await site_with(start, tmp_path)
    past = datetime(2020, 1, 2, tzinfo=UTC)
    expired = site.clients.issue_cert(
        "ci@example.test", not_before=datetime(2020, 1, 1, tzinfo=UTC), not_after=past
    )
    for made in (None, trustme.CA().issue_cert("ci@example.test"), expired):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await site.status(made, bearer(site.bench.key))


async def test_one_is_optional(start: Start, tmp_path: Path) -> None:
    """Without one, a key is needed; one that does not verify is refused all the same."""
    site = await site_with(start, tmp_path, required=False)
    assert await site.status(None) == 401
    assert await site.status(None, bearer(site.bench.key)) == 200
    assert await site.status(site.clients.issue_cert("ci@example.test")) == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await site.status(trustme.CA().issue_cert("ci@example.test"))


async def test_the_key_ends(start: Start, tmp_path: Path) -> None:
    """A revoked key ends its certificate's requests, also on an open connection."""
    site = await site_with(start, tmp_path)
    async with await site.connect(site.clients.issue_cert("ci@example.test")) as wire:
        assert (await wire.request("GET", "/api/x")).status == 200
        keys = site.bench.gateway.keys
        record = await keys.get(site.key_id)
        assert record is not None
        await keys.replace(record, replace(record, status="revoked"))

        async def is_refused() -> bool:
            return (await wire.request("GET", "/api/x")).status == 401

        await eventually(is_refused, "it is refused")


async def test_a_name_that_is_removed(start: Start, tmp_path: Path) -> None:
    """From the next request on, the certificate is no identity."""
    site = await site_with(start, tmp_path)
    async with await site.connect(site.clients.issue_cert("ci@example.test")) as wire:
        assert (await wire.request("GET", "/api/x")).status == 200
        policy = site.bench.gateway._policy
        assert policy.tls is not None
        asked = policy.tls.client_certificates
        assert asked is not None
        without = replace(policy.tls, client_certificates=replace(asked, keys=()))
        site.bench.gateway._use(replace(policy, tls=without))
        assert (await wire.request("GET", "/api/x")).status == 401
