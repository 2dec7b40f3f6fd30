"""The text of a key: `mint` creates one from randomness that is passed in, `parse` reads one.

    gwk_production_7h3k9m2p4q6r_<32 characters of secret><6 of checksum>

`parse` accepts any bytes that a client sends: it never raises, and rejects a mistyped key without
the store. The checksum is not secret; it only detects typing errors.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final, NamedTuple
from zlib import crc32

#: Letters and digits that are easy to distinguish: no 0, o, 1, l, i.
ID_ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"
_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH: Final = 12
_SECRET_LENGTH: Final = 32
_CHECKSUM_LENGTH: Final = 6
#: The longest text of a key: its environment has up to 32 characters.
_MOST_LENGTH: Final = len("gwk___") + 32 + _ID_LENGTH + _SECRET_LENGTH + _CHECKSUM_LENGTH
#: Where the id is in the text of a key.
_ID_AT: Final = slice(
    -(_ID_LENGTH + 1 + _SECRET_LENGTH + _CHECKSUM_LENGTH), -(1 + _SECRET_LENGTH + _CHECKSUM_LENGTH)
)

#: The name of an environment.
ENVIRONMENT: Final = r"[a-z][a-z0-9-]{0,31}"
#: The id of a key.
ID: Final = f"[{ID_ALPHABET}]{{{_ID_LENGTH}}}"
_is_environment = re.compile(ENVIRONMENT, re.ASCII).fullmatch
_is_id = re.compile(ID, re.ASCII).fullmatch
_read = re.compile(
    f"(gwk_({ENVIRONMENT})_({ID})_[0-9A-Za-z]{{{_SECRET_LENGTH}}})"
    f"([0-9A-Za-z]{{{_CHECKSUM_LENGTH}}})".encode()
).fullmatch


class ParsedKey(NamedTuple):
    """The public parts of a key's text. A tuple, because one is made for every request."""

    environment: str
    id: str


def mint(environment: str, randbelow: Callable[[int], int]) -> tuple[str, str]:
    """A new key: its text and its id. randbelow(n): a uniform random number from 0 to n - 1.

    Raises ValueError where the environment cannot be part of a key.
    """
    if not is_environment(environment):
        raise ValueError(
            f"environment: found {environment!r}, expected up to 32 lower-case letters, digits "
            "and '-', beginning with a letter"
        )
    key_id = "".join(ID_ALPHABET[randbelow(len(ID_ALPHABET))] for _ in range(_ID_LENGTH))
    secret = "".join(_BASE62[randbelow(62)] for _ in range(_SECRET_LENGTH))
    body = f"gwk_{environment}_{key_id}_{secret}"
    return body + _checksum(body.encode()).decode(), key_id


def parse(text: bytes | str) -> ParsedKey | None:
    """The environment and id in a key's text; None: it is not a key, or it was mistyped."""
    if isinstance(text, str):
        text = text.encode(errors="replace")
    found = _read(text)
    if found is None:
        return None
    body, environment, key_id, checksum = found.groups()
    if _checksum(body) != checksum:
        return None
    return ParsedKey(environment.decode(), key_id.decode())


def id_of(text: bytes) -> str:
    """The id in the text of a key; of any other text, any characters or "". `parse` says which."""
    return text[_ID_AT].decode("latin-1") if len(text) <= _MOST_LENGTH else ""


def digest(text: bytes) -> bytes:
    """What is stored of a key: the SHA-256 of the whole text, 32 bytes."""
    return hashlib.sha256(text).digest()


def is_environment(text: str) -> bool:
    """Can this be the name of an environment?"""
    return _is_environment(text) is not None


def is_key_id(text: str) -> bool:
    """Does this have the format of a key's id?"""
    return _is_id(text) is not None


#: How a key begins, in any letter case. In a URL any character may be encoded, even twice: `%67`,
#: `%2567`.
BEGINNING: Final = (
    r"(?:G|g|%(?:25)?[46]7)(?:W|w|%(?:25)?[57]7)(?:K|k|%(?:25)?[46][Bb])(?:_|%(?:25)?5[Ff])"
)
_begins = re.compile(BEGINNING).search


def looks_like_key(text: str) -> bool:
    """Is this likely a whole key, maybe a mistyped or encoded one? Then it must not be shown."""
    return _begins(text) is not None


#: A key, or one with a letter or two too many or too few.
_key_within = re.compile(rb"gwk_[a-z0-9-]{1,34}+_[a-z0-9]{8,18}+_[a-z0-9]{16}").search
#: The same, where each character has up to three, as those that are encoded.
_encoded_key_within = re.compile(rb"gwk_[a-z0-9%-]{1,102}+_[a-z0-9%]{8,54}+_[a-z0-9%]{16}").search
#: How the letters of `gwk_` are encoded, in lower case.
_ENCODED: Final = tuple((b"%%%02x" % byte, bytes((byte,)).lower()) for byte in b"GgWwKk")


def holds_key(data: bytes) -> bool:
    """Does it contain a key, or a mistyped one, in any letter case, also percent-encoded?

    A key in the wrong case is not valid, but reveals most of the valid one.
    """
    if b"%" in data:
        # Most of what is in a URL has been decoded after two servers. Only what tells a key from
        # other text is decoded here: decoding everything takes ten times as long.
        lower = data.lower().replace(b"%25", b"%").replace(b"%5f", b"_")
        if b"_" not in lower:  # each letter takes as long to look for where there are many "%"
            return False
        for encoded, plain in _ENCODED:
            lower = lower.replace(encoded, plain)
        return b"gwk_" in lower and _encoded_key_within(lower) is not None
    # Most fields have none, and this is the fastest test.
    if b"_" not in data:
        return False
    lower = data.lower()
    return b"gwk_" in lower and _key_within(lower) is not None


#: Two base-62 digits at a time: a third of the divisions.
_PAIRS: Final = tuple((a + b).encode() for a in _BASE62 for b in _BASE62)


def _checksum(body: bytes) -> bytes:
    rest, low = divmod(crc32(body), 3844)
    high, middle = divmod(rest, 3844)
    return _PAIRS[high] + _PAIRS[middle] + _PAIRS[low]
