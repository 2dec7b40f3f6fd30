"""Records of integrations and watches: what is written is read, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.ports import CorruptRecord
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import MOST_PATTERNS, Rate, Watch
from gateway.stores.webhooks.records import (
    MOST_BYTES,
    read_integration,
    read_watch,
    write_integration,
    write_watch,
)
from tests.kit.rows import each_row

WATCH = Watch(
    *("w1", "int_1", "https://hook.example/a?b=c", ("pull_request.*", "ticket.created")),
    created_us=1_800_000_000_000_000,
    form="body-only",
    version=3,
    rotated_us=1_800_000_000_000_001,
)


def test_round_trip() -> None:
    assert read_watch("w1", write_watch(WATCH)) == WATCH
    longest = replace(
        WATCH, url="https://h.example/" + "x" * 2_030, events=("a" * 126 + ".b",) * 50
    )
    assert len(write_watch(longest)) <= MOST_BYTES
    assert read_watch("w1", write_watch(longest)) == longest
    paced = replace(WATCH, rate=Rate(4_294_967_295, 3_600_000_000))
    assert read_watch("w1", write_watch(paced)) == paced


def test_a_watch_of_an_older_gateway() -> None:
    """It has no rate, and is written as it was: what replaces a record compares it."""
    written = (
        b'{"id": "w1", "integration": "int_1", "url": "https://hook.example/", "events": ["a.*"], '
        b'"created_us": 1, "form": "timed", "version": 1, "rotated_us": 0}'
    )
    read = read_watch("w1", written)
    assert read.rate is None
    assert write_watch(read) == written


@each_row(
    "change",
    [
        *({"id": "w2"}, {"id": None}, {"integration": "a:b"}, {"integration": ""}),
        *({"url": "http://hook.example/"}, {"url": "https://u:p@hook.example/"}, {"url": 7}),
        *({"events": []}, {"events": ["*"]}, {"events": None}, {"events": "a.b"}),
        {"events": ["a.b"] * (MOST_PATTERNS + 1)},
        *({"created_us": -1}, {"created_us": 1e9}, {"created_us": True}, {"version": 0}),
        *({"form": "none"}, {"form": ["timed"]}, {"rotated_us": 10**30}),
        *({"rate": 7}, {"rate": "10/second"}, {"rate": []}, {"rate": [10]}, {"rate": {}}),
        *({"rate": [0, 1_000_000]}, {"rate": [1.5, 1_000_000]}, {"rate": [True, 1_000_000]}),
        *({"rate": [10, 1]}, {"rate": [10, "1000000"]}, {"rate": [10, [1_000_000]]}),
        *({"rate": [2**32, 1_000_000]}, {"rate": [10, 86_400_000_000]}),
    ],
)
def test_records_of_others(change: dict[str, Any]) -> None:
    record = {**json.loads(write_watch(WATCH)), **change}
    with pytest.raises(CorruptRecord):
        read_watch("w1", json.dumps(record).encode())


@each_row(
    "content",
    [
        *(b"", b"[]", b"7", b"null", b"{}", b"\xff", b"[" * 20_000, b"x" * (MOST_BYTES + 1)),
        write_watch(WATCH).ljust(MOST_BYTES + 1),
    ],
)
def test_no_records(content: bytes) -> None:
    with pytest.raises(CorruptRecord):
        read_watch("w1", content)


INTEGRATION = Integration(
    *("int_1", "acme", "generic", "Builds", 1_800_000_000_000_000),
    *("0123456789abcdef" * 2, "sealed"),
    id_header="x-delivery-id",
)


def test_integrations() -> None:
    """Those without a header for the id are written as by a gateway that knows of none."""
    assert read_integration("int_1", write_integration(INTEGRATION)) == INTEGRATION
    older = replace(INTEGRATION, id_header="")
    assert "id_header" not in json.loads(write_integration(older))
    assert read_integration("int_1", write_integration(older)) == older


@each_row(
    "change",
    [
        *({"kind": "github"}, {"kind": "operator"}, {"id_header": "X-Delivery-Id"}),
        *({"id_header": None}, {"id_header": 7}, {"id_header": ["x"]}, {"id_header": {}}),
        *({"id_header": "host"}, {"id_header": "x\r\ny"}, {"id_header": "x" * 65}),
    ],
)
def test_integrations_of_others(change: dict[str, Any]) -> None:
    record = {**json.loads(write_integration(INTEGRATION)), **change}
    with pytest.raises(CorruptRecord):
        read_integration("int_1", json.dumps(record).encode())
