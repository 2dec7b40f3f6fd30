"""The fields of integrations, and of events that are published, as users give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from gateway.domain.webhooks.event_types import is_type
from gateway.domain.webhooks.events import MOST_ID
from gateway.domain.webhooks.id_headers import MOST_NAME, is_id_header
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.manage.problems import Fault, Invalid
from gateway.manage.reading import Reader, found, read_name, read_word
from gateway.policies.faults import one_of

#: How many secrets of a provider hold at a time, and how long one is.
MOST_SECRETS: Final = 4
LEAST_SECRET: Final = 16
MOST_SECRET: Final = 512
_SECRET_WORDS: Final = f"{LEAST_SECRET} to {MOST_SECRET} printable ASCII characters, without spaces"
_ID_WORDS: Final = f"1 to {MOST_ID} printable characters"
_ID_HEADER_WORDS: Final = (
    f"the name of a header of the sender's own, up to {MOST_NAME} characters: not Authorization, "
    "Cookie, Host, Content-*, one of the signature, or one that the gateway sets"
)


def _read_kind(value: object) -> str:
    if not isinstance(value, str) or value not in KINDS:
        raise Invalid(Fault("kind", found(value), one_of(KINDS)))
    return value


def _read_paused(value: object) -> bool:
    if not isinstance(value, bool):
        raise Invalid(Fault("paused", found(value), "true or false"))
    return value


def _read_id_header(value: object) -> str:
    """In lower case; "": there is none any more."""
    if value is None:
        return ""
    # The Kelvin sign is a k in lower case.
    if not (isinstance(value, str) and value.isascii() and is_id_header(value.lower())):
        raise Invalid(Fault("id_header", found(value), _ID_HEADER_WORDS))
    return value.lower()


def check_id_header(kind: str, values: Mapping[str, Any]) -> None:
    """Raises Invalid where a header with the id is given, and the kind knows of none."""
    if values.get("id_header") and not KINDS[kind].takes_id_header:
        names = [each.name for each in KINDS.values() if each.takes_id_header]
        expected = f"none, as only the kind {', '.join(names)} has one"
        raise Invalid(Fault("id_header", found(values["id_header"]), expected))


def read_secrets(value: object) -> tuple[str, ...]:
    """The faults never show what was found: it may be most of a secret."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise Invalid(Fault("secrets", "no list", f"a list of 1 to {MOST_SECRETS}"))
    if not 1 <= len(value) <= MOST_SECRETS:
        raise Invalid(Fault("secrets", f"{len(value)} entries", f"1 to {MOST_SECRETS}"))
    faults = [
        Fault(f"secrets[{index}]", "another text or value", _SECRET_WORDS)
        for index, entry in enumerate(value)
        if not isinstance(entry, str) or not _is_secret(entry)
    ]
    if faults:
        raise Invalid(*faults)
    return tuple(value)


def _is_secret(text: str) -> bool:
    return LEAST_SECRET <= len(text) <= MOST_SECRET and all("!" <= char <= "~" for char in text)


def _read_type(value: object) -> str:
    if not isinstance(value, str) or not is_type(value):
        raise Invalid(Fault("type", found(value), 'a type such as "deployment.finished"'))
    return value


def _read_data(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Invalid(Fault("data", found(value), "an object"))
    return dict(value)


def _read_id(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MOST_ID or not value.isprintable():
        raise Invalid(Fault("id", found(value), _ID_WORDS))
    return value


CHANGEABLE: Final[Mapping[str, Reader]] = {
    "name": read_name,
    "paused": _read_paused,
    "id_header": _read_id_header,
}
NEW_FIELDS: Final[Mapping[str, Reader]] = {
    **CHANGEABLE,
    "kind": _read_kind,
    "account": partial(read_word, "account"),
    "secrets": read_secrets,
}
EVENT_FIELDS: Final[Mapping[str, Reader]] = {
    "type": _read_type,
    "data": _read_data,
    "id": _read_id,
}
