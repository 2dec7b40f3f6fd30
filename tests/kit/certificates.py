"""Certificates for tests, and their authority."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

import trustme


class Certificate(NamedTuple):
    """PEM files: a server's chain and its key, and the authority for clients to trust."""

    certificate: Path
    key: Path
    ca: Path


def make_certificate(
    folder: Path, names: list[str], stem: str = "server", *, ends: datetime | None = None
) -> Certificate:
    """A certificate for these names or addresses, signed by a new authority.

    stem: the files are STEM.pem, STEM.key and STEM-ca.pem; existing ones are replaced
    ends: when it expires
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    begins = None if ends is None else ends - timedelta(days=1)
    issued = authority.issue_cert(*names, not_before=begins, not_after=ends)
    made = Certificate(folder / f"{stem}.pem", folder / f"{stem}.key", folder / f"{stem}-ca.pem")
    made.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(made.key)
    authority.cert_pem.write_to_path(made.ca)
    return made


@cache
def _pair() -> tuple[bytes, bytes]:
    issued = trustme.CA().issue_cert("gateway.test")
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


def write_pair(certificate: Path, key: Path) -> None:
    """Write a certificate for gateway.test and its key, the same ones each time."""
    certificate.parent.mkdir(parents=True, exist_ok=True)
    for path, content in zip((certificate, key), _pair(), strict=True):
        path.write_bytes(content)
