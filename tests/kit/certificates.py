"""Certificates for tests, and their authority."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import trustme


class Certificate(NamedTuple):
    """PEM files: a server's chain and its key, and the authority for clients to trust."""

    certificate: Path
    key: Path
    ca: Path


def make_certificate(folder: Path, names: list[str], stem: str = "server") -> Certificate:
    """A certificate for these names or addresses, signed by a new authority.

    stem: the files are STEM.pem, STEM.key and STEM-ca.pem; existing ones are replaced
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    issued = authority.issue_cert(*names)
    made = Certificate(folder / f"{stem}.pem", folder / f"{stem}.key", folder / f"{stem}-ca.pem")
    made.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(made.key)
    authority.cert_pem.write_to_path(made.ca)
    return made
