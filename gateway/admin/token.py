"""The admin token: given in the environment, or made once and kept in the data folder.

Workers never see it, no command line has it, and nothing here puts it into a message.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

from gateway.domain.key_format import looks_like_key
from gateway.files import open_private, private_folder
from gateway.stores.redis.address import secret_from_env

#: The variable that it comes from; with _FILE behind it, a file instead.
VARIABLE: Final = "GATEWAY_ADMIN_TOKEN"
#: Its file in the data folder.
FILE: Final = "admin-token"
SHORTEST: Final = 16
#: Fewer characters may be three everyday words, and fewer different characters a repeated word. For
#: what that means against guessing see `access`.
STRONG: Final = 24
DIFFERENT: Final = 9

#: 256 random bits, as `secrets.token_urlsafe` writes them.
_BYTES: Final = 32
_is_made = re.compile(r"[A-Za-z0-9_-]{43}").fullmatch
_LARGEST_FILE: Final = 4_096


class TokenFault(Exception):
    """Why there is no token to be used, in one line that names what to change."""


@dataclass(frozen=True, slots=True)
class AdminToken:
    """The secret, and its origin.

    source: the variable or file where a person finds it
    origin: "given" by the operator, "made" at this start, or "kept" from an earlier start
    """

    text: str = field(repr=False)
    source: str
    origin: Literal["given", "made", "kept"] = "given"

    @property
    def digest(self) -> str:
        """Tells two tokens apart. Only for generated ones: others could be guessed from it."""
        assert self.origin != "given", "a digest allows guessing a token that a person chose"
        return sha256(b"gateway admin token\0" + self.text.encode()).hexdigest()

    @property
    def is_weak(self) -> bool:
        """Whether it may be a phrase that can be guessed."""
        return len(self.text) < STRONG or len(set(self.text)) < DIFFERENT


def read_token(environ: Mapping[str, str], data: Path) -> AdminToken:
    """The token of this gateway; made where there is none yet. Raises TokenFault."""
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
    """The token that another gateway has generated, kept in this gateway's folder from now on.

    None: the file does not hold the token with this digest. source and digest may come from an
    attacker, so the file must be one that only this user can have written, and must contain what a
    gateway generates.
    """
    path = data / FILE
    try:
        if source.name != FILE or not source.is_absolute():
            return None
        text = _read(source)
        token = AdminToken(text, str(path), "kept")
        if not _is_made(text) or token.digest != digest:
            return None
        _write(path, text, is_new=False)
    except (OSError, ValueError, TokenFault):
        return None
    return token


def _checked(text: str, source: str) -> str:
    if len(text) < SHORTEST:
        raise TokenFault(f"{source}: found {len(text)} characters, expected {SHORTEST} or more")
    if not (text.isascii() and text.isprintable() and " " not in text):
        # What a header cannot carry as it is would be a token that nobody can present.
        raise TokenFault(f"{source}: expected printable ASCII without spaces")
    if looks_like_key(text):
        raise TokenFault(f"{source}: this is an API key; the admin side takes a token of its own")
    return text


def _kept(path: Path) -> AdminToken:
    """What the file holds; it is made where it is absent."""
    try:
        private_folder(path.parent)
        is_new = not os.path.lexists(path)
        if is_new:
            is_new = _write(path, secrets.token_urlsafe(_BYTES), is_new=True)
        return AdminToken(_checked(_read(path), str(path)), str(path), "made" if is_new else "kept")
    except OSError as error:
        reason = error.strerror or error
        raise TokenFault(
            f"{path}: the admin token cannot be kept there ({reason}); set {VARIABLE} or "
            f"{VARIABLE}_FILE, or name another folder with --data"
        ) from error


def _read(path: Path) -> str:
    with open(open_private(path, os.O_RDONLY), encoding="ascii", errors="replace") as file:
        return file.read(_LARGEST_FILE).strip()


def _write(path: Path, text: str, *, is_new: bool) -> bool:
    """Write the file atomically.

    is_new: do not replace an existing file; False is returned where another process was faster
    """
    draft = path.with_name(f"{FILE}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(descriptor)
        if not is_new:
            os.replace(draft, path)
            return True
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True
