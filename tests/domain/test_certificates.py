"""Names and validity of certificates, and which one a client gets by the name that it asks for."""

from __future__ import annotations

import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trustme
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.certificates import Certificate, ServerNames, peer_names, read_der, read_pem

AUTHORITY = trustme.CA()
ISSUED = AUTHORITY.issue_cert("A.example", "*.b.example", "192.0.2.1", common_name="c.example")
PEM = ISSUED.cert_chain_pems[0].bytes()
DER = ssl.PEM_cert_to_DER_cert(PEM.decode())


def test_names_and_validity() -> None:
    """As another library reads them; only DNS names, not addresses nor the common name."""
    other = x509.load_pem_x509_certificate(PEM)
    assert read_pem(PEM) == Certificate(
        ("a.example", "*.b.example"),
        int(other.not_valid_before_utc.timestamp()),
        int(other.not_valid_after_utc.timestamp()),
    )


@pytest.mark.parametrize("year", [1950, 1999, 2000, 2049, 2050, 2300])
def test_years(year: int) -> None:
    """UTCTime has two digits, and GeneralizedTime four."""
    ends = datetime(year, 6, 1, tzinfo=UTC)
    issued = AUTHORITY.issue_cert("a", not_before=ends - timedelta(days=1), not_after=ends)
    found = read_pem(issued.cert_chain_pems[0].bytes())
    assert (found.begins_s, found.ends_s) == (int(ends.timestamp()) - 86_400, ends.timestamp())


def test_a_certificate_without_names() -> None:
    """An authority's own, which has no subjectAltName."""
    assert read_pem(AUTHORITY.cert_pem.bytes()).names == ()


@pytest.mark.parametrize("word", ["X509 CERTIFICATE", "TRUSTED CERTIFICATE"])
def test_other_words_of_pem(word: str) -> None:
    """OpenSSL loads these as well; text before the certificate is ignored."""
    assert read_pem(b"text\n" + PEM.replace(b"CERTIFICATE", word.encode())) == read_pem(PEM)


@pytest.mark.parametrize("data", [b"", b"-----BEGIN CERTIFICATE-----", b"x" * 1000])
def test_no_certificate(data: bytes) -> None:
    """It is a ValueError, for PEM and DER."""
    with pytest.raises(ValueError, match="no certificate"):
        read_pem(data)
    with pytest.raises(ValueError, match=r"X\.509"):
        read_der(data)


@given(st.integers(0, len(DER) - 1), st.binary(max_size=4))
def test_a_damaged_certificate(at: int, spoilt: bytes) -> None:
    """Whatever the bytes are, the result is a certificate or a ValueError."""
    for data in (DER[:at], DER[:at] + spoilt, DER[:at] + spoilt + DER[at + len(spoilt) :]):
        with contextlib.suppress(ValueError):
            assert isinstance(read_der(data), Certificate)


NAMES = ServerNames([("default.test",), ("a.test", "*.test"), ("*.test", "b.test", "*.a.test")])


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("default.test", 0),
        ("a.test", 1),
        ("A.TEST", 1),
        ("a.test.", 1),
        ("b.test", 2),
        ("c.test", 1),
        ("c.a.test", 2),
        ("d.c.test", 0),
        ("test", 0),
        (".test", 1),
        ("*.test", 1),
        ("", 0),
        (None, 0),
        ("unknown.example", 0),
        ("a" * 255, 0),
        ("." * 255, 0),
    ],
)
def test_the_certificate_of_a_name(name: str | None, index: int) -> None:
    """Exact before wildcard, which is one label; the first of equal names; else the default."""
    assert NAMES.index(name) == index


@pytest.mark.parametrize(
    ("described", "names"),
    [
        ({}, ()),
        ({"subject": ()}, ()),
        (
            {"subject": ((("countryName", "DE"),), (("commonName", "ci"), ("userId", "7")))},
            ("CN=ci+UID=7,C=DE",),
        ),
        ({"subject": ((("commonName", "a,O=b"),),)}, ("CN=a\\,O=b",)),
        ({"subject": ((("commonName", ' #"\\ '),),)}, ('CN=\\ #\\"\\\\\\ ',)),
        ({"subject": ((("title", "x"),),)}, ("title=x",)),
        (
            {
                "subject": ((("commonName", "ci"),),),
                "subjectAltName": (
                    ("URI", "spiffe://a/b"),
                    ("DNS", "ci.test"),
                    ("email", "ci@a.test"),
                    ("IP Address", "192.0.2.1"),
                    ("DirName", "URI:x"),
                ),
            },
            ("CN=ci", "URI:spiffe://a/b", "DNS:ci.test", "email:ci@a.test"),
        ),
    ],
)
def test_the_names_of_a_client(described: dict[str, Any], names: tuple[str, ...]) -> None:
    """The subject, the last part first and unambiguous, and names of three kinds."""
    assert peer_names(described) == names
