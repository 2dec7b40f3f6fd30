"""The admin token: given in the environment, or made once and kept in the data folder.

Workers never see it, no command line has it, and nothing here puts it into a message.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.domain.spelling import looks_like_key
from gateway.stores.connect import secret_from_env

#: The variable that it comes from; with _FILE behind it, a file instead.
VARIABLE: Final = "GATEWAY_ADMIN_TOKEN"
#: Its file in the data folder.
FILE: Final = "admin-token"
SHORTEST: Final = 16

_LARGEST_FILE: Final = 4_096


class TokenFault(Exception):
    """Why there is no token to be used, in one line that names what to change."""


@dataclass(frozen=True, slots=True)
class AdminToken:
    """text: the secret; place: the variable or file that a person finds it in"""

    text: str = field(repr=False)
    place: str


def read_token(environ: Mapping[str, str], data: Path) -> AdminToken:
    """The token of this gateway; made where there is none yet. Raises TokenFault."""
    try:
        given = secret_from_env(VARIABLE, environ)
    except ValueError as error:
        raise TokenFault(str(error)) from error
    file = environ.get(f"{VARIABLE}_FILE")
    if given is None and not file:
        path = data / FILE
        return AdminToken(_checked(_kept(path), str(path)), str(path))
    place = file or VARIABLE
    return AdminToken(_checked(given or "", place), place)


def _checked(text: str, place: str) -> str:
    if len(text) < SHORTEST:
        raise TokenFault(f"{place}: found {len(text)} characters, expected {SHORTEST} or more")
    if not (text.isascii() and text.isprintable() and " " not in text):
        # What a header cannot carry as it is would be a token that nobody can present.
        raise TokenFault(f"{place}: expected printable ASCII without spaces")
    if looks_like_key(text):
        raise TokenFault(f"{place}: this is an API key; the admin side takes a token of its own")
    return text


def _kept(path: Path) -> str:
    """What the file holds; it is made where it is absent."""
    try:
        if not os.path.lexists(path):
            _make(path)
        return _read(path)
    except OSError as error:
        reason = error.strerror or error
        raise TokenFault(
            f"{path}: the admin token cannot be kept there ({reason}); set {VARIABLE} or "
            f"{VARIABLE}_FILE, or name another folder with --data"
        ) from error


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, encoding="ascii", errors="replace") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
            raise TokenFault(f"{path}: expected a file of this user")
        if found.st_mode & 0o077:
            raise TokenFault(
                f"{path}: others can read or change it; make it yours alone: chmod 600"
            )
        return file.read(_LARGEST_FILE).strip()


def _make(path: Path) -> None:
    """Put a new token there, whole or not at all; where somebody else was quicker, theirs stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{FILE}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()
