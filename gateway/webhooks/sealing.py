"""Seals the secrets of providers, which have to be read again to verify what they send.

Without the master key, nobody who reads the store has them.
"""

from __future__ import annotations

import hmac
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.domain.json_text import read_json
from gateway.domain.ports import CorruptRecord
from gateway.domain.webhooks.watches import mark_of

#: AES-GCM, NIST SP 800-38D: 96 bits, at random for each text.
_NONCE_BYTES: Final = 12


class Sealer:
    """Seals with a key of its own, which is derived.

    master: at least 32 random bytes; mark: tells it apart
    """

    def __init__(self, master: bytes) -> None:
        self.mark = mark_of(master)
        self._cipher = AESGCM(hmac.digest(master, b"secrets of providers", "sha256"))

    def seal(self, integration: str, secrets: Sequence[str]) -> str:
        """The secrets of an integration, in base64."""
        nonce = os.urandom(_NONCE_BYTES)
        text = json.dumps(list(secrets)).encode("ascii")
        sealed = self._cipher.encrypt(nonce, text, integration.encode())
        return b64encode(nonce + sealed).decode("ascii")

    def open(self, integration: str, sealed: str) -> tuple[str, ...]:
        """The secrets. Raises CorruptRecord, also for those of another integration or master."""
        try:
            content = b64decode(sealed, validate=True)
            nonce, rest = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
            return tuple(read_json(self._cipher.decrypt(nonce, rest, integration.encode())))
        except (InvalidTag, ValueError) as error:
            raise CorruptRecord("secrets of integration", integration) from error
