"""Certificates are used, reloaded when they change, and kept if the new ones are faulty."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway import tasks
from gateway.domain.policy import CertificateFiles, Tls
from gateway.proxy.tls import TlsTransport
from gateway.runtime import certificates as module
from gateway.runtime.certificates import (
    CertificateFault,
    Certificates,
    build_context,
    keep_certificates,
)
from gateway.runtime.file_watch import Signature, signature
from gateway.runtime.settings import CannotStart
from tests.kit.certificates import Certificate, make_certificate
from tests.kit.eventually import eventually
from tests.kit.needs import needs


def tls_of(made: Certificate) -> Tls:
    return Tls(str(made.certificate), str(made.key))


def shaken(
    server: ssl.SSLContext,
    ca: Path | None,
    alpn: tuple[str, ...] = (),
    adjust: Callable[[ssl.SSLContext], None] = lambda _context: None,
) -> ssl.SSLObject:
    """A handshake in memory; return the client's side. ca: the trusted authority; None: any."""
    client = ssl.create_default_context(cafile=ca)
    if ca is None:
        client.check_hostname = False
        client.verify_mode = ssl.CERT_NONE
    if alpn:
        client.set_alpn_protocols(list(alpn))
    adjust(client)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return ours


def shows(context: ssl.SSLContext, made: Certificate) -> bool:
    """Is this certificate presented to clients?"""
    try:
        return shaken(context, made.ca).version() is not None
    except ssl.SSLCertVerificationError:
        return False


class Watched:
    """Certificates that are watched while the test runs, and the faults they report."""

    def __init__(self, tls: Tls, interval_s: float = 0.005) -> None:
        self.faults: list[CertificateFault] = []
        self.tls = tls
        self.certificates = Certificates(
            lambda: self.tls, on_fault=self.faults.append, interval_s=interval_s
        )

    @property
    def context(self) -> ssl.SSLContext:
        return self.certificates.context

    async def until_shown(self, made: Certificate) -> None:
        await eventually(lambda: shows(self.context, made), "another certificate shown")

    async def until_faults(self, count: int) -> None:
        await eventually(lambda: len(self.faults) >= count, f"{count} faults")

    async def turns(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        """Wait until the files were checked this many times more."""
        looked = 0

        def counted(files: Iterable[str]) -> Signature:
            nonlocal looked
            looked += 1
            return signature(files)

        with monkeypatch.context() as patch:
            patch.setattr(module, "signature", counted)
            await eventually(lambda: looked >= count, f"{count} looks")


@contextlib.asynccontextmanager
async def watching(tls: Tls, interval_s: float = 0.005) -> AsyncIterator[Watched]:
    watched = Watched(tls, interval_s)
    task = asyncio.create_task(watched.certificates.run())
    yield watched
    assert not task.done(), "the watch ended by itself"
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_client_is_shown_the_certificate(tmp_path: Path) -> None:
    """Clients that trust its authority connect, over TLS 1.3 and HTTP/1.1; others fail."""
    made = make_certificate(tmp_path, ["localhost"])
    other = make_certificate(tmp_path, ["localhost"], "other")
    context = build_context(tls_of(made))
    client = shaken(context, made.ca, ("h2", "http/1.1"))
    assert client.version() == "TLSv1.3"
    assert client.selected_alpn_protocol() == "http/1.1"
    assert client.compression() is None
    assert shaken(context, made.ca).selected_alpn_protocol() is None
    assert shaken(context, made.ca, ("h2",)).selected_alpn_protocol() is None
    assert not shows(context, other)


def test_tls_versions(tmp_path: Path) -> None:
    """TLS 1.2 is supported, 1.1 is not; there is no renegotiation and no compression."""
    context = build_context(tls_of(make_certificate(tmp_path, ["localhost"])))
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION

    def at_most_1_2(client: ssl.SSLContext) -> None:
        client.maximum_version = ssl.TLSVersion.TLSv1_2

    def at_most_1_1(client: ssl.SSLContext) -> None:
        client.options &= ~(ssl.OP_NO_TLSv1_1 | ssl.OP_NO_TLSv1)
        client.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.deprecated_call():
            client.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.deprecated_call():
            client.maximum_version = ssl.TLSVersion.TLSv1_1

    assert shaken(context, None, adjust=at_most_1_2).version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError, match=r"(?i)version|protocol"):
        shaken(context, None, adjust=at_most_1_1)


