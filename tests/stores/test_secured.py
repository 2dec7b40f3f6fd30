"""Stores behind TLS, a user with a password, or a socket of the file system."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.cli.main import cli
from gateway.domain.identity import Identity
from gateway.stores.redis.address import StoreAddress, parse_url, read_address
from gateway.stores.redis.clients import redis_client, sentinel_client
from gateway.stores.redis.connection import StoreConnection
from tests.kit.acl import RULES
from tests.kit.certificates import Certificate, make_certificate
from tests.kit.eventually import eventually
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer, server_binary
from tests.stores.under_load import (
    Load,
    is_revoked,
    looked_up,
    opened_store,
    revoke,
    with_keys,
)

SECRET = "correct-horse"


def has_tls() -> bool:
    """Was the server built with TLS? Then it reports the missing certificate."""
    words = [str(server_binary()), "--port", "0", "--tls-port", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    return "configure TLS" in done.stdout + done.stderr


# The packaged one was built without; Debian's has it, and there a skip fails.
needs_tls = pytest.mark.skipif(not has_tls(), reason="the redis-server was built without TLS")


class Secured(NamedTuple):
    """The addresses of one server. made: its certificate, for "localhost", and its authority."""

    server: RedisServer
    tls_port: int
    made: Certificate
    socket: Path


@pytest.fixture(scope="module")
def _secured(short_folder: Path) -> Iterator[Secured]:
    made = make_certificate(short_folder, ["localhost"])
    port, socket = free_port(), short_folder / "redis.sock"
    tls = (
        *("--tls-port", str(port), "--tls-auth-clients", "no"),
        *("--tls-cert-file", str(made.certificate), "--tls-key-file", str(made.key)),
        *("--tls-ca-cert-file", str(made.ca)),
    )
    server = RedisServer("--unixsocket", str(socket), *(tls if has_tls() else ()))
    server.start()
    try:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "app", "reset", "on", f">{SECRET}", *RULES)
        yield Secured(server, port, made, socket)
    finally:
        server.stop()


@pytest.fixture
def secured(_secured: Secured) -> Secured:
    """A server with a user "app", empty at the start of each test."""
    with _secured.server.client() as client:
        client.flushall()
    return _secured


async def serves(address: StoreAddress) -> None:
    """Check that everything a gateway does with a store works at this address."""
    async with opened_store(address) as store, Load(store) as load:
        (record,) = await with_keys(store, 1)
        used = await looked_up(store, record.id)
        assert isinstance(used, Identity)
        store.directory.touch(used)
        await load.for_rounds(3)
        await load.is_exact()
        assert load.local == 0
        await revoke(address, record)
        await eventually(lambda: is_revoked(store, record), "it is refused")
        keys = store.keys

        async def was_used() -> bool:
            return record.id in await keys.last_used([record.id])

        await eventually(was_used, "its use is noted")


async def why_not(address: StoreAddress) -> str:
    """The error of a link to this address."""
    link = StoreConnection(address)
    link.start()
    try:
        await eventually(lambda: link.last_error is not None, "it fails")
        return str(link.last_error)
    finally:
        await link.stop()


async def test_a_user_and_a_password(secured: Secured) -> None:
    """The documented rights are enough for the gateway's user."""
    await serves(parse_url(f"redis://app:{SECRET}@127.0.0.1:{secured.server.port}"))


