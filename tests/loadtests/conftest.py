"""Fixtures of the load tests' tests."""

from __future__ import annotations

import pytest

from loadtests.compare import ours
from tests.kit.policies import STORE_TIMEOUT


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways wait for a slow Redis, as these tests count every request; runs measure the default.

    Beyond the default of 50 ms, which passes on a busy machine, a gateway decides without Redis.
    """
    monkeypatch.setattr(ours, "_GATEWAY", ours._GATEWAY + STORE_TIMEOUT)
