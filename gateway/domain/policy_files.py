"""The files of a policy: their names, their hash, and their texts as a whole.

The texts are kept with the policy, so that a version can be shown, compared and restored later.
They contain no secrets: certificates and keys are paths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

#: The texts of all files of a policy, by file name.
Texts = Mapping[str, str]

#: The most bytes of all files together whose texts are kept; of a larger policy none are. Ten
#: thousand simple routes have a fifth of this.
MOST_TEXT_BYTES: Final = 4 * 1024 * 1024
#: The most bytes of a file name, as most file systems have it.
_MOST_NAME_BYTES: Final = 255

_is_hash = re.compile("[0-9a-f]{16}").fullmatch


@dataclass(frozen=True, slots=True)
class Source:
    """What a policy was loaded from. texts: None where they are too large to be kept"""

    folder: str
    texts: Texts | None = None


class FilesHash:
    """The hash of a policy's files, added in the order of their names."""

    def __init__(self) -> None:
        self._digest = sha256()

    def add(self, name: str, content: bytes) -> None:
        # With lengths, since different files may have the same concatenation.
        self._digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape"))
        self._digest.update(content)

    def text(self) -> str:
        """16 hexadecimal digits."""
        return self._digest.hexdigest()[:16]


def hash_of(files: Mapping[str, str | bytes]) -> str:
    """The hash of files with these contents. Raises UnicodeEncodeError, for lone surrogates."""
    digest = FilesHash()
    for name in sorted(files):
        content = files[name]
        digest.add(name, content.encode() if isinstance(content, str) else content)
    return digest.text()


def is_hash(text: str) -> bool:
    """Is it the hash of a policy: 16 hexadecimal digits in lower case?"""
    return _is_hash(text) is not None


def is_file_name(name: str) -> bool:
    """Is it the plain name of a policy file: "routes.yaml", without a folder, and not hidden?"""
    return (
        name.endswith(".yaml")
        and not name.startswith(".")
        and name.isprintable()
        and "/" not in name
        and len(name.encode(errors="surrogatepass")) <= _MOST_NAME_BYTES
    )