def test_the_lowest_version_ciphers_and_curves(tmp_path: Path) -> None:
    """A client with others gets no connection; every certificate has the same settings."""
    _, tls = several(tmp_path, "a.test", "localhost")

    def at_most_1_2(client: ssl.SSLContext) -> None:
        client.maximum_version = ssl.TLSVersion.TLSv1_2

    newer = build_context(replace(tls, min_version="1.3"))
    assert shaken(newer, None).version() == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match=r"(?i)version|protocol"):
        shaken(newer, None, adjust=at_most_1_2)
    chacha = build_context(replace(tls, ciphers="ECDHE+CHACHA20"))
    found = shaken(chacha, None, adjust=at_most_1_2).cipher()
    assert found is not None
    assert "CHACHA20" in found[0]

    def other_curve(client: ssl.SSLContext) -> None:
        client.set_ecdh_curve("secp384r1")

    curve = build_context(replace(tls, curves=("prime256v1",)))
    assert shaken(curve, None).version() == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match=r"(?i)handshake|share"):
        shaken(curve, None, adjust=other_curve)


async def test_a_new_pair_is_loaded(tmp_path: Path) -> None:
    """New connections get it; the context of those that have begun keeps the old one."""
    first = make_certificate(tmp_path, ["localhost"])
    first = first._replace(ca=first.ca.rename(tmp_path / "first-ca.pem"))
    async with watching(tls_of(first)) as watched:
        before = watched.context
        assert shows(before, first)
        second = make_certificate(tmp_path, ["localhost"])
        await watched.until_shown(second)
        assert shows(before, first)


async def test_a_change_between_the_start_and_the_first_look(tmp_path: Path) -> None:
    """A change after the load at the start is loaded as well."""
    made = make_certificate(tmp_path, ["localhost"])
    watched = Watched(tls_of(made))
    made = make_certificate(tmp_path, ["localhost"])
    task = asyncio.create_task(watched.certificates.run())
    await watched.until_shown(made)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("how", ["..data", "file"])
async def test_a_swapped_link(tmp_path: Path, how: str) -> None:
    """Links are followed: Kubernetes's ..data, or the files' own."""
    old = make_certificate(tmp_path / "old", ["localhost"])
    new = make_certificate(tmp_path / "new", ["localhost"])
    for path in (*old, *new):
        os.utime(path, (1, 1))  # so that the date does not show the change
    folder = tmp_path / "mounted"
    folder.mkdir()
    names = [old.certificate.name, old.key.name]
    if how == "..data":
        (folder / "..data").symlink_to(old.certificate.parent)
    for name in names:
        target = f"..data/{name}" if how == "..data" else old.certificate.parent / name
        (folder / name).symlink_to(target)
    async with watching(Tls(*(str(folder / name) for name in names))) as watched:
        assert shows(watched.context, old)
        for name in ["..data"] if how == "..data" else names:
            swap = tmp_path / "swap"
            swap.symlink_to(tmp_path / "new" if how == "..data" else tmp_path / "new" / name)
            swap.rename(folder / name)
        await watched.until_shown(new)


@pytest.mark.parametrize("how", ["key of another", "key gone", "no PEM", "empty", "half"])
async def test_a_bad_pair_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is reported once, clients still get the old one, and a valid one replaces it."""
    made = make_certificate(tmp_path, ["localhost"])
    other = make_certificate(tmp_path / "other", ["localhost"])
    async with watching(tls_of(made)) as watched:
        if how == "key of another":
            other.key.rename(made.key)
        elif how == "key gone":
            made.key.unlink()
        elif how == "half":
            made.certificate.write_bytes(made.certificate.read_bytes()[:300])
        else:
            made.certificate.write_text("" if how == "empty" else "certificate")
        await watched.until_faults(1)
        await watched.turns(monkeypatch, 8)
        (fault,) = watched.faults
        assert str(made.certificate) in str(fault)
        assert str(made.key) in str(fault)
        assert str(fault).endswith("cannot be used: No such file or directory") == (
            how == "key gone"
        )
        assert shows(watched.context, made)
        mended = make_certificate(tmp_path, ["localhost"])
        await watched.until_shown(mended)


async def test_reload_now_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    """A requested reload happens at once, though the next check is an hour later."""
    made = make_certificate(tmp_path, ["localhost"])
    async with watching(tls_of(made), interval_s=3600) as watched:
        made = make_certificate(tmp_path, ["localhost"])
        watched.certificates.reload_now()
        await watched.until_shown(made)


async def test_reload_now_reports_a_fault_again(tmp_path: Path) -> None:
    """A requested reload reports the fault, even if it was reported before."""
    made = make_certificate(tmp_path, ["localhost"])
    async with watching(tls_of(made)) as watched:
        made.key.unlink()
        await watched.until_faults(1)
        watched.certificates.reload_now()
        await watched.until_faults(2)
        assert shows(watched.context, made)


def test_no_valid_pair_at_the_start(tmp_path: Path) -> None:
    """Without a valid pair there is no start, and the fault has the reason."""
    made = make_certificate(tmp_path, ["localhost"])
    other = make_certificate(tmp_path / "other", ["localhost"])
    faults: list[CertificateFault] = []
    with pytest.raises(CertificateFault, match=r"(?i)mismatch"):
        Certificates(lambda: Tls(str(made.certificate), str(other.key)), on_fault=faults.append)
    with pytest.raises(CertificateFault, match="No such file"):
        Certificates(lambda: Tls(str(tmp_path / "none"), str(made.key)), on_fault=faults.append)
    assert faults == []


@pytest.mark.parametrize("name", ["certificate", "key"])
def test_a_named_pipe(tmp_path: Path, name: str) -> None:
    """It is a fault: reading it would block all clients or all reloads."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pair = tls_of(make_certificate(tmp_path, ["localhost"]))
    with pytest.raises(CertificateFault, match="it is a named pipe, not a regular file"):
        build_context(replace(pair, **{name: str(pipe)}))


