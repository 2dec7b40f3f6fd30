"""Entries of the history of policies as fields of a stream, and texts as compressed JSON.

Both are untrusted input, as others may write to the store. An entry that the gateway could not have
written is None; texts that have another hash than their name says are a CorruptRecord.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

from gateway.domain.json_text import read_json
from gateway.domain.patterns import LATEST_US, printable
from gateway.domain.policy_files import MOST_TEXT_BYTES, Texts, hash_of, is_file_name, is_hash
from gateway.domain.policy_history import CAUSES, MOST_LABEL, MOST_SUMMARY, PolicyLoad
from gateway.domain.ports import CorruptRecord

#: The most bytes of a policy's texts in the store. Texts take a tenth of their length; so those of
#: ten thousand routes have 100 KB.
MOST_STORED_BYTES: Final = 1024 * 1024
#: The most bytes of all fields of an entry, each character of which may take four.
MOST_ENTRY_BYTES: Final = 8 * 1024

_is_time = re.compile("[0-9]{1,18}", re.ASCII).fullmatch


def write_load(load: PolicyLoad) -> dict[str, str]:
    """The fields of an entry, those that are too long cut off."""
    return {
        "at": str(load.at_us),
        "hash": load.hash,
        "previous": load.previous,
        "cause": load.cause,
        "gateway": label(load.gateway),
        "summary": _cut(load.summary, MOST_SUMMARY),
        "actor": label(load.actor),
    }


def read_load(fields: Mapping[bytes, bytes]) -> PolicyLoad | None:
    """An entry; None: it cannot be read."""
    try:
        texts = {name.decode(): value.decode() for name, value in fields.items()}
        at, policy, previous = texts["at"], texts["hash"], texts["previous"]
        gateway, summary, actor = texts["gateway"], texts["summary"], texts["actor"]
        (cause,) = (cause for cause in CAUSES if cause == texts["cause"])
    except (KeyError, ValueError):  # UnicodeDecodeError, or no such cause
        return None
    is_valid = (
        _is_time(at) is not None
        and int(at) <= LATEST_US
        and is_hash(policy)
        and (not previous or is_hash(previous))
        and _is_text(gateway, MOST_LABEL)
        and _is_text(summary, MOST_SUMMARY)
        and _is_text(actor, MOST_LABEL)
    )
    if not is_valid:
        return None
    return PolicyLoad(int(at), policy, previous, cause, gateway, summary, actor)


def write_texts(texts: Texts) -> bytes | None:
    """Texts as they are stored; None: they are too large."""
    content = zlib.compress(json.dumps(dict(texts), ensure_ascii=False).encode())
    return content if len(content) <= MOST_STORED_BYTES else None


def read_texts(policy: str, content: bytes) -> Texts:
    """The texts of the policy with this hash. Raises CorruptRecord."""
    try:
        # JSON writes a character in six bytes at most. A few stored bytes may announce gigabytes.
        unpacking = zlib.decompressobj()
        written = unpacking.decompress(content, 6 * MOST_TEXT_BYTES)
        if unpacking.eof and not unpacking.unused_data:
            texts = _read_texts(read_json(written))
            if hash_of(texts) == policy:
                return texts
    except (zlib.error, ValueError):
        pass
    raise CorruptRecord("policy", printable(policy))


def _read_texts(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not found:
        raise ValueError("not an object")
    for name, text in found.items():
        if not is_file_name(name) or not isinstance(text, str):
            raise ValueError("not the text of a policy file")
    return found


def label(text: str) -> str:
    """The name of a gateway or an actor, as it is stored."""
    return _cut(text, MOST_LABEL)


def _cut(text: str, most: int) -> str:
    words = printable(text)
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _is_text(text: str, most: int) -> bool:
    return len(text) <= most and text.isprintable()
