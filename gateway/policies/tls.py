"""`tls` and `admin_tls`: certificates and their keys, which must belong together."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import gmtime, strftime
from typing import Any, Final

import yaml

from gateway import files as gateway_files
from gateway.domain import key_format
from gateway.domain.certificates import PEER_KINDS, Certificate, read_pem
from gateway.domain.policy import CertificateFiles, ClientCertificates, Policy, Tls
from gateway.files import check_regular, read_regular, reason_of
from gateway.policies.faults import Fault, quoted
from gateway.policies.values import Fields, Value, read_path, setting

FILES: Final = ("certificate", "key")
TLS: Final = (*FILES, "certificates", "min_version", "ciphers", "curves")
#: Of `tls`: clients of the admin listener have tokens.
CLIENT_TLS: Final = (*TLS, "client_certificates")
CLIENT_CERTIFICATES: Final = ("ca", "required", "keys")
MOST_PEERS: Final = 10_000
VERSIONS: Final = ("1.2", "1.3")
#: OpenSSL's lists of ciphers; its words with "@" change security levels and orders.
CIPHERS: Final = r"[A-Za-z0-9+!:_-]{1,1024}"
CURVE: Final = r"[A-Za-z0-9_-]{1,32}"
#: RFC 9325, 4.1: "MUST NOT negotiate cipher suites offering less than 112 bits of security".
_LEAST_BITS: Final = 112
#: A name in a client's certificate.
PEER: Final = rf"(?:{'|'.join(PEER_KINDS)}|[A-Za-z][A-Za-z0-9.]*=).{{1,1000}}"
_VERSIONS: Final = dict(
    zip(VERSIONS, (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3), strict=True)
)
#: The longest file of a certificate and its chain.
MOST_FILE_BYTES: Final = 1024 * 1024
#: The most certificates of one setting. All are loaded again when one changes.
MOST_CERTIFICATES: Final = 1_000
_MISMATCHES: Final = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"})
_LIST: Final = "a mapping with certificate and key, or a list of such mappings"


class CertificateFault(Exception):
    """A certificate and its key cannot be used; the text names both files and says why.

    why: only that; is_mismatch: the key is that of another certificate
    """

    def __init__(self, files: CertificateFiles, why: str, *, is_mismatch: bool = False) -> None:
        super().__init__(
            f"the certificate {files.certificate} and the key {files.key} cannot be used: {why}"
        )
        self.why = why
        self.is_mismatch = is_mismatch


def load_pair(context: ssl.SSLContext, files: CertificateFiles) -> None:
    """Load a certificate and its key into a context. Raises CertificateFault."""
    try:
        gateway_files.load_pair(context, files.certificate, files.key)
    except OSError as exc:
        is_mismatch = isinstance(exc, ssl.SSLError) and exc.reason in _MISMATCHES
        raise CertificateFault(files, reason_of(exc), is_mismatch=is_mismatch) from exc


def server_context(
    min_version: str = "1.2", ciphers: str | None = None, curves: Sequence[str] = ()
) -> ssl.SSLContext:
    """A server's context with these settings of `Tls`. Raises ssl.SSLError or ValueError.

    Without them, ciphers and curves are the defaults of Python and OpenSSL, which are updated with
    them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[min_version]
    if ciphers is not None:
        context.set_ciphers(ciphers)
    if len(curves) == 1:
        context.set_ecdh_curve(curves[0])
    elif curves:
        set_groups = getattr(context, "set_groups", None)
        if set_groups is None:
            raise ValueError("one curve, as Python before 3.15 cannot set several")
        set_groups(":".join(curves))
    return context


def read_certificate(file: str) -> Certificate | None:
    """The names and the validity of a certificate; None: the file does not tell them."""
    try:
        return read_pem(read_regular(Path(file), MOST_FILE_BYTES))
    except (OSError, ValueError):
        return None


