"""Webhooks for the tests of receivers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway_client.webhooks import Event, sign

SECRET: Final = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER: Final = "whsec_" + base64.b64encode(b"o" * 32).decode()
NOW: Final = 1_800_000_000
VECTORS: Final = json.loads(Path(__file__).with_name("vectors.json").read_text("utf-8"))["vectors"]

NOBODY: Final = {"id": "", "username": "", "email": ""}
PULL_REQUEST: Final = {
    "id": "41",
    "number": 7,
    "title": "Count the tides",
    "description": "",
    "status": "merged",
    "repository": {"id": "1", "name": "tides", "full_name": "lab/tides"},
    "author": {"id": "2", "username": "ada", "email": "ada@example.com"},
}
EVENT: Final[dict[str, Any]] = {
    "id": "evt_7d1f2c3b4a596877665544330b1c2d3e",
    "type": "pull_request.merged",
    "created": "2026-11-23T16:43:58.446Z",
    "integration": {
        "id": "int_5f1c8a60d3b2479e01c4a7b3",
        "provider": "github",
        "name": "Our code",
    },
    "data": PULL_REQUEST,
}


def body_of(**changes: Any) -> bytes:
    """An event with changes, as it is sent."""
    return json.dumps({**EVENT, **changes}, separators=(",", ":")).encode()


BODY: Final = body_of()


def signed(body: bytes = BODY, secret: str = SECRET, **more: Any) -> dict[str, str]:
    return sign(body, secret, event_id="evt_1", **{"now": NOW, **more})


def body_in(vector: Mapping[str, Any]) -> bytes:
    if "body_base64" in vector:
        return base64.b64decode(vector["body_base64"])
    text: str = vector["body"]
    return text.encode()


@dataclass
class Handler:
    """Keeps the events that it is called with. raises: what it ends with, one for each call"""

    events: list[Event] = field(default_factory=list)
    raises: list[Exception] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if self.raises:
            raise self.raises.pop(0)

    async def awaited(self, event: Event) -> None:
        self(event)


@dataclass
class Store:
    """A store of seen events whose methods can fail: those that `broken` names."""

    kept: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def add(self, key: str, value: str, seconds: int) -> str | None:
        self._note("add", key, value, seconds)
        found = self.kept.get(key)
        self.kept.setdefault(key, value)
        return found

    def put(self, key: str, value: str, seconds: int) -> None:
        self._note("put", key, value, seconds)
        self.kept[key] = value

    def remove(self, key: str) -> None:
        self._note("remove", key)
        self.kept.pop(key, None)

    def _note(self, name: str, *arguments: object) -> None:
        self.calls.append((name, *arguments))
        if name in self.broken:
            raise ConnectionError("no store")


class AsyncStore:
    """The same store, with methods that are awaited."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, key: str, value: str, seconds: int) -> str | None:
        return self._store.add(key, value, seconds)

    async def put(self, key: str, value: str, seconds: int) -> None:
        self._store.put(key, value, seconds)

    async def remove(self, key: str) -> None:
        self._store.remove(key)
