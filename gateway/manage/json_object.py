"""Reads the body of a request as a JSON object, strictly: every reader finds the same in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from gateway.domain.json_text import TooDeep, read_json
from gateway.domain.media_types import read_media_type
from gateway.manage.refusals import BODY_NOT_JSON, MEDIA_TYPE, Refused

_JSON: Final = "application/json"


def check_media_type(*values: str) -> None:
    """Raise Refused unless these values of all Content-Type fields say that a body is JSON."""
    found = read_media_type(*values)
    if not found.is_exactly(_JSON):
        raise Refused(MEDIA_TYPE, found.words)


def read_object(content: bytes) -> Mapping[str, object]:
    """A JSON object, strictly: UTF-8, no name twice, no NaN. Raises Refused."""
    try:
        found = read_json(content.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
        # An escaped lone surrogate is not valid text, and later steps could not encode it.
        json.dumps(found, ensure_ascii=False).encode()
    except TooDeep as error:
        raise Refused(BODY_NOT_JSON, str(error)) from error
    except ValueError as error:
        raise Refused(BODY_NOT_JSON) from error
    if not isinstance(found, dict):
        raise Refused(BODY_NOT_JSON)
    return found


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is repeated")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