def read_client_tls(value: Value) -> Tls | None:
    """`tls`: as `read_tls`, and what clients are asked for."""
    return read_tls(value, CLIENT_TLS)


def read_tls(value: Value, known: Sequence[str] = TLS) -> Tls | None:
    """A mapping, or a list of certificates of which the first is the default."""
    if isinstance(value.node, yaml.SequenceNode):
        pairs = _read_list(value, has_default=True)
        return Tls(pairs[0].certificate, pairs[0].key, pairs[1:]) if pairs else None
    if not value.is_mapping:
        value.add_fault(_LIST)
        return None
    given = value.fields(known, required=FILES)
    if given is None:
        return None
    asked = setting(given, "client_certificates", _read_client_certificates, None)
    first = _read_files(value, given)
    further = _read_list(given["certificates"]) if "certificates" in given else ()
    min_version = setting(given, "min_version", _read_version, VERSIONS[0])
    ciphers = setting(given, "ciphers", _read_ciphers, None)
    if ciphers is not None and min_version == "1.3":
        given["ciphers"].add_fault("no ciphers with min_version 1.3: they are those of TLS 1.2")
    curves = setting(given, "curves", _read_curves, tuple[str, ...]())
    if first is None:
        return None
    return Tls(first.certificate, first.key, further, min_version, ciphers, curves, asked)


def load_authorities(context: ssl.SSLContext, asked: ClientCertificates) -> None:
    """Have a context ask clients for certificates of these authorities. Raises OSError."""
    check_regular(asked.ca)
    context.load_verify_locations(asked.ca)
    context.verify_mode = ssl.CERT_REQUIRED if asked.required else ssl.CERT_OPTIONAL
    # A resumed session is not verified again, although its certificate may have expired.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET


def _read_client_certificates(value: Value) -> ClientCertificates | None:
    given = value.fields(CLIENT_CERTIFICATES, required=("ca",))
    if given is None or "ca" not in given:
        return None
    ca = read_path(given["ca"])
    if ca is None:
        return None
    asked = ClientCertificates(
        ca,
        setting(given, "required", Value.flag, True),
        setting(given, "keys", _read_peers, tuple[tuple[str, str], ...]()),
    )
    try:
        load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), asked)
    except OSError as exc:
        value.used.append(ca)
        expected = "certificates of authorities in the PEM format"
        found = f"{given['ca'].found}, which cannot be used ({reason_of(exc)})"
        given["ca"].add_fault(expected, found)
        return None
    return asked


def _read_peers(value: Value) -> tuple[tuple[str, str], ...] | None:
    entries = value.entries("a mapping from names in certificates to ids of keys")
    if entries is None:
        return None
    if len(entries) > MOST_PEERS:
        value.add_fault(f"at most {MOST_PEERS} names", f"{len(entries)}")
        return None
    read = []
    for name, item in entries.items():
        if not (re.fullmatch(PEER, name) and name.isprintable()):
            expected = "a name such as URI:spiffe://example.com/ci, DNS:, email: or CN=ci,O=Example"
            item.add_fault(expected, f"the key {quoted(name)}")
        expected = "the id of a key, which gateway keys list shows"
        if item.is_text and key_format.looks_like_key(str(item.node.value)):
            item.add_fault(f"{expected}; replace this key, as files are copied", "a whole key")
            continue
        key_id = item.matching(key_format.ID, expected)
        if key_id is not None:
            read.append((name, key_id))
    return tuple(read)


def _read_version(value: Value) -> str | None:
    return value.choice(*VERSIONS)


def _read_ciphers(value: Value) -> str | None:
    expected = "ciphers of TLS 1.2 that OpenSSL knows, such as ECDHE+AESGCM:ECDHE+CHACHA20"
    text = value.matching(CIPHERS, expected)
    if text is None:
        return None
    try:
        chosen = server_context(ciphers=text).get_ciphers()
    except ssl.SSLError:
        value.add_fault(expected)
        return None
    for each in map(dict[str, Any], chosen):
        if each["strength_bits"] < _LEAST_BITS or each["auth"] == "auth-null":
            name = f"{value.found}, which has {each['name']}"
            value.add_fault("ciphers that encrypt and authenticate", name)
            return None
    return text


