"""Requests by key, route and outcome: of the access log, and of the store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.domain.ports import UsageStore
from gateway.domain.usage import GRAIN_S, KEPT_S, Grain, answered_outcome, outcome_of

#: (key id or "", route or "none", outcome) -> requests
Counts = Counter[tuple[str, str, str]]


def logged(lines: Iterable[Mapping[str, Any]]) -> Counts:
    """The counts of lines of the access log."""
    return Counter(
        (line["key_id"] or "", line["route"] or "none", _outcome(line)) for line in lines
    )


async def used(store: UsageStore, key_ids: Iterable[str], grain: Grain = "minute") -> Counts:
    """The store's counts of these keys, and of requests without a key."""
    found = Counts()
    now_s = int(time.time())
    for key_id in (*key_ids, ""):
        subject = f"key:{key_id}" if key_id else "plan:"
        start_s = now_s - KEPT_S[grain] + GRAIN_S[grain]
        for bucket in await store.read(subject, grain, start_s, now_s + GRAIN_S[grain]):
            for (route, outcome), requests in bucket.counts.items():
                found[key_id, route, outcome] += requests
    return found


def _outcome(line: Mapping[str, Any]) -> str:
    decision = line["decision"]
    if decision == "admitted":
        return answered_outcome(line["status"])
    return outcome_of(decision, line["limit"] if decision == "limited" else line["reason"])