@needs("openssl")
def test_an_encrypted_key(tmp_path: Path) -> None:
    """It is a fault; there is no prompt at the terminal."""
    made = make_certificate(tmp_path, ["localhost"])
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkey", "-in", made.key, "-out", locked, "-aes256", "-passout", "pass:x"],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    with pytest.raises(CertificateFault):
        build_context(Tls(str(made.certificate), str(locked)))


async def test_a_reload_that_fails_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the setting of the files; at a start, it is the reason of the failure."""
    made = make_certificate(tmp_path, ["localhost"])
    tls = Tls(str(made.certificate), str(made.key))
    async with AsyncExitStack() as stack:
        assert keep_certificates(stack, lambda: None, "tls") is None
        certificates = keep_certificates(stack, lambda: tls, "admin_tls")
        assert certificates is not None
        made.key.write_text("broken")
        certificates.reload_now()
        line = "admin_tls: reload failed; keeping the previous certificates: the certificate"
        await eventually(lambda: line in caplog.text, "it is logged")
        with pytest.raises(CannotStart, match=r"tls: the certificate .* cannot be used"):
            keep_certificates(stack, lambda: tls, "tls")


# -- several certificates --------------------------------------------------------------------------


def several(folder: Path, *names: str) -> tuple[list[Certificate], Tls]:
    """Certificates of one name each; the first is the default."""
    made = [make_certificate(folder, [name], f"c{at}") for at, name in enumerate(names)]
    pairs = [CertificateFiles(str(each.certificate), str(each.key)) for each in made]
    return made, Tls(pairs[0].certificate, pairs[0].key, tuple(pairs[1:]))


def is_given(context: ssl.SSLContext, name: str | None, made: Certificate) -> bool:
    """Does a client that asks for this name get this certificate? A whole handshake."""
    client = ssl.create_default_context(cafile=made.ca)
    client.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = context.wrap_bio(to_server, to_client, server_side=True)
    try:
        for _ in range(4):
            for side in (ours, theirs):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLCertVerificationError:
        return False
    return ours.version() is not None


def asked_by_bytes(context: ssl.SSLContext, name: bytes) -> ssl.SSLContext | None:
    """The context that is chosen for any bytes as name; None: the handshake fails."""
    stand_in = "".join("." if at % 50 == 49 else "x" for at in range(len(name) - 1)) + "x"
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=stand_in)
    theirs = context.wrap_bio(to_server, to_client, server_side=True)
    with contextlib.suppress(ssl.SSLWantReadError):
        ours.do_handshake()
    hello = to_server.read()
    assert hello.count(stand_in.encode()) == 1
    to_server.write(hello.replace(stand_in.encode(), name))
    try:
        theirs.do_handshake()
    except ssl.SSLWantReadError:
        return theirs.context
    except ssl.SSLError:
        pass
    return None


def test_the_certificate_for_a_name(tmp_path: Path) -> None:
    """By the name that the client asks for; the default for other names, and for none."""
    (default, exact, wild), tls = several(tmp_path, "a.test", "b.test", "*.test")
    context = build_context(tls)
    asked = {"a.test": default, "b.test": exact, "c.test": wild, None: default, "x.y": default}
    for name, made in asked.items():
        for each in (default, exact, wild):
            assert is_given(context, name, each) is (each is made)


def test_hostile_names(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Odd case is the same name. Unknown and very long ones get the default; nothing is written."""
    _, tls = several(tmp_path, "a.test", "b.test")
    context = build_context(tls)
    chosen = asked_by_bytes(context, b"B.tEsT")
    assert chosen not in (None, context)
    assert asked_by_bytes(context, b"b.test.") is chosen
    for name in (b"a.test", b"none.test", b"y" * 255, b"." * 9, b"b.test " * 9, b"*.test"):
        assert asked_by_bytes(context, name) is context
    for name in (b"\xff\xfe" * 4, b"b\0test", "bü.test".encode()):
        assert asked_by_bytes(context, name) is None
    assert capfd.readouterr() == ("", "")