def _read_curves(value: Value) -> tuple[str, ...] | None:
    expected = "a list of curves such as [prime256v1]"
    items = value.items(expected)
    if items is None:
        return None
    if not items:
        value.add_fault(expected, "an empty list")
    read = [item.matching(CURVE, "a curve such as prime256v1 or X25519") for item in items]
    curves = tuple(curve for curve in read if curve is not None)
    if len(curves) < len(items):
        return None
    for item, curve in zip(items, curves, strict=True):
        try:
            server_context(curves=(curve,))
        except (ssl.SSLError, ValueError):
            item.add_fault("a curve that this Python and OpenSSL can set, such as prime256v1")
            return None
    try:
        server_context(curves=curves)
    except (ssl.SSLError, ValueError) as exc:
        value.add_fault(
            expected if isinstance(exc, ssl.SSLError) else str(exc), f"{len(items)} curves"
        )
        return None
    return curves


def _read_list(value: Value, *, has_default: bool = False) -> tuple[CertificateFiles, ...]:
    """Certificates that are chosen by their names, except that the first may be the default."""
    items = value.items("a list of mappings with certificate and key")
    if items is None:
        return ()
    if not items or len(items) > MOST_CERTIFICATES:
        value.add_fault(f"1 to {MOST_CERTIFICATES} certificates", f"a list of {len(items)}")
        return ()
    read = []
    for index, item in enumerate(items):
        pair = _read_files(item, item.fields(FILES, required=FILES) or {})
        if pair is None:
            continue
        read.append(pair)
        certificate = read_certificate(pair.certificate)
        if (index or not has_default) and (certificate is None or not certificate.names):
            item.add_fault(
                "a certificate with a DNS name in its subjectAltName, by which it is chosen",
                "one without",
            )
    return tuple(read)


def _read_files(value: Value, given: Fields) -> CertificateFiles | None:
    """A certificate and its key, which can be used together."""
    paths = {key: read_path(given[key]) for key in FILES if key in given}
    certificate, key = paths.get("certificate"), paths.get("key")
    if certificate is None or key is None:
        return None
    files = CertificateFiles(certificate, key)
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)
    except CertificateFault as fault:
        # These are watched as long as they have a fault, so that mending them is noticed.
        value.used.extend((certificate, key))
        if fault.is_mismatch:
            found = f"{given['key'].found}, the key of another certificate"
            given["key"].add_fault(f"the key of {given['certificate'].found}", found)
        else:
            expected = "a certificate and its key without a password, both in the PEM format"
            value.add_fault(expected, f"files that cannot be used ({fault.why})")
        return None
    return files


def expiry_warnings(top: Fields, policy: Policy, now_s: float) -> Iterator[Fault]:
    """Certificates of a policy that are not valid now."""
    for of, pair in policy.certificates:
        found = validity_fault(pair.certificate, now_s)
        if found is not None:
            key, _, name = of.partition(".")
            at = (top[key].entries("upstreams") or {})[name] if name else top[key]
            yield Fault(at.file, at.line, at.path, found, "a certificate that is valid now")


def validity_fault(file: str, now_s: float) -> str | None:
    """Why a certificate is not valid at this time; None: it is."""
    certificate = read_certificate(file)
    if certificate is None or certificate.begins_s <= now_s <= certificate.ends_s:
        return None
    words, at_s = "which expired", certificate.ends_s
    if now_s < certificate.begins_s:
        words, at_s = "which is not valid before", certificate.begins_s
    return f"{file!r}, {words} {strftime('%Y-%m-%d %H:%M:%S UTC', gmtime(at_s))}"
