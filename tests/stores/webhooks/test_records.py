"""Records of watches: what is written is read, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.ports import CorruptRecord
from gateway.domain.webhooks.watches import MOST_PATTERNS, Watch
from gateway.stores.webhooks.records import MOST_BYTES, read_watch, write_watch

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


@pytest.mark.parametrize(
    "change",
    [
        *({"id": "w2"}, {"id": None}, {"integration": "a:b"}, {"integration": ""}),
        *({"url": "http://hook.example/"}, {"url": "https://u:p@hook.example/"}, {"url": 7}),
        *({"events": []}, {"events": ["*"]}, {"events": None}, {"events": "a.b"}),
        {"events": ["a.b"] * (MOST_PATTERNS + 1)},
        *({"created_us": -1}, {"created_us": 1e9}, {"created_us": True}, {"version": 0}),
        *({"form": "none"}, {"form": ["timed"]}, {"rotated_us": 10**30}),
    ],
)
def test_records_of_others(change: dict[str, Any]) -> None:
    record = {**json.loads(write_watch(WATCH)), **change}
    with pytest.raises(CorruptRecord):
        read_watch("w1", json.dumps(record).encode())


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"7", b"null", b"{}", b"\xff", b"[" * 20_000, b"x" * (MOST_BYTES + 1)]
)
def test_no_records(content: bytes) -> None:
    with pytest.raises(CorruptRecord):
        read_watch("w1", content)
