"""What the tests of commands share."""

from __future__ import annotations

import pytest
from redis.backoff import NoBackoff

from gateway.stores.redis import clients


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands try a store that is not there again without a pause."""
    monkeypatch.setattr(clients, "ExponentialBackoff", lambda **_: NoBackoff())
