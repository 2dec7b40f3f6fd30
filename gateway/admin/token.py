"""The admin token: given in the environment, or generated once and kept in the data folder.

Workers do not get it, no command line has it, and no message here contains it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

from gateway.domain.key_format import looks_like_key
from gateway.files import keep_private, read_private, write_private
from gateway.stores.redis.address import secret_from_env

#: The variable with the token; with _FILE appended, the variable with the path of its file.
VARIABLE: Final = "GATEWAY_ADMIN_TOKEN"
#: Its file in the data folder.
FILE: Final = "admin-token"
SHORTEST: Final = 16
#: Fewer characters may be three everyday words, and fewer different characters a repeated word.
#: `access` says how long guessing them takes.
STRONG: Final = 24
DIFFERENT: Final = 9

#: 256 random bits, as `secrets.token_urlsafe` writes them.
_BYTES: Final = 32
_is_made = re.compile(r"[A-Za-z0-9_-]{43}").fullmatch


class TokenFault(Exception):
    """Why there is no usable token, in one line that names what to change."""


@dataclass(frozen=True, slots=True)
class AdminToken:
    """The secret, and its origin.

    source: the variable or file that has it
    origin: "given" by the operator, "made" at this start, or "kept" from an earlier start
    """

    text: str = field(repr=False)
    source: str
    origin: Literal["given", "made", "kept"] = "given"

    @property
    def digest(self) -> str:
        """Distinguishes tokens. Only for generated ones: others could be guessed from it."""
        assert self.origin != "given", "a digest allows guessing a token that a person chose"
        return sha256(b"gateway admin token\0" + self.text.encode()).hexdigest()

    @property
    def is_weak(self) -> bool:
        """It may be a phrase that can be guessed."""
        return len(self.text) < STRONG or len(set(self.text)) < DIFFERENT


def read_token(environ: Mapping[str, str], data: Path) -> AdminToken:
    """The token of this gateway; generated if there is none yet. Raises TokenFault."""
    try:
        given = secret_from_env(VARIABLE, environ)
    except ValueError as error:
        raise TokenFault(str(error)) from error
    file = environ.get(f"{VARIABLE}_FILE")
    if given is None and not file:
        return _kept(data / FILE)
    source = file or VARIABLE
    return AdminToken(_checked(given or "", source), source)


def adopted(source: Path, digest: str, data: Path) -> AdminToken | None:
    """The token that another gateway has generated, copied to this gateway's folder.

    None: the file does not have the token with this digest. source and digest may come from an
    attacker, so only this user may be able to write the file, and its content must have the form of
    a generated token.
    """
    path = data / FILE
    try:
        if source.name != FILE or not source.is_absolute():
            return None
        text = read_private(source)
        token = AdminToken(text, str(path), "kept")
        if not _is_made(text) or token.digest != digest:
            return None
        write_private(path, text, is_new=False)
    except (OSError, ValueError, TokenFault):
        return None
    return token


def _checked(text: str, source: str) -> str:
    if len(text) < SHORTEST:
        raise TokenFault(f"{source}: found {len(text)} characters, expected {SHORTEST} or more")
    if not (text.isascii() and text.isprintable() and " " not in text):
        # Other tokens could not be sent in a header.
        raise TokenFault(f"{source}: expected printable ASCII without spaces")
    if looks_like_key(text):
        raise TokenFault(f"{source}: found an API key, expected a separate admin token")
    return text


def _kept(path: Path) -> AdminToken:
    """The token in the file, which is generated if absent."""
    try:
        text, is_new = keep_private(path, lambda: secrets.token_urlsafe(_BYTES))
        return AdminToken(_checked(text, str(path)), str(path), "made" if is_new else "kept")
    except OSError as error:
        reason = error.strerror or error
        raise TokenFault(
            f"{path}: cannot keep the admin token there ({reason}); set {VARIABLE} or "
            f"{VARIABLE}_FILE, or another folder with --data"
        ) from error