def test_other_errors_that_cannot_be_raised_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those about names are ignored."""
    written: list[object] = []

    def write(unraisable: object) -> None:
        written.append(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", write)
    context = build_context(several(tmp_path, "a.test", "b.test")[1])
    hook = sys.unraisablehook
    assert asked_by_bytes(context, b"\xff\xfe") is None
    assert written == []
    build_context(several(tmp_path, "a.test", "b.test")[1])
    assert sys.unraisablehook is hook

    class Broken:
        def __del__(self) -> None:
            raise RuntimeError

    Broken()
    assert len(written) == 1

    # As Python 3.14 reports a name; the message of any other error is written.
    error = UnicodeDecodeError("ascii", b"\xff", 0, 1, "ordinal not in range(128)")
    message = "Exception ignored in ssl servername callback while decoding name b'\\xff'"
    for text, value in ((message, error), (message, ValueError()), (None, error)):
        hook(SimpleNamespace(object=None, exc_value=value, err_msg=text))
    assert [getattr(each, "err_msg", None) for each in written[1:]] == [message, None]


async def test_one_of_several_changes(tmp_path: Path) -> None:
    """It is loaded; if one is faulty, all previous ones stay."""
    (_, second), tls = several(tmp_path, "a.test", "b.test")
    async with watching(tls) as watched:
        second = second._replace(ca=second.ca.rename(tmp_path / "second-ca.pem"))
        assert is_given(watched.context, "b.test", second)
        renewed = make_certificate(tmp_path, ["b.test"], "c1")
        await eventually(lambda: is_given(watched.context, "b.test", renewed), "renewed")
        assert not is_given(watched.context, "b.test", second)
        first = make_certificate(tmp_path, ["a.test"], "c0")
        renewed.key.write_text("broken")
        await watched.until_faults(1)
        assert is_given(watched.context, "b.test", renewed)
        assert not is_given(watched.context, "a.test", first)


async def test_the_setting_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Certificates that are added are loaded without a restart; one that expired is named."""
    caplog.set_level("INFO")
    (first, second), tls = several(tmp_path, "a.test", "b.test")
    only = Tls(tls.certificate, tls.key)
    policy: list[Tls | None] = [only]
    async with AsyncExitStack() as stack:
        certificates = keep_certificates(stack, lambda: policy[0], "tls")
        assert certificates is not None
        assert is_given(certificates.context, "b.test", first)
        policy[0] = tls
        certificates.reload_now()
        await eventually(lambda: is_given(certificates.context, "b.test", second), "added")
        assert f"tls: certificates loaded: {tls.certificate}, " in caplog.text
        make_certificate(tmp_path, ["b.test"], "c1", ends=datetime(2020, 1, 1, tzinfo=UTC))
        policy[0] = None  # the last setting stays in effect
        certificates.reload_now()
        line = f"tls: clients will refuse the certificate '{second.certificate}', which expired"
        await eventually(lambda: line in caplog.text, "expired")


async def test_changes_under_load(tmp_path: Path) -> None:
    """No handshake fails while certificates are replaced again and again."""
    tls = several(tmp_path, "a.test", "b.test")[1]
    loads: list[Tls] = []
    shaken_hands = 0
    async with AsyncExitStack() as stack:
        certificates = Certificates(
            lambda: tls, on_fault=pytest.fail, on_loaded=loads.append, interval_s=0.001
        )
        tasks.keep_running(stack, certificates.run(), "certificates")

        def protocol() -> TlsTransport:
            return TlsTransport(certificates.context, asyncio.Protocol())

        server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
        stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        client = ssl.create_default_context()
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        while len(loads) < 5:
            for name in ("c0", "c1"):
                fresh = tmp_path / "fresh"
                made = make_certificate(fresh, [f"{name}.test"], name)
                # As a whole, as Kubernetes and ACME clients replace them.
                whole = made.certificate.read_bytes() + made.key.read_bytes()
                for file in (tmp_path / f"{name}.pem", tmp_path / f"{name}.key"):
                    (fresh / "whole").write_bytes(whole)
                    (fresh / "whole").rename(file)
            for name in ("c0.test", "c1.test", "other.test"):
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=client, server_hostname=name
                )
                assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
                writer.transport.abort()
                shaken_hands += 1
    assert shaken_hands >= 3
