"""Integrations and watches as JSON in Redis: untrusted input, as others may write to the store."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final

from gateway.domain.json_text import read_json
from gateway.domain.limits import MAX_AMOUNT
from gateway.domain.patterns import LATEST_US, is_title, is_word
from gateway.domain.ports import CorruptRecord
from gateway.domain.webhooks.deliveries import is_id
from gateway.domain.webhooks.destinations import fault_of_url
from gateway.domain.webhooks.event_types import is_pattern
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.id_headers import is_id_header
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.domain.webhooks.watches import MOST_PATTERNS, RATE_PERIODS, Rate, Watch

#: The longest record that is read: a URL of 2 KiB, and the most patterns.
MOST_BYTES: Final = 16 * 1024
#: Watches whose records are remembered: each delivery comes with one.
_MOST_KNOWN: Final = 2048
#: What nobody can guess of a capture address: 128 bits.
is_capture = re.compile(r"[0-9a-f]{32}").fullmatch
_UNREADABLE: Final = (ValueError, TypeError, KeyError)


def write_integration(integration: Integration) -> bytes:
    """An integration as JSON.

    One always gives the same bytes, also as an older gateway wrote them: `replace_integration`
    compares.
    """
    record: dict[str, object] = {
        "id": integration.id,
        "account": integration.account,
        "kind": integration.kind,
        "name": integration.name,
        "created_us": integration.created_us,
        "capture": integration.capture,
        "sealed": integration.sealed,
        "paused": integration.is_paused,
    }
    if integration.id_header:
        record["id_header"] = integration.id_header
    return json.dumps(record).encode("ascii")


def read_integration(integration: str, content: bytes) -> Integration:
    """Raises CorruptRecord. integration: the id that the record has to have"""
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(len(content))
        read = read_json(content)
        capture, name, id_header = read["capture"], read["name"], read.get("id_header", "")
        return Integration(
            id=_matching(is_id(read["id"]) is not None and read["id"] == integration, read["id"]),
            account=_matching(is_word(read["account"]), read["account"]),
            kind=_matching(read["kind"] in KINDS, read["kind"]),
            name=_matching(is_title(name), name),
            created_us=_number(read["created_us"]),
            capture=_matching(capture == "" or is_capture(capture) is not None, capture),
            sealed=_matching(isinstance(read["sealed"], str), read["sealed"]),
            is_paused=_matching(isinstance(read["paused"], bool), read["paused"]),
            id_header=_matching(
                id_header == "" or _has_id_header(read["kind"], id_header), id_header
            ),
        )
    except _UNREADABLE as error:
        raise CorruptRecord("integration", integration) from error


def write_watch(watch: Watch) -> bytes:
    """A watch as JSON. The scripts read `events`.

    One always gives the same bytes, also as an older gateway wrote them: `replace_watch` compares.
    """
    record: dict[str, object] = {
        "id": watch.id,
        "integration": watch.integration,
        "url": watch.url,
        "events": watch.events,
        "created_us": watch.created_us,
        "form": watch.form,
        "version": watch.version,
        "rotated_us": watch.rotated_us,
    }
    if watch.rate is not None:
        record["rate"] = [watch.rate.amount, watch.rate.period_us]
    return json.dumps(record).encode("ascii")


@lru_cache(_MOST_KNOWN)
def read_watch(watch: str, content: bytes) -> Watch:
    """Raises CorruptRecord. watch: the id that the record has to have"""
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(len(content))
        return _watch(watch, read_json(content))
    except _UNREADABLE as error:
        raise CorruptRecord("watch", watch) from error


def _watch(watch: str, read: Any) -> Watch:
    found = Watch(
        id=_matching(is_id(read["id"]) is not None and read["id"] == watch, watch),
        integration=_matching(is_id(read["integration"]) is not None, read["integration"]),
        url=_matching(fault_of_url(read["url"]) is None, read["url"]),
        events=tuple(_matching(is_pattern(each), each) for each in read["events"]),
        created_us=_number(read["created_us"]),
        form=_matching(read["form"] in ("timed", "body-only"), read["form"]),
        version=_number(read["version"]),
        rotated_us=_number(read["rotated_us"]),
        rate=_rate(read.get("rate")),
    )
    if not 1 <= len(found.events) <= MOST_PATTERNS or found.version < 1:
        raise ValueError
    return found


def _rate(found: Any) -> Rate | None:
    if found is None:
        return None
    amount, period_us = found
    if type(amount) is not int or not 1 <= amount <= MAX_AMOUNT or period_us not in RATE_PERIODS:
        raise ValueError
    return Rate(amount, int(period_us))


def _has_id_header(kind: str, name: str) -> bool:
    return KINDS[kind].takes_id_header and is_id_header(name)


def _matching(holds: bool, value: Any) -> Any:
    if not holds:
        raise ValueError
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LATEST_US:
        raise ValueError
    return value
