"""What the gateway reads of X.509 certificates: their names and their validity.

OpenSSL verifies certificates; nothing here decides whether one is trusted. Python's `ssl` does not
describe a certificate that it loads for a server, so the few fields are read from its DER encoding
(RFC 5280, 4.1), in bounded time: each byte is read once, and nothing recurses.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

_SEQUENCE: Final = 0x30
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_DNS_NAME: Final = 0x82
_OCTETS: Final = 0x04
#: 2.5.29.17, subjectAltName.
_ALT_NAME: Final = b"\x55\x1d\x11"

#: Kinds of names in a subjectAltName that a client can be known by.
PEER_KINDS: Final = ("URI:", "DNS:", "email:")

#: The first certificate of a file, in any of the words that OpenSSL accepts.
_PEM: Final = re.compile(
    rb"-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----([A-Za-z0-9+/=\s]+)-----END \1-----"
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """names: its DNS names, in lower case; begins_s, ends_s: its validity, Unix seconds"""

    names: tuple[str, ...]
    begins_s: int
    ends_s: int


def read_pem(data: bytes) -> Certificate:
    """The first certificate of a PEM file. Raises ValueError."""
    found = _PEM.search(data)
    if found is None:
        raise ValueError("no certificate in the PEM format")
    return read_der(binascii.a2b_base64(found[2]))


def read_der(data: bytes) -> Certificate:
    """A certificate in DER. Raises ValueError."""
    try:
        # OpenSSL's "trusted" certificates have its own values after the certificate.
        _, whole = next(_children(data))
        _, signed = next(_children(whole))
        parts = [part for part in _children(signed) if part[0] != _VERSION]
        # serialNumber, signature, issuer, validity, subject, …
        begins_s, ends_s = (_time(*part) for part in _children(parts[3][1]))
        extensions = [value for tag, value in parts if tag == _EXTENSIONS]
        return Certificate(tuple(_names(extensions)), begins_s, ends_s)
    except (IndexError, KeyError, StopIteration, UnicodeDecodeError) as exc:
        raise ValueError("no X.509 certificate") from exc


def _children(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and the content of each element."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise IndexError
        yield tag, data[at : at + length]
        at += length


def _time(tag: int, value: bytes) -> int:
    """RFC 5280, 4.1.2.5: years of two digits from 50 on are those of the 20th century."""
    text = value.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise IndexError
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())


def _names(extensions: Sequence[bytes]) -> Iterator[str]:
    for listed in extensions:
        for _, extension in _children(dict(_children(listed))[_SEQUENCE]):
            oid, *rest = _children(extension)
            if oid[1] == _ALT_NAME:
                (content,) = (value for tag, value in rest if tag == _OCTETS)
                for tag, value in _children(dict(_children(content))[_SEQUENCE]):
                    if tag == _DNS_NAME:
                        yield value.decode("ascii").lower()


#: Attributes of a subject as RFC 4514, 3 and OpenSSL write them; others keep OpenSSL's long names.
_SHORT: Final = {
    **{"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU"},
    **{"countryName": "C", "stateOrProvinceName": "ST", "localityName": "L"},
    **{"domainComponent": "DC", "userId": "UID", "streetAddress": "street"},
}
_SPECIAL: Final = re.compile(r'[,+"\\<>;]|^[ #]| $')


def peer_names(described: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in a verified certificate: "CN=ci,O=Example", "URI:spiffe://a/b", "DNS:ci.test".

    The subject is written as by `openssl x509 -subject -nameopt RFC2253,-esc_msb`.

    described: as `ssl.SSLSocket.getpeercert` returns it
    """
    rdns = reversed(described.get("subject", ()))
    subject = ",".join(
        "+".join(f"{_SHORT.get(k, k)}={_escaped(v)}" for k, v in rdn) for rdn in rdns
    )
    names = [f"{kind}:{name}" for kind, name in described.get("subjectAltName", ())]
    known = [name for name in names if name.startswith(PEER_KINDS)]
    return (subject, *known) if subject else tuple(known)


def _escaped(value: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", value)


class ServerNames:
    """Which of several certificates a client gets, by the name that it asks for (SNI).

    An exact name comes before a wildcard, which stands for one label (RFC 9525, 6.3). Of several
    certificates with the same name, the first is used; for any other name, the first of all.
    """

    __slots__ = ("_at",)

    def __init__(self, certificates: Sequence[Sequence[str]]) -> None:
        """certificates: the names of each"""
        self._at: dict[str, int] = {}
        for index, names in enumerate(certificates):
            for name in names:
                self._at.setdefault(name, index)

    def index(self, name: str | None) -> int:
        """The certificate's index. name: None: the client asks for none"""
        if not name:
            return 0
        name = name.lower().removesuffix(".")
        found = self._at.get(name)
        if found is None:
            _, dot, rest = name.partition(".")
            found = self._at.get(f"*{dot}{rest}", 0) if dot else 0
        return found