async def test_a_wrong_password(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong password is reported in one line without it, by the link and the commands."""
    url = f"redis://app@127.0.0.1:{secured.server.port}/0"
    error = await why_not(parse_url(url, "hunter2"))
    assert "WRONGPASS" in error
    monkeypatch.setenv("GATEWAY_STORE_PASSWORD", "hunter2")
    words = ["keys", "list", "--store", url]
    refused = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert refused.exit_code == 1
    for text in (error, refused.output.strip()):
        assert "\n" not in text
        assert "hunter2" not in text


async def test_each_link_tells_its_reason(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    """Readiness and log name the last reason of each link: the command, and what to do about it."""
    port, admin = secured.server.port, secured.server.client()
    admin.execute_command("ACL", "SETUSER", "limited", "reset", "on", f">{SECRET}", *RULES)
    address = parse_url(f"redis://limited:{SECRET}@127.0.0.1:{port}")
    try:
        async with opened_store(address) as store:
            admin.execute_command("ACL", "SETUSER", "limited", "-evalsha", "-client|tracking")
            admin.execute_command("CLIENT", "KILL", "USER", "limited")

            def tells(*words: str) -> bool:
                found = store.detail()
                return all(word in found for word in (*words, "on_store_failure: local"))

            refused = f"redis://127.0.0.1:{port}/0 refuses the connection at"
            rights = ("NOPERM", "docs/store.md")
            await eventually(
                lambda: tells(
                    f"limits: {refused} EVALSHA", f"keys: {refused} CLIENT TRACKING", *rights
                ),
                "each link has its reason",
            )
            admin.execute_command("ACL", "SETUSER", "limited", "+client|tracking")
            await eventually(lambda: "keys: " not in store.detail(), "the keys are read again")
            assert tells(f"limits: {refused} EVALSHA", *rights)
            admin.execute_command("ACL", "SETUSER", "limited", "+evalsha")
            await eventually(store.is_up, "it is available again")
            assert store.detail() == "ok"
    finally:
        admin.close()
    told = [record.message for record in caplog.records if "still unavailable" in record.message]
    assert any("limits: " in line and "EVALSHA: NOPERM" in line for line in told)
    assert any("keys: " in line and "CLIENT TRACKING: NOPERM" in line for line in told)
    assert not any(SECRET in line for line in told)


async def test_a_renewed_password(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection of a link and of a client uses the password that its file has by then."""
    file, admin = tmp_path / "password", secured.server.client()
    file.write_text(SECRET)
    admin.execute_command("ACL", "SETUSER", "renewed", "reset", "on", f">{SECRET}", *RULES)
    monkeypatch.setenv("GATEWAY_STORE_PASSWORD_FILE", str(file))
    address = read_address(f"redis://renewed@127.0.0.1:{secured.server.port}")
    link, client = StoreConnection(address), redis_client(address)
    link.start()
    try:
        await link.wait_up()
        assert await client.ping()
        admin.execute_command("ACL", "SETUSER", "renewed", "resetpass", ">renewed")
        admin.execute_command("CLIENT", "KILL", "USER", "renewed")
        await eventually(lambda: "WRONGPASS" in str(link.last_error), "the old one is refused")
        with pytest.raises(AuthenticationError):
            await client.ping()
        file.unlink()
        await eventually(lambda: "No such file" in str(link.last_error), "it is absent")
        with pytest.raises(AuthenticationError, match=r"PASSWORD_FILE.*No such file"):
            await client.ping()
        file.write_text("renewed\n")
        await link.wait_up()
        assert await client.ping()
    finally:
        await client.aclose()
        await link.stop()
        admin.close()


async def test_a_renewed_password_of_sentinels(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection to a Sentinel uses the password that its file has by then."""
    file = tmp_path / "password"
    file.write_text("old")
    monkeypatch.setenv("GATEWAY_SENTINEL_PASSWORD_FILE", str(file))
    sentinels = sentinel_client(
        read_address(f"redis+sentinel://127.0.0.1:{secured.server.port}/main")
    )
    with secured.server.client() as admin:
        admin.config_set("requirepass", "new")
        try:
            with pytest.raises(AuthenticationError):
                await sentinels.sentinels[0].ping()
            file.write_text("new")
            assert await sentinels.sentinels[0].ping()
        finally:
            admin.config_set("requirepass", "")
            await sentinels.aclose()


async def test_a_socket(secured: Secured) -> None:
    """A store may be a socket of the file system, and have users as well."""
    await serves(parse_url(f"unix://app:{SECRET}@{secured.socket}"))


@needs_tls
async def test_tls(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store's certificate is verified by the authority in SSL_CERT_FILE."""
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.made.ca))
    await serves(parse_url(f"rediss://app:{SECRET}@localhost:{secured.tls_port}"))


