"""The webhook key: given in the environment, or made once and kept in the data folder.

The secrets of watches are derived from it, and the secrets of providers are sealed with it. All
couriers on a store need the same one; the store has a mark of it, so that one with another key
delivers nothing rather than with signatures that no receiver accepts.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.domain.webhooks.watches import mark_of
from gateway.files import keep_private
from gateway.stores.redis.address import secret_from_env

#: The variable with the key; with _FILE appended, the variable with the path of its file.
VARIABLE: Final = "GATEWAY_WEBHOOK_KEY"
#: Its file in the data folder.
FILE: Final = "webhook-key"
#: Receivers know values that are derived of the key, so it must be too long to be guessed.
SHORTEST: Final = 32
_BYTES: Final = 32


class MasterFault(Exception):
    """Why there is no usable webhook key, in one line that names what to change."""


@dataclass(frozen=True, slots=True)
class Master:
    """The key, and the variable or file that has it."""

    key: bytes = field(repr=False)
    source: str

    @property
    def mark(self) -> str:
        """Tells keys apart."""
        return mark_of(self.key)

    @property
    def token(self) -> str:
        """What shows a courier that a request is from a gateway."""
        return hmac.digest(self.key, b"token of the couriers", "sha256").hex()


def read_master(environ: Mapping[str, str], data: Path) -> Master:
    """The webhook key of this gateway; made if there is none yet. Raises MasterFault."""
    try:
        given = secret_from_env(VARIABLE, environ)
    except ValueError as error:
        raise MasterFault(str(error)) from error
    file = environ.get(f"{VARIABLE}_FILE")
    if given is not None or file:
        source = file or VARIABLE
        return Master(_checked(given or "", source), source)
    path = data / FILE
    try:
        text, _ = keep_private(path, lambda: secrets.token_urlsafe(_BYTES))
    except OSError as error:
        raise MasterFault(
            f"{path}: cannot keep the webhook key there ({error.strerror or error}); set "
            f"{VARIABLE} or {VARIABLE}_FILE, or another folder with --data"
        ) from error
    return Master(_checked(text, str(path)), str(path))


def _checked(text: str, source: str) -> bytes:
    if len(text) < SHORTEST:
        raise MasterFault(
            f"{source}: found {len(text)} characters, expected a webhook key of {SHORTEST} or "
            "more, for example from: openssl rand -base64 32"
        )
    if not (text.isascii() and text.isprintable()):
        raise MasterFault(f"{source}: expected a webhook key of printable ASCII")
    return text.encode("ascii")
