"""`tls` in policy files: certificates that belong to their keys, and their validity."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.domain.policy import CertificateFiles, ClientCertificates, Tls
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from tests.kit.certificates import make_certificate
from tests.policies.folder import complaints, write

A, B = "{certificate: a.pem, key: a.key}", "{certificate: b.pem, key: b.key}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        make_certificate(tmp_path, [f"{name}.test"], name)
    return tmp_path


@pytest.mark.parametrize(
    "text", [f"[{A}, {B}]", f"{{certificate: a.pem, key: a.key, certificates: [{B}]}}"]
)
def test_several_certificates(folder: Path, text: str) -> None:
    """As a list, or the default and then the others."""
    policy = load(write(folder, x=f"tls: {text}"))
    files = [str(folder / name) for name in ("a.pem", "a.key", "b.pem", "b.key")]
    assert policy.tls == Tls(*files[:2], (CertificateFiles(*files[2:]),))
    assert policy.tls.files == tuple(files)
    assert policy.warnings == ()


CASES = {
    "no certificates": ("[]", ["x.yaml:1: tls: found a list of 0, expected 1 to 1000 certifi"]),
    "no pairs": (
        "[a.pem]",
        ["x.yaml:1: tls[0]: found 'a.pem', expected a mapping with one of certificate, key"],
    ),
    "a single certificate in certificates": (
        f"{{certificate: a.pem, key: a.key, certificates: {B}}}",
        ["x.yaml:1: tls.certificates: found a mapping, expected a list of mappings with"],
    ),
    "the key of another": (
        f"[{A}, {{certificate: b.pem, key: a.key}}]",
        [
            "x.yaml:1: tls[1].key: found 'a.key', the key of another certificate, expected the "
            "key of 'b.pem'"
        ],
    ),
    "a key as certificate": (
        "{certificate: a.key, key: a.key}",
        ["x.yaml:1: tls: found files that cannot be used ("],
    ),
    "another version": (
        "{certificate: a.pem, key: a.key, min_version: 1.3}",
        ["x.yaml:1: tls.min_version: found the number 1.3, expected one of 1.2, 1.3, in quotes"],
    ),
    "an old version": (
        "{certificate: a.pem, key: a.key, min_version: '1.1'}",
        ["x.yaml:1: tls.min_version: found '1.1', expected one of 1.2, 1.3 (did you mean"],
    ),
    "unknown ciphers": (
        "{certificate: a.pem, key: a.key, ciphers: ECDHE+NONE}",
        ["x.yaml:1: tls.ciphers: found 'ECDHE+NONE', expected ciphers of TLS 1.2 that"],
    ),
    "a level of OpenSSL": (
        "{certificate: a.pem, key: a.key, ciphers: 'ALL:@SECLEVEL=0'}",
        ["x.yaml:1: tls.ciphers: found 'ALL:@SECLEVEL=0', expected ciphers of TLS 1.2 that"],
    ),
    "ciphers that do not encrypt": (
        "{certificate: a.pem, key: a.key, ciphers: 'ECDHE+AESGCM:NULL-SHA256'}",
        ["x.yaml:1: tls.ciphers: found 'ECDHE+AESGCM:NULL-SHA256', which has NULL-SHA256, expec"],
    ),
    "ciphers that do not authenticate": (
        "{certificate: a.pem, key: a.key, ciphers: ADH-AES256-SHA256}",
        ["x.yaml:1: tls.ciphers: found 'ADH-AES256-SHA256', which has ADH-AES256-SHA256, expec"],
    ),
    "ciphers of 1.3": (
        "{certificate: a.pem, key: a.key, min_version: '1.3', ciphers: ECDHE+AESGCM}",
        ["x.yaml:1: tls.ciphers: found 'ECDHE+AESGCM', expected no ciphers with min_version 1.3"],
    ),
    "client certificates, no authority": (
        "{certificate: a.pem, key: a.key, client_certificates: {required: true}}",
        ["x.yaml:1: tls.client_certificates: found a mapping without 'ca', expected the key 'ca'"],
    ),
    "client certificates, no PEM": (
        "{certificate: a.pem, key: a.key, client_certificates: {ca: plans.yaml}}",
        ["x.yaml:1: tls.client_certificates.ca: found 'plans.yaml', which cannot be used ("],
    ),
    "client certificates, names and keys": (
        "{certificate: a.pem, key: a.key, client_certificates: {ca: a-ca.pem, keys: "
        "{spiffe://a/b: kkkkkkkkkkkk, 'URI:spiffe://a/b': gwk_1}}}",
        [
            "x.yaml:1: tls.client_certificates.keys.spiffe://a/b: found the key 'spiffe://a/b', "
            "expected a name such as URI:",
            "x.yaml:1: tls.client_certificates.keys.URI:spiffe://a/b: found a whole key, expected "
            "the id of a key, which",
        ],
    ),
    "an unknown curve": (
        "{certificate: a.pem, key: a.key, curves: [X25519x]}",
        [
            "x.yaml:1: tls.curves[0]: found 'X25519x', expected a curve that this Python and "
            "OpenSSL can set"
        ],
    ),
    "no curves": (
        "{certificate: a.pem, key: a.key, curves: []}",
        [
            "x.yaml:1: tls.curves: found an empty list, expected a list of curves such as "
            "[prime256v1]"
        ],
    ),
    "no list of curves": (
        "{certificate: a.pem, key: a.key, curves: X25519}",
        ["x.yaml:1: tls.curves: found 'X25519', expected a list of curves such as [prime256v1]"],
    ),
    "several settings in a list": (
        "[{certificate: a.pem, key: a.key, min_version: '1.3'}]",
        ["x.yaml:1: tls[0].min_version: found the key 'min_version', expected one of certificate"],
    ),
    "no name": (
        f"[{A}, {{certificate: nameless.pem, key: nameless.key}}]",
        ["x.yaml:1: tls[1]: found one without, expected a certificate with a DNS name in its"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_faults(folder: Path, case: str) -> None:
    """Each is named by file and line."""
    make_certificate(folder, ["192.0.2.1"], "nameless")
    text, expected = CASES[case]
    found = complaints(write(folder, x=f"tls: {text}"))
    assert len(found) == len(expected)
    for line, words in zip(found, expected, strict=True):
        assert line.startswith(words)


def test_the_default_may_lack_names(folder: Path) -> None:
    """It is used for all that ask for no other."""
    make_certificate(folder, ["192.0.2.1"], "nameless")
    tls = load(write(folder, x=f"tls: [{{certificate: nameless.pem, key: nameless.key}}, {B}]")).tls
    assert tls is not None
    assert tls.certificate == str(folder / "nameless.pem")


def test_a_faulty_pair_is_watched(folder: Path) -> None:
    """So that the policy is read again when the files are mended."""
    write(folder, x="tls: {certificate: a.pem, key: b.key}")
    with pytest.raises(PolicyFaults) as raised:
        load(folder)
    assert set(raised.value.used) == {str(folder / "a.pem"), str(folder / "b.key")}


def test_a_certificate_that_is_not_valid_now(folder: Path) -> None:
    """It is a warning: of clients, all or some refuse it."""
    past = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    make_certificate(folder, ["a.test"], "a", ends=past)
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    make_certificate(folder, ["b.test"], "b", ends=later)
    policy = load(write(folder, x=f"tls: {A}\nadmin_tls: [{A}, {B}]"))
    begins = (later - timedelta(days=1)).strftime("%Y-%m-%d %H:%M:%S UTC")
    expired = f"found '{folder}/a.pem', which expired 2020-01-02 03:04:05 UTC, expected a certif"
    early = f"found '{folder}/b.pem', which is not valid before {begins}, expected a certificate "
    expected = [f"tls: {expired}", f"admin_tls: {expired}", f"admin_tls: {early}"]
    assert len(policy.warnings) == len(expected)
    for line, words in zip(policy.warnings, expected, strict=True):
        assert line.partition(": ")[2].startswith(words)


def test_a_certificate_for_upstreams_that_expired(folder: Path) -> None:
    """It is a warning, too, at its upstream: the servers refuse it."""
    make_certificate(folder, ["a.test"], "a", ends=datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC))
    text = (
        "upstreams:\n"
        "  api: {servers: ['https://127.0.0.1:9000']}\n"
        "  mine: {servers: ['https://127.0.0.1:9001'],"
        " client_certificate: a.pem, client_key: a.key}\n"
    )
    (warning,) = load(write(folder, upstreams=text)).warnings
    assert "upstreams.yaml:3: upstreams.mine: found " in warning
    assert "which expired 2020-01-02 03:04:05 UTC, expected a certificate that is" in warning


def test_versions_ciphers_and_curves(folder: Path) -> None:
    """They are read as they are written; the defaults are those of Python, from TLS 1.2 on."""
    rest = "certificate: a.pem, key: a.key"
    text = f"tls: {{{rest}, ciphers: ECDHE+AESGCM, curves: [prime256v1]}}\n"
    policy = load(write(folder, x=f"{text}admin_tls: {{{rest}, min_version: '1.3'}}"))
    assert policy.tls is not None
    assert (policy.tls.min_version, policy.tls.ciphers) == ("1.2", "ECDHE+AESGCM")
    assert policy.tls.curves == ("prime256v1",)
    assert policy.admin_tls is not None
    assert (policy.admin_tls.min_version, policy.admin_tls.ciphers) == ("1.3", None)
    assert policy.admin_tls.curves == ()


def test_client_certificates(folder: Path) -> None:
    """By name, in the order in which they are looked for; the admin listener has none."""
    asked = "client_certificates: {ca: a-ca.pem, keys: {'CN=a,O=b': kkkkkkkkkkkk}}"
    text = f"{{certificate: a.pem, key: a.key, {asked}}}"
    tls = load(write(folder, x=f"tls: {text}")).tls
    assert tls is not None
    authority = str(folder / "a-ca.pem")
    assert tls.client_certificates == ClientCertificates(authority, True, (("CN=a,O=b", "k" * 12),))
    assert tls.files[-1] == authority
    (line,) = complaints(write(folder, x=f"admin_tls: {text}"))
    assert line.startswith("x.yaml:1: admin_tls.client_certificates: found the key")


def test_several_curves(folder: Path) -> None:
    """They need a newer Python; with an older one, the fault says so."""
    text = "tls: {certificate: a.pem, key: a.key, curves: [prime256v1, secp384r1]}"
    if hasattr(ssl.SSLContext, "set_groups"):
        tls = load(write(folder, x=text)).tls
        assert tls is not None
        assert tls.curves == ("prime256v1", "secp384r1")
    else:
        assert complaints(write(folder, x=text)) == [
            "x.yaml:1: tls.curves: found 2 curves, expected one curve, as Python before 3.15 "
            "cannot set several"
        ]