@needs_tls
async def test_tls_that_cannot_be_verified(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown authority or another name is refused by the link and by the commands."""
    monkeypatch.setenv("GATEWAY_STORE_PASSWORD", SECRET)
    address = parse_url(f"rediss://app@localhost:{secured.tls_port}", SECRET)
    assert "CERTIFICATE_VERIFY_FAILED" in await why_not(address)
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.made.ca))
    other = replace(address, host="127.0.0.1")
    assert "CERTIFICATE_VERIFY_FAILED" in await why_not(other)
    words = ["keys", "list", "--store", other.label.replace("://", "://app@")]
    refused = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert refused.exit_code == 1
    assert "CERTIFICATE_VERIFY_FAILED" in refused.output


@needs_tls
async def test_renewed_authorities(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each connection of a client verifies the server by the authorities that it has by then."""
    authorities, other = tmp_path / "authorities.pem", make_certificate(tmp_path, ["localhost"])
    authorities.write_bytes(secured.made.ca.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    client = redis_client(parse_url(f"rediss://app:{SECRET}@localhost:{secured.tls_port}"))
    try:
        assert await client.ping()
        authorities.write_bytes(other.ca.read_bytes())
        assert await client.ping(), "a connection stays"
        with secured.server.client() as admin:
            admin.execute_command("CLIENT", "KILL", "USER", "app")
        with pytest.raises(RedisConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.ping()
        authorities.write_bytes(secured.made.ca.read_bytes())
        assert await client.ping()
    finally:
        await client.aclose()


@pytest.fixture
def requires_a_certificate(secured: Secured) -> Iterator[Secured]:
    """The server accepts only clients with a certificate of its authority."""
    with secured.server.client() as client:
        client.config_set("tls-auth-clients", "yes")
        yield secured
        client.config_set("tls-auth-clients", "no")


@needs_tls
async def test_a_server_that_requires_a_certificate(
    requires_a_certificate: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link and the commands present the certificate that the environment names."""
    secured = requires_a_certificate
    url = f"rediss://app@localhost:{secured.tls_port}"
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.made.ca))
    monkeypatch.setenv("GATEWAY_STORE_PASSWORD", SECRET)
    words = ["keys", "list", "--store", url]
    assert await why_not(read_address(url))
    assert (await asyncio.to_thread(CliRunner().invoke, cli, words)).exit_code == 1
    monkeypatch.setenv("GATEWAY_STORE_CERTIFICATE", str(secured.made.certificate))
    monkeypatch.setenv("GATEWAY_STORE_CERTIFICATE_KEY", str(secured.made.key))
    await serves(read_address(url))
    listed = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert listed.exit_code == 0, listed.output


@needs_tls
async def test_a_certificate_of_another_authority(
    requires_a_certificate: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A certificate by another authority is refused."""
    secured, other = requires_a_certificate, make_certificate(tmp_path, ["localhost"])
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.made.ca))
    monkeypatch.setenv("GATEWAY_STORE_CERTIFICATE", str(other.certificate))
    monkeypatch.setenv("GATEWAY_STORE_CERTIFICATE_KEY", str(other.key))
    assert await why_not(read_address(f"rediss://app:{SECRET}@localhost:{secured.tls_port}"))


@needs_tls
async def test_a_missing_certificate(
    requires_a_certificate: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is read for each connection; a missing file is named, and tried again."""
    secured, copy = requires_a_certificate, tmp_path / "copy.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.made.ca))
    copy.write_bytes(secured.made.certificate.read_bytes())
    address = replace(
        parse_url(f"rediss://app:{SECRET}@localhost:{secured.tls_port}"),
        certificate=str(copy),
        certificate_key=str(secured.made.key),
    )
    copy.rename(tmp_path / "elsewhere")
    link = StoreConnection(address)
    link.start()
    try:
        await eventually(lambda: link.last_error is not None, "it fails")
        assert f"GATEWAY_STORE_CERTIFICATE {copy}" in str(link.last_error)
        assert "No such file" in str(link.last_error)
        (tmp_path / "elsewhere").rename(copy)
        await eventually(lambda: link.is_up, "it is renewed")
    finally:
        await link.stop()
